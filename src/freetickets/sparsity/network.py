"""A network's weights that can be sparse: what holds them, which kernels compute with them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn, optim
from torch.optim import LBFGS, Optimizer

from ..errors import FreeTicketsError, check_known
from ..kernels.layers import SparseLayer
from ..kernels.library import available
from .layers import bare
from .topology import Topology, digest
from .weight import PRUNED, CompressedWeight, MaskedWeight, ReservedWeight, zero_outside

if TYPE_CHECKING:
    from ..kernels.choices import Choices
    from ..kernels.engine import Engine

Backend = Literal["auto", "sparse", "masked"]
# Optimizers that update each weight by itself. Others may look at a weight's shape, or at all
# weights at once, and would do something else with a one-dimensional tensor of active weights.
_ELEMENTWISE: tuple[type[Optimizer], ...] = (
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.Adagrad,
    optim.Adadelta, optim.RMSprop, optim.Rprop, optim.ASGD,
)  # fmt: skip
# Where half of the weights are active, skipping the others gains nothing.
_WORTHWHILE = 0.5


@dataclass(frozen=True)
class LayerStatistics:
    """One layer: its size, its active weights, and how many were ever active."""

    name: str
    shape: tuple[int, ...]
    weights: int
    nonzeros: int
    ever_active: int

    @property
    def sparsity(self) -> float:
        """The share of zeros."""
        return 1 - self.nonzeros / self.weights


class HeldNetwork:
    """The weights of a network that can be sparse, each held to its topology if it has one.

    `unsuited` is an option that only masked weights can serve, `reserve` the share of a weight that
    trains unseen; the generator breaks the ties of its choice.
    """

    _owns_network = False  # whether nobody else holds its parameters: then "auto" may replace them

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, weights: Mapping[str, nn.Parameter],
        masks: Topology, *, backend: str, unsuited: str | None, reserve: float,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.optimizer = optimizer
        self._reserve, self._generator = reserve, generator
        self._shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        # A layer that gets all its weights needs no mask: exploration can then never damage it.
        masks = {name: mask for name, mask in masks.items() if not mask.all()}
        self._dense = {name: weight for name, weight in weights.items() if name not in masks}
        self._check_alone(weights[name] for name in masks)
        self._engine = self._make_engine(backend, model, masks, unsuited)
        self._weights = [self._held(name, weights[name], mask) for name, mask in masks.items()]
        self._hold()

    @property
    def topology(self) -> Topology:
        """The mask of each sparse layer; layers that have all their weights are not in it."""
        return {weight.name: weight.mask for weight in self._weights}

    @property
    def choices(self) -> Choices | None:
        """Which way each layer is computed, and why; None if all weights are masked."""
        return self._engine.choices if self._engine is not None else None

    @property
    def digest(self) -> str:
        """A fingerprint of the topology."""
        return digest(self.topology)

    @property
    def sparsity(self) -> float:
        """The share of zeros over all layers that the distribution saw."""
        rows = self.statistics()
        return 1 - sum(row.nonzeros for row in rows) / sum(row.weights for row in rows)

    @property
    def itop_rate(self) -> float:
        """The share of these layers' weights that have ever been active (ITOP's R_s)."""
        rows = self.statistics()
        return sum(row.ever_active for row in rows) / sum(row.weights for row in rows)

    def statistics(self) -> list[LayerStatistics]:
        """Returns one row per layer: its shape, non-zeros, and weights that were ever active."""
        counts = {w.name: (w.nonzeros, int(w.ever_active.sum())) for w in self._weights}
        sizes = {name: math.prod(shape) for name, shape in self._shapes.items()}
        return [
            LayerStatistics(name, self._shapes[name], size, *counts.get(name, (size, size)))
            for name, size in sizes.items()
        ]

    def __str__(self) -> str:
        rows = self.statistics()
        width = max(5, *(len(row.name) for row in rows)) + 2
        lines = [f"{'layer':{width}s} {'shape':>16s} {'non-zeros':>12s}  sparsity  ever active"]
        lines += [
            f"{row.name:{width}s} {'x'.join(map(str, row.shape)):>16s} {row.nonzeros:12,d} "
            f"{row.sparsity:9.4f} {row.ever_active / row.weights:12.3f}"
            for row in rows
        ]
        return "\n".join([*lines, f"sparsity {self.sparsity:.4f}, ITOP rate {self.itop_rate:.4f}"])

    # ---- inside

    def _make_engine(
        self, backend: str, model: nn.Module, masks: Topology, unsuited: str | None
    ) -> Engine | None:
        """Makes the layers that skip zeros; None if every weight is to be masked."""
        check_known("backend", backend, get_args(Backend))
        if backend == "masked":
            return None
        obstacle = None
        if unsuited is not None:
            obstacle = f"it does not go with {unsuited}"
        elif not available():
            obstacle = "the kernels are not built: install a C++ compiler and freetickets again"
        elif bare(model) is not model:
            obstacle = "wrap the network (data-parallel, torch.compile) after making the Sparsifier"
        impossible = "backend 'sparse' is not possible:"
        if backend == "sparse" and obstacle is not None:
            raise FreeTicketsError(f"{impossible} {obstacle}, or use 'auto'")
        size = sum(mask.numel() for mask in masks.values())
        sparsity = 1 - sum(int(mask.sum()) for mask in masks.values()) / max(1, size)
        is_slow = unsuited is not None or not available() or sparsity < _WORTHWHILE
        if backend == "auto" and is_slow:
            return None
        from ..kernels.engine import Adoption, Compression

        is_replaceable = self._owns_network and type(self.optimizer) in _ELEMENTWISE
        engine: Engine
        if backend == "sparse" or (is_replaceable and obstacle is None):
            engine = Compression(model, self.optimizer, masks)
        else:
            engine = Adoption(bare(model), masks)
        if backend == "sparse" and not engine.layers:
            plain = "plain float32 Linear and Conv2d on the CPU"
            raise FreeTicketsError(f"{impossible} no layer can be sparse, only {plain}; use 'auto'")
        return engine if engine.layers else None

    def _held(self, name: str, parameter: nn.Parameter, mask: Tensor) -> MaskedWeight:
        layer = self._engine.layers.get(name) if self._engine is not None else None
        if isinstance(layer, SparseLayer):
            return CompressedWeight(name, layer)
        if self._reserve:
            return ReservedWeight(name, parameter, mask, self._reserve, self._generator)
        return MaskedWeight(name, parameter, mask, layer)

    @property
    def _reserved(self) -> list[ReservedWeight]:
        return [weight for weight in self._weights if isinstance(weight, ReservedWeight)]

    @property
    def _is_compressed(self) -> bool:
        return any(isinstance(weight, CompressedWeight) for weight in self._weights)

    @torch.no_grad()
    def _hold(self) -> None:
        zero_outside(pair for weight in self._weights for pair in weight.held(self.optimizer))

    def _rewire(
        self, masks: Sequence[Tensor], weights: Sequence[Tensor], state: Sequence[Tensor]
    ) -> None:
        for weight, *change in zip(self._weights, masks, weights, state, strict=True):
            weight.rewire(self.optimizer, *change)
        self._forget_past_steps()

    def _forget_past_steps(self) -> None:
        if isinstance(self.optimizer, LBFGS):
            self.optimizer.state.clear()  # its past steps would revive pruned weights

    def _mask(self, names: Iterable[str]) -> None:
        """Gives dense weights a mask, of all of them: they may be pruned then."""
        new = {name: self._dense[name] for name in names if name in self._dense}
        self._check_alone(new.values())
        found = {weight.name: weight for weight in self._weights}
        for name, weight in new.items():
            found[name] = MaskedWeight(name, weight, torch.ones(weight.shape, dtype=torch.bool))
            del self._dense[name]
        self._weights = [found[name] for name in self._shapes if name in found]

    def _check_alone(self, parameters: Iterable[nn.Parameter]) -> None:
        """Refuses a second sparsifier of one weight: it would be held to both topologies."""
        mine = {id(parameter) for parameter in parameters}
        for hook in self.optimizer._optimizer_step_pre_hooks.values():
            other = getattr(hook, "__self__", None)
            for weight in other._weights if isinstance(other, HeldNetwork) else ():
                if id(weight.parameter) in mine:
                    raise FreeTicketsError(
                        f"another sparsifier holds {weight.name!r} already: detach() it first"
                    )

    def _check_counts(self, masks: Topology) -> None:
        for weight in self._weights:
            count = int(masks[weight.name].sum()) if weight.name in masks else weight.nonzeros
            if isinstance(weight, CompressedWeight) and count != weight.nonzeros:
                raise FreeTicketsError(
                    f"layer {weight.name!r} holds {weight.nonzeros} weights and can't have "
                    f"{count}: make the Sparsifier with backend='auto', or with that topology"
                )


def find_lost(weights: Mapping[str, nn.Parameter], masks: Topology) -> Topology:
    """Where a random topology ends weights of one that the network has already, with a warning.

    Empty if it has none. A weight that is zero as a whole was initialised so, not pruned.
    """
    there = {n: w.detach().cpu() != 0 for n, w in weights.items() if w.detach().any()}
    zeros = sum(int((~mask).sum()) for mask in there.values())
    if not zeros or zeros < PRUNED * sum(mask.numel() for mask in there.values()):
        return {}
    lost = {name: there[name] & ~mask for name, mask in masks.items() if name in there}
    if lost := {name: places for name, places in lost.items() if places.any()}:
        warnings.warn(
            "the network has the zeros of a topology, which a new random one replaces: pass "
            "topology='given' to keep it, or load the weights after making the Sparsifier",
            stacklevel=3,
        )
    return lost
