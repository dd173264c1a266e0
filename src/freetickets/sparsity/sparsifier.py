"""The sparsifier: keeps a network sparse in anyone's training loop, and explores its topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..errors import FreeTicketsError
from .backend import Backend
from .distribution import DEFAULT_SPARSITY, Distribution
from .exploration import Explorer, Redistribution, Scope
from .gradients import GradientRecord
from .layers import Selector, inner_optimizer, select_weights
from .named import sparse_method
from .network import (
    LayerStatistics,
    SparseNetwork,
    itop_rate,
    overall_sparsity,
    starting_masks,
    table,
)
from .schedule import Exploration, check_rate
from .score import SCORES, GrowthLike, ScoreLike, WeightView
from .structure import Unstructured, check_options, parse_structure
from .takeover import Watch, given_topology
from .topology import Topology, check_topology, digest

if TYPE_CHECKING:
    from ..kernels.choices import Choices


class Sparsifier:
    """Keeps any network sparse while any loop trains it, with any `torch.optim` optimizer.

    Two lines around an existing loop are all it takes: create it after the optimizer, and call
    `step` after `optimizer.step()`. The defaults are the paper's: an ERK topology, explored as RigL
    does (prune by magnitude, grow by gradient). Gradients are masked just before each optimizer
    step, the weights and the optimizer's state after it, so nothing outside the topology ever
    moves; the number of active weights of a layer never changes, unless you ask for it (`pruning`,
    `redistribute`). `Sparsifier.named` makes the sparse trainings of the literature.

    Works with gradient accumulation, autocast and `GradScaler` (a skipped step does not count),
    `torch.compile`, `state_dict` and `copy.deepcopy`. To clip gradients by their norm, call
    `mask_gradients` before clipping. An optimizer that calls a closure several times a step (LBFGS)
    grows by the gradient of the first call.

    Args:
        model: The network. Linear, convolutional, recurrent and attention weights become sparse.
        optimizer: Its optimizer.
        sparsity: The share of zeros over all sparse layers, or a map from name patterns to
            sparsities.
        distribution: How the active weights are divided among the layers: "erk", "er", "uniform",
            "uniform-dense-first", or a function of shapes and sparsity.
        structure: Where the active weights of a layer may lie, now and after each exploration:
            "unstructured"; "2:4" or another N:M: N of each M consecutive inputs of an output;
            "block-4x4" or other sizes: whole blocks of outputs and inputs; "fan-in": equally many
            inputs for each output (SRigL). Counts are rounded to what the structure can have. An
            N:M structure sets the sparsity of all layers, whatever the distribution: any other
            value is refused, except the default. A layer whose shape does not fit (3 input
            channels, 10 classes) stays dense, as if excluded; "fan-in" fits all.
        topology: Masks to start from, by the names of weights, instead of random ones of that
            sparsity, distribution and structure; a weight without a mask stays dense. The
            "topology" of a `state_dict` will do; "given" takes over the zeros that the network has.
        exploration: When to explore and at which rate: an `Exploration`, any function from a step's
            number to a rate (0: do not explore), or None for a static topology. Half of the active
            weights every 100 steps, if not given, to the very end: where the length is known, stop
            some hundred steps before it (`stop`), or let the rate fall (`schedule`, or `named`).
        pruning: When to prune for good and to which sparsity: a `GradualPruning` (start it at its
            initial sparsity), or any function from a step's number to a sparsity or None. An
            exploration of the same step follows the pruning (GraNet).
        prune: The score by which active weights are kept: a name of `SCORES` or a function.
        grow: The score by which inactive weights are chosen: a name, a function, or a mixture such
            as {"gradient": 0.5, "random": 0.5}.
        prune_scope: "layer": each layer loses the same share; "global": the weakest of the whole
            network go; "threshold": in explorations all go that are below a threshold, which is
            doubled or halved after each so that about the rate is pruned (DSR).
        redistribute: How many weights a layer grows: None: as many as it lost, so its count stays;
            "momentum": in proportion to the mean running gradient of its active weights (SNFS);
            "survivors": in proportion to the weights that survived (DSR). The total stays.
        reserve: Besides the active weights, the strongest inactive ones (this share of a layer)
            keep their values out of the network's sight, and train; an exploration, whatever its
            rate, then chooses the strongest of all weights again (Top-KAST, by magnitude).
        regrown_value: The value of a weight that is pruned and grown again in one exploration:
            "zero", or "keep" (as RigL does).
        gradient_batches: Growth looks at the mean gradient of this many last steps, as far as they
            lie after the exploration before.
        include: Only these weights become sparse (patterns or module types).
        exclude: These weights stay dense (patterns or module types).
        embeddings: Whether embedding tables become sparse too.
        backend: "auto": the network keeps its layers, parameters, gradients and `state_dict`, as
            your loop has them; where that is faster, linear layers and convolutions (float32, on
            the CPU) compute only with active weights, or in Winograd's way. "masked": PyTorch's
            dense kernels and weights with zeros, on any device. "sparse": these layers are
            replaced, in place, by ones that hold only active weights, as a parameter `values`.
            That takes less memory, and less time in linear layers; the network must be wrapped
            (for several processes, by `torch.compile`) and its parameters handed out after this,
            the optimizer must update each weight by itself, and `pruning`, `redistribute` and
            `reserve` can't be had, which change how many weights train.
        seed: The seed of the topology and of random growth; the same on all ranks.

    Example:
        >>> model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> sparsifier = Sparsifier(model, optimizer, 0.8, exploration=Exploration(interval=2))
        >>> for _ in range(4):
        ...     model(torch.randn(8, 20)).square().mean().backward()
        ...     optimizer.step()
        ...     explored = sparsifier.step()
        ...     optimizer.zero_grad()
        >>> sum(int((p != 0).sum()) for p in (model[0].weight, model[2].weight)) <= 132
        True
    """

    _owns_network = False  # whether nobody else holds its parameters: then "auto" may replace them

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        sparsity: float | Mapping[str, float] = DEFAULT_SPARSITY,
        *,
        distribution: Distribution = "erk",
        structure: str = "unstructured",
        topology: Mapping[str, Tensor] | Literal["given"] | None = None,
        exploration: Callable[[int], float] | None = Exploration(rate=0.5, interval=100),  # noqa: B008
        pruning: Callable[[int], float | None] | None = None,
        prune: ScoreLike = "magnitude",
        grow: GrowthLike = "gradient",
        prune_scope: Scope = "layer",
        redistribute: Redistribution | None = None,
        reserve: float = 0.0,
        regrown_value: Literal["zero", "keep"] = "zero",
        gradient_batches: int = 1,
        include: Selector | Sequence[Selector] | None = None,
        exclude: Selector | Sequence[Selector] = (),
        embeddings: bool = False,
        backend: Backend = "auto",
        seed: int = 0,
    ) -> None:
        if not 0 <= reserve <= 1:
            raise FreeTicketsError(f"reserve must lie between 0 and 1, not {reserve}")
        if reserve and (pruning is not None or redistribute is not None):
            raise FreeTicketsError("reserve goes with neither pruning nor redistribute: drop one")
        if regrown_value not in ("zero", "keep"):
            raise FreeTicketsError(f"regrown_value must be 'zero' or 'keep', not {regrown_value!r}")
        if gradient_batches < 1:
            raise FreeTicketsError(f"gradient_batches must be at least 1, not {gradient_batches}")
        self.optimizer = optimizer = inner_optimizer(optimizer)
        self.steps = 0
        self._exploration = exploration
        self._pruning = pruning
        self._distribution = distribution
        self._structure = parse_structure(structure)
        check_options(
            structure,
            pruning=pruning is not None,
            prune_scope=prune_scope,
            redistribute=redistribute,
            reserve=reserve,
            mixture=isinstance(grow, Mapping) and len(grow) > 1,
        )
        self._explorer = Explorer(prune, grow, prune_scope, redistribute, self._structure)
        self._reserve = reserve
        self._keep_regrown = regrown_value == "keep"
        self._gradient_batches = gradient_batches
        needs = frozenset() if reserve else self._explorer.needs
        self._record = GradientRecord(needs, window=gradient_batches)
        self._generator = torch.Generator().manual_seed(seed)

        weights = select_weights(model, include=include, exclude=exclude, embeddings=embeddings)
        if isinstance(topology, str):
            topology = given_topology(weights, topology)
        if topology is not None:
            masks = check_topology(topology, {name: w.shape for name, w in weights.items()})
        else:
            masks = starting_masks(
                weights,
                sparsity,
                distribution,
                self._structure,
                self._generator,
                strongest=reserve > 0,
            )
        self._watch = Watch(weights, masks, chosen=topology is not None)
        masked_only = {"pruning": pruning, "redistribute": redistribute, "reserve": reserve}
        self._network = SparseNetwork(
            model,
            optimizer,
            weights,
            masks,
            structure=self._structure,
            backend=backend,
            unsuited=next((name for name, value in masked_only.items() if value), None),
            owned=self._owns_network,
            reserve=reserve,
            generator=self._generator,
        )
        if pruning is not None:
            self._network.mask_all()
        self._stepped = False  # whether the optimizer has taken a step since the last `step()`
        self._watch.settle(self._network.weights)
        self._announce()
        self._hooks = self._register_hooks()

    @classmethod
    def named(
        cls,
        name: str,
        model: nn.Module,
        optimizer: Optimizer,
        sparsity: float = DEFAULT_SPARSITY,
        *,
        steps: int,
        rate: float = 0.5,
        interval: int | None = None,
        **overrides: Any,
    ) -> Sparsifier:
        """Makes the sparsifier of a method that is known by name, for a training of `steps` steps.

        Args:
            name: A name of `SPARSE_METHODS`: "set", "rigl", "snfs", "granet", ...
            model: The network.
            optimizer: Its optimizer.
            sparsity: The sparsity at the end of the training.
            steps: The length of the training.
            rate: The share of the active weights that the first exploration replaces.
            interval: Steps between two explorations; see `SparseParts.options`.
            **overrides: Other arguments of the `Sparsifier`.

        Example:
            >>> model = nn.Linear(30, 20)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> sparsifier = Sparsifier.named("granet", model, optimizer, 0.9, steps=1000)
            >>> round(sparsifier.sparsity, 6)  # GraNet starts with half of the weights
            0.5
        """
        options = sparse_method(name).options(sparsity, steps, rate=rate, interval=interval)
        return cls(model, optimizer, **{**options, **overrides})

    # ---- what a loop calls

    def step(self, *, skipped: bool = False) -> bool:
        """Counts a training step, and prunes and explores if that is due.

        Call it after `optimizer.step()`.

        A step that the optimizer did not take (`GradScaler` found an overflow, or gradients are
        still being accumulated) does not count.

        Args:
            skipped: The optimizer's step was left out on purpose, as RigL does when it explores; it
                counts all the same.

        Returns:
            Whether the topology was pruned or explored.
        """
        if skipped and not self._stepped:
            self.mask_gradients()
            self._record.commit()
        elif not self._stepped:
            self._record.drop()
            return False
        self._stepped = False
        self.steps += 1
        sparsity, rate = self._target(self.steps), self._rate(self.steps)
        if sparsity is not None:
            self.prune(sparsity)
        if rate > 0:
            self.explore(rate)
        self._announce()
        return sparsity is not None or rate > 0

    @torch.no_grad()
    def prune(self, sparsity: float | Mapping[str, float]) -> None:
        """Prunes to an overall sparsity, for good. `step` calls this by schedule.

        Each layer keeps its strongest weights, as many as the distribution gives it; with
        `prune_scope="global"` one threshold is found for all layers. Needs masked weights.
        """
        if self._reserve:
            raise FreeTicketsError("a network with a reserve can't be pruned: leave reserve at 0")
        if not isinstance(self._structure, Unstructured):
            raise FreeTicketsError(
                f"a network with structure '{self._structure}' can't be pruned: make a new "
                "Sparsifier with the sparsity wanted"
            )
        layerwise = isinstance(sparsity, Mapping) or self._explorer.layerwise
        counts = self._network.counts_at(sparsity, self._distribution if layerwise else None)
        self._network.mask_all()
        if self._explorer.prune_score.needs:
            self._require_gradients()
            self._record.close()
        masks = self._explorer.prune(self._views(), counts)
        self._network.rewire(masks, weights=masks, state=masks)

    @torch.no_grad()
    def explore(self, rate: float) -> None:
        """Prunes a share `rate` of the active weights and grows as many.

        `step` calls this by schedule. Called by hand with gradient growth (an escape, say), it uses
        the dense gradient of the last step, if `keep_gradients` was called before that step.
        """
        check_rate("rate", rate)
        if not self._network.weights:
            return
        if self._reserve:
            scores = [SCORES["magnitude"](view) for view in self._views()]
            self._network.choose_anew(scores, self._generator)
            return
        self._require_gradients()
        # All is chosen before anything changes: a score that is refused leaves the network whole.
        kept, masks = self._explorer.explore(self._views(), rate)
        self._network.rewire(masks, weights=masks if self._keep_regrown else kept, state=kept)
        self._record.close()

    @torch.no_grad()
    def set_topology(self, topology: Mapping[str, Tensor]) -> None:
        """Takes another topology; weights outside it, and their optimizer state, become zero.

        Those inside keep what the network has there, so new ones start at zero unless they were
        loaded a moment ago. Layers that compute only with active weights keep their number.

        Args:
            topology: A mask for each weight that is to change, as the argument of the `Sparsifier`;
                one that is all True makes the weight dense.
        """
        self._network.set_topology(check_topology(topology, self._network.shapes))
        self._watch.settle(self._network.weights)
        self._announce()

    @torch.no_grad()
    def mask_gradients(self) -> None:
        """Sets the gradients of inactive weights to zero, recording the dense ones if needed.

        The optimizer's step does this by itself; call it earlier where the gradients are used
        before (clipping by norm, logging).
        """
        if not self._record.taken:
            self._record.take(self._network.weights, self._explores_soon)
        self._network.mask_gradients()

    def keep_gradients(self) -> None:
        """Records the dense gradients of the coming step, so that `explore` can follow it.

        Call it before the forward pass of that step.
        """
        self._record.keep()
        self._announce()

    @property
    def due(self) -> bool:
        """Whether the coming step ends with an exploration."""
        return self._rate(self.steps + 1) > 0

    # ---- what a loop, a report or a test looks at

    @property
    def topology(self) -> Topology:
        """The mask of each sparse layer; layers that have all their weights are not in it."""
        return self._network.topology

    @property
    def choices(self) -> Choices | None:
        """Which way each layer is computed, and why; None if all weights are masked."""
        return self._network.choices

    @property
    def digest(self) -> str:
        """A fingerprint of the topology."""
        return digest(self.topology)

    @property
    def sparsity(self) -> float:
        """The share of zeros over all layers that the distribution saw."""
        return overall_sparsity(self.statistics())

    @property
    def itop_rate(self) -> float:
        """The share of these layers' weights that have ever been active (ITOP's R_s)."""
        return itop_rate(self.statistics())

    def statistics(self) -> list[LayerStatistics]:
        """Returns one row per layer: its shape, non-zeros, and weights that were ever active."""
        return self._network.statistics()

    def __str__(self) -> str:
        return table(self.statistics())

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that a resumed run needs, as tensors and plain values."""
        return {
            "steps": self.steps,
            "generator": self._generator.get_state(),
            "threshold": self._explorer.threshold,
            "gradients": self._record.state_dict(),
            **self._network.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict` into a sparsifier of the same network.

        Load the states of the network and the optimizer first; they may come from another backend.
        But make the sparsifier before all of that, or with the topology of the state: see
        docs/loops.md.
        """
        masks = self._network.saved_masks(state)
        self._watch.check_order(self._network.weights, masks)
        self._watch.check(self._network.weights, masks)
        self._network.load_state_dict(state, masks)
        self._watch.settle(self._network.weights)
        self.steps = int(state["steps"])
        self._explorer.threshold = state.get("threshold", self._explorer.threshold)
        self._generator.set_state(state["generator"].cpu())
        devices = {weight.name: weight.parameter.device for weight in self._network.weights}
        self._record.load_state_dict(state["gradients"], devices)
        self._stepped = False
        self._announce()

    def __getstate__(self) -> dict[str, Any]:
        # Hooks belong to the optimizer that holds them, and generators can't be copied: the copy
        # registers its own hooks on its own optimizer.
        return {
            **self.__dict__,
            "_generator": self._generator.get_state(),
            "_hooks": bool(self._hooks),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._generator = torch.Generator()
        self._generator.set_state(state["_generator"])
        self._hooks = self._register_hooks() if state["_hooks"] else []

    def detach(self) -> None:
        """Releases the optimizer: the weights stay as they are, and nothing holds them any longer.

        Layers that were replaced by sparse ones become dense ones again.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._network.detach()

    # ---- inside

    @property
    def _explores_soon(self) -> bool:
        """Whether an exploration or a pruning will look at the gradients of the coming step."""
        window = range(self.steps + 1, self.steps + 1 + self._gradient_batches)
        if self._explorer.prune_score.needs and any(self._target(s) is not None for s in window):
            return True
        return any(self._rate(step) > 0 for step in window)

    def _announce(self) -> None:
        """Has layers that compute only with active weights get the dense gradient when needed."""
        self._network.announce_gradients(self._record.needs(self._explores_soon))

    def _register_hooks(self) -> list[RemovableHandle]:
        return [
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
        ]

    def _before_step(
        self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Masks the gradients; those that a closure computes within the step, each time it does."""
        self._watch.check(self._network.weights)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self.mask_gradients()
            self._network.bring_reserves_back()
            return None

        def masked_closure() -> Any:
            self._network.set_reserves_aside()
            loss = closure()
            self.mask_gradients()
            self._network.bring_reserves_back()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": masked_closure}
        return (args[0], masked_closure, *args[2:]), kwargs

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        # Fused optimizers see an overflow (`GradScaler` tells them here) only inside their step.
        if getattr(optimizer, "found_inf", None):
            self._record.drop()
        else:
            self._record.commit()
            self._stepped = True
        self._network.hold()
        self._watch.settle(self._network.weights)

    def _rate(self, step: int) -> float:
        return self._exploration(step) if self._exploration is not None else 0.0

    def _target(self, step: int) -> float | None:
        return self._pruning(step) if self._pruning is not None else None

    def _require_gradients(self) -> None:
        if self._record.missing:
            raise FreeTicketsError(
                "no dense gradient to grow by: call keep_gradients() before the forward pass of "
                "the step that precedes explore(), and zero_grad() after it"
            )

    def _views(self) -> list[WeightView]:
        return [
            WeightView(
                weight.name,
                weight.tensor,
                weight.mask,
                self._record.gradient(weight.name),
                self._record.momentum(weight.name),
                self._generator,
                weight.ever_active,
            )
            for weight in self._network.weights
        ]
