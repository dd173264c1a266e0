"""The sparsifier: keeps a network sparse in anyone's training loop, and explores its topology."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..errors import FreeTicketsError
from .backend import Backend, make_engine
from .distribution import DEFAULT_SPARSITY, Distribution, Sparsity
from .exploration import Explorer, GradientRecord, Redistribution, Scope
from .layers import Selectors, inner_optimizer, select_weights
from .named import sparse_method
from .network import LayerStatistics, SparseNetwork, itop_rate, overall_sparsity, table
from .schedule import Exploration, check_rate
from .score import SCORES, GrowthLike, ScoreLike, WeightView
from .structure import Unstructured, check_options, parse_structure
from .topology import Topology, check_topology, digest, given_topology
from .weight import Watch

if TYPE_CHECKING:
    from ..kernels.choices import Choices


class Sparsifier:
    """Keeps any network sparse while any loop trains it, with any `torch.optim` optimizer.

    Two lines around a loop are all it takes: create it after the optimizer, and call `step` after
    `optimizer.step()`. The defaults are the paper's: an ERK topology, explored as RigL does (prune
    by magnitude, grow by gradient). Gradients are masked just before each optimizer step, weights
    and optimizer state after it, so nothing outside the topology ever moves; a layer's number of
    active weights never changes, unless you ask for it (`pruning`, `redistribute`).
    `Sparsifier.named` makes the sparse trainings of the literature.

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
        structure: Where the active weights of a layer may lie, at all times: "unstructured"; "2:4"
            or another N:M: N of each M consecutive inputs of an output; "block-4x4" or other
            sizes: whole blocks of outputs and inputs; "fan-in": equally many inputs for each output
            (SRigL). Counts are rounded to what it can have. N:M sets the sparsity of all layers,
            whatever the distribution: any other value but the default is refused. A layer whose
            shape does not fit (3 input channels, 10 classes) stays dense; "fan-in" fits all.
        topology: Masks to start from, by the names of weights, instead of random ones; a weight
            without a mask stays dense. The "topology" of a `state_dict` will do; "given" takes over
            the zeros that the network has.
        exploration: When to explore and at which rate: an `Exploration`, any function from a step's
            number to a rate (0: do not explore), or None for a static topology. If not given, half
            of the active weights every 100 steps, to the very end: where the length is known, stop
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
            train out of the network's sight; an exploration, whatever its rate, then chooses the
            strongest of all weights again (Top-KAST, by magnitude).
        regrown_value: The value of a weight that is pruned and grown again in one exploration:
            "zero", or "keep" (as RigL does).
        gradient_batches: Growth looks at the mean gradient of this many last steps, as far as they
            lie after the exploration before.
        include: Only these weights become sparse (patterns or module types).
        exclude: These weights stay dense (patterns or module types).
        embeddings: Whether embedding tables become sparse too.
        backend: "auto": the network keeps its layers, parameters, gradients and `state_dict`; where
            that is faster, linear layers and convolutions (float32, on the CPU) compute only with
            active weights, or in Winograd's way. "masked": PyTorch's dense kernels and weights with
            zeros, on any device. "sparse": these layers are replaced, in place, by ones that hold
            only active weights, as a parameter `values`: less memory, and less time in linear
            layers. Wrap the network (for several processes, by `torch.compile`) and hand its
            parameters out after this; the optimizer must update each weight by itself, and
            `pruning`, `redistribute` and `reserve`, which change how many train, can't be had.
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
        sparsity: Sparsity = DEFAULT_SPARSITY,
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
        include: Selectors | None = None,
        exclude: Selectors = (),
        embeddings: bool = False,
        backend: Backend = "auto",
        seed: int = 0,
    ) -> None:
        check_rate("reserve", reserve)
        if reserve and (pruning is not None or redistribute is not None):
            raise FreeTicketsError("reserve goes with neither pruning nor redistribute: drop one")
        if regrown_value not in ("zero", "keep"):
            raise FreeTicketsError(f"regrown_value must be 'zero' or 'keep', not {regrown_value!r}")
        if gradient_batches < 1:
            raise FreeTicketsError(f"gradient_batches must be at least 1, not {gradient_batches}")
        self.optimizer = optimizer = inner_optimizer(optimizer)
        self.steps = 0
        self._exploration, self._pruning = exploration, pruning
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
        self._record = GradientRecord(() if reserve else self._explorer.needs, gradient_batches)
        self._generator = torch.Generator().manual_seed(seed)

        weights = select_weights(model, include=include, exclude=exclude, embeddings=embeddings)
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        if topology is None:
            counts = self._structure.allocate(shapes, sparsity, distribution)
            masks = self._structure.start(weights, counts, self._generator, strongest=reserve > 0)
        else:
            given = given_topology(weights, topology) if isinstance(topology, str) else topology
            masks = check_topology(given, shapes)
        self._watch = Watch(weights, masks, chosen=topology is not None)
        masked_only = {"pruning": pruning, "redistribute": redistribute, "reserve": reserve}
        engine = partial(
            make_engine, backend, model, optimizer,
            unsuited=next((name for name, value in masked_only.items() if value), None),
            owned=self._owns_network,
        )  # fmt: skip
        self._network = SparseNetwork(
            optimizer, weights, masks, self._structure, engine, reserve, self._generator
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
        """Counts a training step, and prunes and explores if due; call it after `optimizer.step()`.

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
            self._record.taken = None
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
    def prune(self, sparsity: Sparsity) -> None:
        """Prunes to an overall sparsity, for good. `step` calls this by schedule.

        Each layer keeps its strongest weights, as many as the distribution gives it; with
        `prune_scope="global"` one threshold is found for all layers. Needs masked weights.
        """
        if self._reserve:
            raise FreeTicketsError("a network with a reserve can't be pruned: leave reserve at 0")
        if not isinstance(self._structure, Unstructured):
            raise FreeTicketsError(
                f"structure '{self._structure}' can't be pruned: make a sparser Sparsifier"
            )
        layerwise = isinstance(sparsity, Mapping) or self._explorer.layerwise
        counts = self._network.counts_at(sparsity, self._distribution if layerwise else None)
        self._network.mask_all()
        if self._explorer.prune_score.needs:
            self._require_gradients()
            self._record.open = False
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
        self._record.open = False

    @torch.no_grad()
    def set_topology(self, topology: Mapping[str, Tensor]) -> None:
        """Takes another topology; weights outside it, and their optimizer state, become zero.

        Those inside keep what the network has there: new ones start at zero, unless just loaded.
        Layers that hold only active weights keep their number.

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

        The optimizer's step does so itself; call it before it to clip gradients by norm, or log.
        """
        if self._record.taken is None:
            self._record.take(self._network.weights, self._explores_soon)
        for weight in self._network.weights:
            weight.mask_gradient()

    def keep_gradients(self) -> None:
        """Records the coming step's dense gradients for `explore`; call before its forward pass."""
        self._record.keep = True
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

        Load the states of the network and the optimizer first (of any backend), but make the
        sparsifier before all of that, or with the topology of the state: see docs/loops.md.
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
        # Generators can't be copied, and a copy registers its own hooks on its own optimizer.
        generator = self._generator.get_state()
        return {**self.__dict__, "_generator": generator, "_hooks": bool(self._hooks)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._generator = torch.Generator()
        self._generator.set_state(state["_generator"])
        self._hooks = self._register_hooks() if state["_hooks"] else []

    def detach(self) -> None:
        """Releases the network and its optimizer; layers that were replaced are dense again."""
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
        wanted = self._record.needs(self._explores_soon)
        for weight in self._network.weights:
            weight.announce_gradient(wanted)

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
            self._mask_and_bring_back()
            return None

        def masked_closure() -> Any:
            for weight in self._network.reserved:
                weight.set_aside()
            loss = closure()
            self._mask_and_bring_back()
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": masked_closure}
        return (args[0], masked_closure, *args[2:]), kwargs

    def _mask_and_bring_back(self) -> None:
        self.mask_gradients()
        for weight in self._network.reserved:
            weight.bring_back()

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        # Fused optimizers see an overflow (`GradScaler` tells them here) only inside their step.
        if getattr(optimizer, "found_inf", None):
            self._record.taken = None
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
                "the step before explore(), and zero_grad() after it"
            )

    def _views(self) -> list[WeightView]:
        return [
            WeightView(
                w.name, w.tensor, w.mask, *self._record.of(w.name), self._generator, w.ever_active
            )
            for w in self._network.weights
        ]
