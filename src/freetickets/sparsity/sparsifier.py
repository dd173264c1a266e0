"""The sparsifier: keeps a network sparse in anyone's training loop, and explores its topology."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..errors import FreeTicketsError, check_known
from .distribution import DEFAULT_SPARSITY, Distribution, Sparsity, allocate, check_sparsity
from .exploration import Explorer, GradientRecord, Redistribution, Scope
from .layers import Selectors, inner_optimizer, select_weights
from .named import sparse_method
from .network import Backend, HeldNetwork, find_lost
from .schedule import Exploration, check_rate
from .score import SCORES, GrowthLike, ScoreLike, WeightView
from .structure import Unstructured, check_masks, check_options, parse_structure
from .topology import Topology, check_topology, given_topology, largest, pack_mask, unpack_mask
from .weight import MaskedWeight, zero_outside


class Sparsifier(HeldNetwork):
    """Keeps any network sparse while any loop trains it, with any `torch.optim` optimizer.

    Two lines around a loop are all it takes: create it after the optimizer, and call `step` after
    `optimizer.step()`. The defaults are the paper's: an ERK topology, explored as RigL does (prune
    by magnitude, grow by gradient). Gradients are masked just before each optimizer step, weights
    and optimizer state after it, so nothing outside the topology ever moves; a layer's number of
    active weights never changes, unless you ask for that (`pruning`, `redistribute`).
    `Sparsifier.named` builds the sparse trainings of the literature.

    Works with gradient accumulation, autocast and `GradScaler` (a skipped step does not count),
    `torch.compile`, `state_dict` and `copy.deepcopy`. To clip gradients by their norm, call
    `mask_gradients` before clipping. With an optimizer that calls a closure several times per step
    (LBFGS), growth uses the gradient of the first call.

    Args:
        model: The network. Linear, convolutional, recurrent and attention weights become sparse.
        optimizer: Its optimizer.
        sparsity: The share of zeros over all sparse layers, or a map from name patterns to
            sparsities.
        distribution: How the active weights are divided among the layers: "erk", "er", "uniform",
            "uniform-dense-first", or a function of shapes and sparsity.
        structure: Where the active weights of a layer may lie: "unstructured"; "2:4" or another
            N:M: N of every M consecutive inputs of an output, which sets the sparsity itself;
            "block-4x4" or other sizes: whole blocks of outputs and inputs; "fan-in": equally many
            inputs for each output (SRigL). A layer whose shape does not fit stays dense.
        topology: Masks to start from, by weight name, instead of random ones; a weight without a
            mask stays dense. The "topology" of a `state_dict` will do; "given" keeps the zeros that
            the network has.
        exploration: When to explore and at which rate: an `Exploration`, any function from a step's
            number to a rate (0: do not explore), or None for a static topology. If the length is
            known, stop some hundred steps before the end, or let the rate fall (`schedule`).
        pruning: When to prune for good and to which sparsity: a `GradualPruning` (start it at its
            initial sparsity), or any function from a step's number to a sparsity or None. An
            exploration of the same step follows the pruning (GraNet).
        prune: The score by which active weights are kept: a name of `SCORES` or a function.
        grow: The score by which inactive weights are chosen: a name, a function, or a mixture such
            as {"gradient": 0.5, "random": 0.5}.
        prune_scope: "layer": each layer loses the same share; "global": the weakest of the whole
            network go; "threshold": weights below a threshold, which follows the rate, go (DSR).
        redistribute: How many weights a layer grows. None: as many as it lost, so its count stays;
            "momentum": in proportion to the mean running gradient of its active weights (SNFS);
            "survivors": in proportion to the weights that survived (DSR). The total stays.
        reserve: This share of a layer, its strongest inactive weights, trains unseen by the
            network; an exploration, whatever its rate, chooses the strongest of all (Top-KAST).
        regrown_value: The value of a weight that is pruned and grown again in one exploration:
            "zero", or "keep" (as RigL does).
        gradient_batches: Growth uses the mean gradient over this many last steps, but only those
            since the previous exploration.
        include: Only these weights become sparse (patterns or module types).
        exclude: These weights stay dense (patterns or module types).
        embeddings: Whether embedding tables become sparse too.
        backend: "auto": the network keeps its layers, parameters, gradients and `state_dict`; where
            that is faster, linear layers and convolutions (float32, on the CPU) skip the zeros.
            "masked": PyTorch's dense kernels, on any device. "sparse": these layers are replaced by
            ones that hold only active weights, as a parameter `values`. Wrap the network and hand
            out its parameters only after this; the optimizer must update each weight by itself, and
            `pruning`, `redistribute` and `reserve` are not available.
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
        check_known("regrown_value", regrown_value, ["zero", "keep"])
        if gradient_batches < 1:
            raise FreeTicketsError(f"gradient_batches must be at least 1, not {gradient_batches}")
        optimizer = inner_optimizer(optimizer)
        self.steps = 0
        self._exploration = Exploration(rate=0.0) if exploration is None else exploration
        self._pruning = pruning
        self._distribution = distribution
        self._structure = parse_structure(structure)
        mixture = isinstance(grow, Mapping) and len(grow) > 1
        check_options(
            structure, pruning=pruning is not None, prune_scope=prune_scope,
            redistribute=redistribute, reserve=reserve, mixture=mixture,
        )  # fmt: skip
        self._explorer = Explorer(prune, grow, prune_scope, redistribute, self._structure)
        self._keep_regrown = regrown_value == "keep"
        self._record = GradientRecord(() if reserve else self._explorer.needs, gradient_batches)
        generator = torch.Generator().manual_seed(seed)

        weights = select_weights(model, include=include, exclude=exclude, embeddings=embeddings)
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        self._lost: Topology = {}  # where weights are ended by mistake, perhaps
        if topology is None:
            counts = self._structure.allocate(shapes, sparsity, distribution)
            masks = {
                name: largest(weight, counts[name], generator)
                if reserve
                else self._structure.random(weight.shape, counts[name], generator)
                for name, weight in weights.items()
                if counts[name] < weight.numel()
            }
            self._lost = find_lost(weights, masks)
        else:
            given = given_topology(weights, topology) if isinstance(topology, str) else topology
            masks = check_topology(given, shapes)
        # A layer that can't have the structure is as good as excluded.
        weights = {n: w for n, w in weights.items() if self._structure.fits(w.shape)}
        optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if odd := [name for name, weight in weights.items() if id(weight) not in optimized]:
            raise FreeTicketsError(
                f"the optimizer does not train {odd[0]!r}: pass one that does, or exclude the layer"
            )
        check_masks(self._structure, masks)
        masked_only = {"pruning": pruning, "redistribute": redistribute, "reserve": reserve}
        unsuited = next((name for name, value in masked_only.items() if value), None)
        super().__init__(
            model, optimizer, weights, masks,
            backend=backend, unsuited=unsuited, reserve=reserve, generator=generator,
        )  # fmt: skip
        if pruning is not None:
            self._mask(self._dense)
        self._stepped = False  # whether the optimizer has taken a step since the last `step()`
        self._announce()
        self._hooks = self._register_hooks()

    @classmethod
    def named(
        cls, name: str, model: nn.Module, optimizer: Optimizer, sparsity: float = DEFAULT_SPARSITY,
        *, steps: int, rate: float = 0.5, interval: int | None = None, **overrides: Any,
    ) -> Sparsifier:  # fmt: skip
        """Makes the sparsifier of a named method, for a training of `steps` steps.

        The names are those of `SPARSE_METHODS`: "set", "rigl", ...; `sparsity` is reached at the
        end. For `rate` and `interval` see `SparseParts.options`; other arguments of the
        `Sparsifier` may be overridden.

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

        A step that is `skipped` on purpose, as RigL does when it explores, still counts.
        Returns whether the topology was pruned or explored.
        """
        if skipped and not self._stepped:
            self.mask_gradients()
            self._record.commit()
        elif not self._stepped:
            self._record.taken = None
            return False
        self._stepped = False
        self.steps += 1
        sparsity, rate = self._target(self.steps), self._exploration(self.steps)
        if sparsity is not None:
            self.prune(sparsity)
        if rate > 0:
            self.explore(rate)
        self._announce()
        return sparsity is not None or rate > 0

    @torch.no_grad()
    def prune(self, sparsity: Sparsity) -> None:
        """Prunes to an overall sparsity, for good. `step` calls this on schedule.

        Each layer keeps as many of its strongest weights as the distribution gives it; with
        `prune_scope="global"` one threshold is found for all layers. Needs masked weights.
        """
        if self._reserve:
            raise FreeTicketsError("a network with a reserve can't be pruned: leave reserve at 0")
        if not isinstance(self._structure, Unstructured):
            raise FreeTicketsError(f"structure '{self._structure}' can't be pruned: start sparser")
        counts: list[int] | int
        if isinstance(sparsity, Mapping) or self._explorer.layerwise:
            counts = list(allocate(self._shapes, sparsity, self._distribution).values())
        else:
            check_sparsity(sparsity)
            counts = round((1 - sparsity) * sum(map(math.prod, self._shapes.values())))
        total, rows = counts if isinstance(counts, int) else sum(counts), self.statistics()
        # A weight more in a layer may come of rounding.
        if total > sum(row.nonzeros for row in rows) + len(rows):
            raise FreeTicketsError(
                f"can't prune to sparsity {sparsity}, the network has {self.sparsity:.4g} already: "
                "give the Sparsifier a lower sparsity to start from"
            )
        if self._is_compressed:
            raise FreeTicketsError("can't prune a compressed layer: use backend='auto'")
        self._mask(self._dense)
        if self._explorer.prune_score.needs:
            self._record.require()
            self._record.open = False
        masks = self._explorer.prune(self._views(), counts)
        self._rewire(masks, masks, masks)

    @torch.no_grad()
    def explore(self, rate: float) -> None:
        """Prunes a share `rate` of the active weights and grows as many.

        `step` calls this on schedule. Called by hand with gradient growth (an escape, say), it uses
        the dense gradient of the last step, if `keep_gradients` was called before that step.
        """
        check_rate("rate", rate)
        if not self._weights:
            return
        if self._reserve:
            scores = [SCORES["magnitude"](view) for view in self._views()]
            for weight, score in zip(self._reserved, scores, strict=True):
                weight.choose(self.optimizer, score, self._generator)
            self._forget_past_steps()
            return
        self._record.require()
        # All is chosen before anything changes: a score that is refused leaves the network whole.
        kept, masks = self._explorer.explore(self._views(), rate)
        self._rewire(masks, masks if self._keep_regrown else kept, kept)
        self._record.open = False

    @torch.no_grad()
    def set_topology(self, topology: Mapping[str, Tensor]) -> None:
        """Switches to another topology; weights outside it, and their optimizer state, become zero.

        Weights inside it keep their values: new ones start at zero, unless just loaded. The
        topology has a mask for each weight that is to change; a mask that is all True makes its
        weight dense. Layers that hold only active weights keep their number of them.
        """
        masks = check_topology(topology, self._shapes)
        check_masks(self._structure, masks)
        if self._reserve:
            raise FreeTicketsError("a network with a reserve chooses its topology by itself")
        self._check_counts(masks)
        self._mask(name for name, mask in masks.items() if not mask.all())
        for weight in self._weights:
            if weight.name in masks:
                mask = masks[weight.name].to(weight.parameter.device)
                weight.rewire(self.optimizer, mask, mask, mask)
        full = [weight for weight in self._weights if weight.nonzeros == weight.mask.numel()]
        self._dense |= {weight.name: weight.parameter for weight in full}
        self._weights = [weight for weight in self._weights if weight not in full]
        self._forget_past_steps()
        self._announce()

    @torch.no_grad()
    def mask_gradients(self) -> None:
        """Sets the gradients of inactive weights to zero, recording the dense ones if needed.

        The optimizer's step does this itself; call it earlier to clip gradients by norm, or to log
        them.
        """
        if self._record.taken is None:
            self._record.take(self._weights, self._explores_soon)
        zero_outside(pair for weight in self._weights for pair in weight.gradients())

    def keep_gradients(self) -> None:
        """Records the coming step's dense gradients for `explore`; call before its forward pass."""
        self._record.keep = True
        self._announce()

    @property
    def due(self) -> bool:
        """Whether the coming step ends with an exploration."""
        return self._exploration(self.steps + 1) > 0

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that a resumed run needs, as tensors and plain values."""
        return {
            "steps": self.steps,
            "generator": self._generator.get_state(),
            "threshold": self._explorer.threshold,
            "gradients": self._record.state_dict(),
            "topology": {w.name: pack_mask(w.mask) for w in self._weights},
            "ever_active": {w.name: pack_mask(w.ever_active) for w in self._weights},
            "reserve": {weight.name: weight.reserve_state() for weight in self._reserved},
            "choices": self.choices.state_dict() if self.choices is not None else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict` into a sparsifier of the same network.

        Load the states of the network and the optimizer (from any backend) first, but make the
        sparsifier before any of that, or with the topology of the state: see docs/loops.md.
        """
        masks = self._saved_masks(state)
        for weight in self._weights:
            fired = unpack_mask(state["ever_active"][weight.name], weight.mask.shape)
            weight.ever_active.copy_(fired)
            weight.restore(masks[weight.name])
            weight.adapt(self.optimizer)
        for reserved in self._reserved:
            reserved.load_reserve_state(state["reserve"][reserved.name])
        if self.choices is not None:
            self.choices.load_state_dict(state.get("choices", {}))
        self._hold()
        self.steps = int(state["steps"])
        self._explorer.threshold = state.get("threshold", self._explorer.threshold)
        self._generator.set_state(state["generator"].cpu())
        devices = {weight.name: weight.parameter.device for weight in self._weights}
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
        parameters = self._engine.remove(self.optimizer) if self._engine is not None else {}
        self._engine = None
        for index, old in enumerate(self._weights):
            if old.name in parameters:
                self._weights[index] = MaskedWeight(old.name, parameters[old.name], old.mask)
                self._weights[index].ever_active = old.ever_active

    # ---- inside

    def _saved_masks(self, state: Mapping[str, Any]) -> Topology:
        if not self._is_compressed:  # it may have been saved after a pruning
            self._mask(self._dense.keys() & state["topology"].keys())
        mine = {w.name: math.ceil(w.mask.numel() / 8) for w in self._weights}
        theirs = {name: packed.numel() for name, packed in state["topology"].items()}
        odd = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
        if odd:
            raise FreeTicketsError(f"the saved topology is of another network: see {odd[0]!r}")
        if any(weight.name not in state.get("reserve", {}) for weight in self._reserved):
            raise FreeTicketsError("the saved run has no reserve: leave reserve at 0 to resume it")
        masks = {n: unpack_mask(packed, self._shapes[n]) for n, packed in state["topology"].items()}
        check_masks(self._structure, masks)
        self._check_counts(masks)
        for weight in self._weights:
            gone = self._lost.get(weight.name, torch.tensor(False)) & masks[weight.name].cpu()
            if gone.any() and not weight.tensor[gone.to(weight.parameter.device)].any():
                raise FreeTicketsError(
                    "the weights were loaded before the Sparsifier was made, which set those "
                    "outside its own topology to zero: load the network and the optimizer again, "
                    "and this state last; or make it with topology=state['topology']"
                )
        for weight in self._weights:
            weight.check(masks[weight.name])
        return masks

    # ---- inside: steps and gradients

    @property
    def _explores_soon(self) -> bool:
        prunes_by_gradient = bool(self._explorer.prune_score.needs)
        return any(
            self._exploration(step) > 0 or (prunes_by_gradient and self._target(step) is not None)
            for step in range(self.steps + 1, self.steps + 1 + self._record.window)
        )

    def _target(self, step: int) -> float | None:
        return self._pruning(step) if self._pruning is not None else None

    def _announce(self) -> None:
        wanted = self._record.needs(self._explores_soon)
        for weight in self._weights:
            weight.announce_gradient(wanted)

    def _views(self) -> list[WeightView]:
        of, source = self._record.of, self._generator
        return [
            WeightView(w.name, w.tensor, w.mask, *of(w.name), source, w.ever_active)
            for w in self._weights
        ]

    def _register_hooks(self) -> list[RemovableHandle]:
        before = self.optimizer.register_step_pre_hook(self._before_step)
        return [before, self.optimizer.register_step_post_hook(self._after_step)]

    def _before_step(
        self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Masks the gradients; those that a closure computes within the step, each time it does."""
        for weight in self._weights:
            weight.check()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)

        def masked_closure() -> Any:
            for weight in self._reserved:
                weight.set_aside()
            loss = None if closure is None else closure()
            self.mask_gradients()
            for weight in self._reserved:
                weight.bring_back()
            return loss

        if closure is None:
            masked_closure()
            return None
        if "closure" in kwargs:
            return args, {**kwargs, "closure": masked_closure}
        return (args[0], masked_closure, *args[2:]), kwargs

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        # Fused optimizers see an overflow (`GradScaler` tells them here) only inside their step.
        if getattr(optimizer, "found_inf", None):
            self._record.taken = None
        else:
            self._record.commit()
            self._stepped = True
        self._hold()
