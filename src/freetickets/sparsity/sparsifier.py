"""The sparsifier: keeps a network sparse in anyone's training loop, and explores its topology."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import LBFGS, Optimizer
from torch.utils.hooks import RemovableHandle

from ..errors import FreeTicketsError
from .backend import Backend, make_engine
from .distribution import Distribution, allocate
from .exploration import grown, survivors
from .gradients import GradientRecord
from .layers import Selector, select_weights
from .schedule import Exploration, check_rate
from .score import GrowthLike, ScoreLike, WeightView, as_mixture, as_score
from .statistics import LayerStatistics, itop_rate, overall_sparsity, table
from .topology import Topology, digest, pack_mask, random_mask, unpack_mask
from .weight import CompressedWeight, MaskedWeight, SparseWeight


class Sparsifier:
    """Keeps any network sparse while any loop trains it, with any `torch.optim` optimizer.

    Two lines around an existing loop are all it takes: create it after the optimizer, and call
    `step` after `optimizer.step()`. The defaults are the paper's: an ERK topology, explored as RigL
    does (prune by magnitude, grow by gradient). Gradients are masked just before each optimizer
    step, the weights and the optimizer's state after it, so nothing outside the topology ever
    moves; the number of non-zeros of a layer never changes.

    Works with gradient accumulation, autocast and `GradScaler` (a skipped step does not count),
    `torch.compile`, `state_dict` and `copy.deepcopy`. To clip gradients by their norm, call
    `mask_gradients` before clipping. An optimizer that calls a closure several times a step (LBFGS)
    grows by the gradient of the first call.

    Args:
        model: The network. Linear, convolutional, recurrent and attention weights become sparse.
        optimizer: Its optimizer.
        sparsity: The share of zeros over all sparse layers, or a map from name patterns to
            sparsities.
        distribution: How the non-zeros are shared out: "erk", "er", "uniform",
            "uniform-dense-first", or a function of shapes and sparsity.
        exploration: When to explore and at which rate: an `Exploration`, any function from a step's
            number to a rate (0: do not explore), or None for a static topology.
        prune: The score by which active weights are kept: a name of `SCORES` or a function.
        grow: The score by which inactive weights are chosen: a name, a function, or a mixture such
            as {"gradient": 0.5, "random": 0.5}.
        prune_scope: "layer": each layer loses the same share; "global": the weakest of the whole
            network go. Each layer grows as many as it lost, so its count stays either way.
        regrown_value: The value of a weight that is pruned and grown again in one exploration:
            "zero", or "keep" (as RigL does).
        gradient_batches: Growth looks at the mean gradient of this many last steps, as far as they
            lie after the exploration before.
        include: Only these weights become sparse (patterns or module types).
        exclude: These weights stay dense (patterns or module types).
        embeddings: Whether embedding tables become sparse too.
        backend: "masked": PyTorch's dense kernels and weights with zeros, on any device. "sparse":
            layers are replaced, in place, by ones that hold and compute only the active weights
            (linear layers and convolutions in float32 on the CPU; others are masked). "auto": as
            "sparse" where that works, but each direction of a layer runs dense if that is faster
            here, which is measured in the first steps. Wrap a network for several processes or
            with `torch.compile` after this. An optimizer that looks at more than one weight at a
            time (LBFGS, Muon, one of your own) gets masked weights from "auto".
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
        sparsity: float | Mapping[str, float] = 0.8,
        *,
        distribution: Distribution = "erk",
        exploration: Callable[[int], float] | None = Exploration(),  # noqa: B008
        prune: ScoreLike = "magnitude",
        grow: GrowthLike = "gradient",
        prune_scope: Literal["layer", "global"] = "layer",
        regrown_value: Literal["zero", "keep"] = "zero",
        gradient_batches: int = 1,
        include: Selector | Sequence[Selector] | None = None,
        exclude: Selector | Sequence[Selector] = (),
        embeddings: bool = False,
        backend: Backend = "auto",
        seed: int = 0,
    ) -> None:
        if prune_scope not in ("layer", "global"):
            raise FreeTicketsError(f"prune_scope must be 'layer' or 'global', not {prune_scope!r}")
        if regrown_value not in ("zero", "keep"):
            raise FreeTicketsError(f"regrown_value must be 'zero' or 'keep', not {regrown_value!r}")
        if gradient_batches < 1:
            raise FreeTicketsError(f"gradient_batches must be at least 1, not {gradient_batches}")
        self.optimizer = optimizer
        self.steps = 0
        self._exploration = exploration
        self._prune = as_score(prune)
        self._grow = as_mixture(grow)
        self._global = prune_scope == "global"
        self._keep_regrown = regrown_value == "keep"
        self._gradient_batches = gradient_batches
        scores = [self._prune, *(score for score, _ in self._grow)]
        needs = frozenset().union(*(score.needs for score in scores))
        self._record = GradientRecord(needs, window=gradient_batches)
        self._generator = torch.Generator().manual_seed(seed)

        weights = select_weights(model, include=include, exclude=exclude, embeddings=embeddings)
        _check_optimized(weights, optimizer)
        shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        counts = allocate(shapes, sparsity, distribution)
        # A layer that gets all its weights needs no mask: exploration can then never damage it.
        self._shapes = shapes
        masks = {
            name: random_mask(weight.shape, counts[name], self._generator)
            for name, weight in weights.items()
            if counts[name] < weight.numel()
        }
        _check_alone(optimizer, [weights[name] for name in masks])
        self._engine = make_engine(backend, model, optimizer, masks)
        self._sparse: list[SparseWeight] = [
            CompressedWeight(name, self._engine.layers[name])
            if self._engine is not None and name in self._engine.layers
            else MaskedWeight(name, weights[name], mask)
            for name, mask in masks.items()
        ]
        self._stepped = False  # whether the optimizer has taken a step since the last `step()`
        self._hold_all()
        self._announce()
        self._hooks = self._register_hooks()

    # ---- what a loop calls

    def step(self, *, skipped: bool = False) -> bool:
        """Counts a training step and explores if one is due. Call it after `optimizer.step()`.

        A step that the optimizer did not take (`GradScaler` found an overflow, or gradients are
        still being accumulated) does not count.

        Args:
            skipped: The optimizer's step was left out on purpose, as RigL does when it explores; it
                counts all the same.

        Returns:
            Whether the topology was explored.
        """
        if skipped and not self._stepped:
            self.mask_gradients()
            self._record.commit()
        elif not self._stepped:
            self._record.drop()
            return False
        self._stepped = False
        self.steps += 1
        rate = self._rate(self.steps)
        if rate > 0:
            self.explore(rate)
        self._announce()
        return rate > 0

    @torch.no_grad()
    def explore(self, rate: float) -> None:
        """Prunes a share `rate` of each layer's active weights and grows as many.

        `step` calls this by schedule. Called by hand with gradient growth (an escape, say), it uses
        the dense gradient of the last step, if `keep_gradients` was called before that step.
        """
        check_rate("rate", rate)
        if not self._sparse:
            return
        if self._record.missing:
            raise FreeTicketsError(
                "no dense gradient to grow by: call keep_gradients() before the forward pass of "
                "the step that precedes explore(), and zero_grad() after it"
            )
        views = [self._view(weight) for weight in self._sparse]
        surviving = survivors(views, self._prune, rate, across_layers=self._global)
        # All is chosen before anything changes: a score that is refused leaves the network whole.
        masks = [
            grown(view, kept, self._grow, weight.nonzeros - int(kept.sum()))
            for weight, view, kept in zip(self._sparse, views, surviving, strict=True)
        ]
        for weight, kept, mask in zip(self._sparse, surviving, masks, strict=True):
            weights = mask if self._keep_regrown else kept
            weight.rewire(self.optimizer, mask, weights=weights, state=kept)
        if isinstance(self.optimizer, LBFGS):
            self.optimizer.state.clear()  # its past steps would revive pruned weights
        self._record.close()

    @torch.no_grad()
    def mask_gradients(self) -> None:
        """Sets the gradients of inactive weights to zero, recording the dense ones if needed.

        The optimizer's step does this by itself; call it earlier where the gradients are used
        before (clipping by norm, logging).
        """
        if not self._record.taken:
            self._record.take(self._sparse, self._explores_soon)
        for weight in self._sparse:
            weight.mask_gradient()

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
        return {weight.name: weight.mask for weight in self._sparse}

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
        """Returns one row a layer: its shape, non-zeros, and weights that were ever active."""
        counts = {w.name: (w.nonzeros, int(w.ever_active.sum())) for w in self._sparse}
        rows = []
        for name, shape in self._shapes.items():
            size = math.prod(shape)
            rows.append(LayerStatistics(name, shape, size, *counts.get(name, (size, size))))
        return rows

    def __str__(self) -> str:
        return table(self.statistics())

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that a resumed run needs, as tensors and plain values."""
        return {
            "steps": self.steps,
            "generator": self._generator.get_state(),
            "topology": {w.name: pack_mask(w.mask) for w in self._sparse},
            "ever_active": {w.name: pack_mask(w.ever_active) for w in self._sparse},
            "gradients": self._record.state_dict(),
            "choices": self._engine.choices.state_dict() if self._engine is not None else {},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict` into a sparsifier of the same network.

        Load the network's and the optimizer's first: then they may be of another backend.
        """
        mine = {w.name: math.ceil(w.mask.numel() / 8) for w in self._sparse}
        theirs = {name: packed.numel() for name, packed in state["topology"].items()}
        odd = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
        if odd:
            raise FreeTicketsError(
                f"the saved topology is of another network: see layer {odd[0]!r}"
            )
        for weight in self._sparse:
            shape = weight.mask.shape
            weight.ever_active.copy_(unpack_mask(state["ever_active"][weight.name], shape))
            weight.restore(unpack_mask(state["topology"][weight.name], shape))
            weight.adapt(self.optimizer)
        self.steps = int(state["steps"])
        self._generator.set_state(state["generator"].cpu())
        self._record.load_state_dict(
            state["gradients"], {w.name: w.parameter.device for w in self._sparse}
        )
        if self._engine is not None:
            self._engine.choices.load_state_dict(state.get("choices", {}))
        self._stepped = False
        self._hold_all()
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
        """Lets go of the optimizer: the weights stay as they are, nothing holds them any more.

        Layers that were replaced by sparse ones become dense ones again.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._engine is not None:
            parameters = self._engine.remove(self.optimizer)
            masks = {weight.name: weight for weight in self._sparse}
            self._sparse = [
                MaskedWeight(name, parameters[name], weight.mask) if name in parameters else weight
                for name, weight in masks.items()
            ]
            self._engine = None

    # ---- inside

    @property
    def _explores_soon(self) -> bool:
        """Whether an exploration will look at the gradients of the coming step."""
        window = range(self.steps + 1, self.steps + 1 + self._gradient_batches)
        return any(self._rate(step) > 0 for step in window)

    def _announce(self) -> None:
        """Has layers that compute only with active weights get the dense gradient when needed."""
        needed = self._record.needs(self._explores_soon)
        for weight in self._sparse:
            weight.announce_gradient(needed)

    def _register_hooks(self) -> list[RemovableHandle]:
        return [
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
        ]

    def _before_step(
        self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Masks the gradients; those that a closure computes within the step, each time it does."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self.mask_gradients()
            return None

        def masked_closure() -> Any:
            loss = closure()
            self.mask_gradients()
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
        self._hold_all()

    def _hold_all(self) -> None:
        with torch.no_grad():
            for weight in self._sparse:
                weight.hold(self.optimizer)

    def _rate(self, step: int) -> float:
        return self._exploration(step) if self._exploration is not None else 0.0

    def _view(self, weight: SparseWeight) -> WeightView:
        return WeightView(
            weight.name,
            weight.tensor,
            weight.mask,
            self._record.gradient(weight.name),
            self._record.momentum(weight.name),
            self._generator,
        )


def _check_alone(optimizer: Optimizer, weights: Sequence[nn.Parameter]) -> None:
    """Refuses a second sparsifier of one weight: it would be held to both topologies."""
    mine = {id(weight) for weight in weights}
    for hook in optimizer._optimizer_step_pre_hooks.values():
        other = getattr(hook, "__self__", None)
        if isinstance(other, Sparsifier):
            for weight in other._sparse:
                if id(weight.parameter) in mine:
                    raise FreeTicketsError(
                        f"another sparsifier holds {weight.name!r} already: detach() it first"
                    )


def _check_optimized(weights: Mapping[str, nn.Parameter], optimizer: Optimizer) -> None:
    optimized = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, weight in weights.items():
        if id(weight) not in optimized:
            raise FreeTicketsError(
                f"the optimizer does not train {name!r}: pass the optimizer that does, or exclude "
                "the layer"
            )
