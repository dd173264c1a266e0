"""All the weights of a network that are held to a topology, as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from ..errors import FreeTicketsError
from ..kernels.layers import SparseLayer
from .distribution import Distribution, Sparsity, allocate, check_sparsity
from .layers import check_optimized
from .structure import Structure, check_masks
from .topology import Topology, pack_mask, unpack_mask
from .weight import AdoptedWeight, CompressedWeight, MaskedWeight, ReservedWeight

if TYPE_CHECKING:
    from ..kernels.choices import Choices
    from ..kernels.engine import Engine


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


def overall_sparsity(rows: Sequence[LayerStatistics]) -> float:
    """The share of zeros over all layers."""
    return 1 - sum(row.nonzeros for row in rows) / sum(row.weights for row in rows)


def itop_rate(rows: Sequence[LayerStatistics]) -> float:
    """The share of the weights that have ever been active (ITOP's R_s)."""
    return sum(row.ever_active for row in rows) / sum(row.weights for row in rows)


def table(rows: Sequence[LayerStatistics]) -> str:
    """The layers as text.

    Example:
        >>> print(table([LayerStatistics("fc", (2, 5), 10, 4, 6)]))
        layer              shape    non-zeros  sparsity  ever active
        fc                   2x5            4    0.6000        0.600
        sparsity 0.6000, ITOP rate 0.6000
    """
    width = max(5, *(len(row.name) for row in rows)) + 2
    lines = [
        f"{row.name:{width}s} {'x'.join(map(str, row.shape)):>16s} {row.nonzeros:12,d} "
        f"{row.sparsity:9.4f} {row.ever_active / row.weights:12.3f}"
        for row in rows
    ]
    header = f"{'layer':{width}s} {'shape':>16s} {'non-zeros':>12s}  sparsity  ever active"
    total = f"sparsity {overall_sparsity(rows):.4f}, ITOP rate {itop_rate(rows):.4f}"
    return "\n".join([header, *lines, total])


class SparseNetwork:
    """Holds those weights of a network that have a mask to their topology.

    `shapes` are those of all weights that may be sparse, `weights` only those that are, both in the
    network's order. `make_engine` makes layers that skip zeros, of the masks that have any.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Mapping[str, nn.Parameter],
        masks: Topology,
        structure: Structure,
        make_engine: Callable[[Topology], Engine | None],
        reserve: float,
        generator: torch.Generator,
    ) -> None:
        # A layer that can't have the structure is as good as excluded.
        parameters = {n: w for n, w in parameters.items() if structure.fits(w.shape)}
        check_optimized(parameters, optimizer)
        check_masks(structure, masks)
        self.optimizer, self._structure = optimizer, structure
        self.shapes = {name: tuple(weight.shape) for name, weight in parameters.items()}
        # A layer that gets all its weights needs no mask: exploration can then never damage it.
        masks = {name: mask for name, mask in masks.items() if not mask.all()}
        self._dense = {name: weight for name, weight in parameters.items() if name not in masks}
        _check_alone(optimizer, [parameters[name] for name in masks])
        self._engine = make_engine(masks)
        layers = self._engine.layers if self._engine is not None else {}

        def held(name: str, mask: Tensor) -> MaskedWeight:
            layer = layers.get(name)
            if isinstance(layer, SparseLayer):
                return CompressedWeight(name, layer)
            if layer is not None:
                return AdoptedWeight(name, layer, mask)
            if reserve:
                return ReservedWeight(name, parameters[name], mask, reserve, generator)
            return MaskedWeight(name, parameters[name], mask)

        self.weights = [held(name, mask) for name, mask in masks.items()]
        self.hold()

    @property
    def choices(self) -> Choices | None:
        """The ways that layers take; None if all weights are masked."""
        return self._engine.choices if self._engine is not None else None

    @property
    def topology(self) -> Topology:
        """The mask of each sparse layer."""
        return {weight.name: weight.mask for weight in self.weights}

    @property
    def reserved(self) -> list[ReservedWeight]:
        """The weights that have a reserve."""
        return [weight for weight in self.weights if isinstance(weight, ReservedWeight)]

    def statistics(self) -> list[LayerStatistics]:
        """Returns one row a layer, those without a mask included."""
        counts = {w.name: (w.nonzeros, int(w.ever_active.sum())) for w in self.weights}
        return [
            LayerStatistics(name, shape, size, *counts.get(name, (size, size)))
            for name, shape in self.shapes.items()
            for size in [math.prod(shape)]
        ]

    def counts_at(self, sparsity: Sparsity, distribution: Distribution | None) -> list[int] | int:
        """How many weights each layer keeps at a sparsity; without a distribution, all together."""
        counts: list[int] | int
        if distribution is not None:
            counts = list(allocate(self.shapes, sparsity, distribution).values())
        else:
            assert not isinstance(sparsity, Mapping)
            check_sparsity(sparsity)
            counts = round((1 - sparsity) * sum(map(math.prod, self.shapes.values())))
        total = counts if isinstance(counts, int) else sum(counts)
        rows = self.statistics()
        # A weight more in a layer may come of rounding.
        if total > sum(row.nonzeros for row in rows) + len(rows):
            raise FreeTicketsError(
                f"can't prune to sparsity {sparsity}, the network has {overall_sparsity(rows):.4g} "
                "already: give the Sparsifier a lower sparsity to start from"
            )
        return counts

    def mask_all(self) -> None:
        """Gives the dense weights a mask too: they are to be pruned."""
        if self._is_compressed:
            raise FreeTicketsError(
                "can't prune a compressed layer: make the Sparsifier with backend='auto'"
            )
        self._mask(self._dense)

    @torch.no_grad()
    def hold(self) -> None:
        """Sets inactive weights and their optimizer state to zero."""
        for weight in self.weights:
            weight.hold(self.optimizer)

    # ---- new topologies

    def rewire(
        self, masks: Sequence[Tensor], weights: Sequence[Tensor], state: Sequence[Tensor]
    ) -> None:
        """Takes new masks; `weights` and `state` say which values and optimizer state stay."""
        for weight, *change in zip(self.weights, masks, weights, state, strict=True):
            weight.rewire(self.optimizer, *change)
        self._forget_past_steps()

    def choose_anew(self, scores: Sequence[Tensor], generator: torch.Generator) -> None:
        """Makes the weights of the highest scores active, and the next their reserve."""
        for weight, score in zip(self.reserved, scores, strict=True):
            weight.choose(self.optimizer, score, generator)
        self._forget_past_steps()

    def set_topology(self, masks: Topology) -> None:
        """Takes other masks; of a layer that computes only with active weights, as many."""
        check_masks(self._structure, masks)
        if self.reserved:
            raise FreeTicketsError("a network with a reserve chooses its topology by itself")
        self._check_counts(masks)
        self._mask(name for name, mask in masks.items() if not mask.all())
        for weight in self.weights:
            if weight.name in masks:
                mask = masks[weight.name].to(weight.parameter.device)
                weight.rewire(self.optimizer, mask, mask, mask)
        full = [weight for weight in self.weights if weight.nonzeros == weight.mask.numel()]
        self._dense |= {weight.name: weight.parameter for weight in full}
        self.weights = [weight for weight in self.weights if weight not in full]
        self._forget_past_steps()

    # ---- saving

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs."""
        return {
            "topology": {w.name: pack_mask(w.mask) for w in self.weights},
            "ever_active": {w.name: pack_mask(w.ever_active) for w in self.weights},
            "reserve": {weight.name: weight.reserve_state() for weight in self.reserved},
            "choices": self.choices.state_dict() if self.choices is not None else {},
        }

    def saved_masks(self, state: Mapping[str, Any]) -> Topology:
        """The topology of a `state_dict` of the same network."""
        if not self._is_compressed:  # it may have been saved after a pruning
            self._mask(self._dense.keys() & state["topology"].keys())
        mine = {w.name: math.ceil(w.mask.numel() / 8) for w in self.weights}
        theirs = {name: packed.numel() for name, packed in state["topology"].items()}
        odd = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
        if odd:
            raise FreeTicketsError(
                f"the saved topology belongs to another network: see layer {odd[0]!r}"
            )
        if any(weight.name not in state.get("reserve", {}) for weight in self.reserved):
            raise FreeTicketsError("the saved run has no reserve: leave reserve at 0 to resume it")
        masks = {w.name: unpack_mask(state["topology"][w.name], w.mask.shape) for w in self.weights}
        check_masks(self._structure, masks)
        self._check_counts(masks)
        return masks

    def load_state_dict(self, state: Mapping[str, Any], masks: Topology) -> None:
        """Restores a `state_dict` with its `saved_masks`."""
        for weight in self.weights:
            fired = unpack_mask(state["ever_active"][weight.name], weight.mask.shape)
            weight.ever_active.copy_(fired)
            weight.restore(masks[weight.name])
            weight.adapt(self.optimizer)
        for reserved in self.reserved:
            reserved.load_reserve_state(state["reserve"][reserved.name])
        if self.choices is not None:
            self.choices.load_state_dict(state.get("choices", {}))
        self.hold()

    def detach(self) -> None:
        """Puts dense layers in the places of sparse ones."""
        if self._engine is not None:
            parameters = self._engine.remove(self.optimizer)
            for index, weight in enumerate(self.weights):
                if weight.name in parameters:
                    dense = MaskedWeight(weight.name, parameters[weight.name], weight.mask)
                    dense.ever_active = weight.ever_active
                    self.weights[index] = dense
            self._engine = None

    # ---- inside

    @property
    def _is_compressed(self) -> bool:
        return any(isinstance(weight, CompressedWeight) for weight in self.weights)

    def _check_counts(self, masks: Topology) -> None:
        """Raises if a layer that holds only active weights is to have more, or fewer."""
        for weight in self.weights:
            count = int(masks[weight.name].sum()) if weight.name in masks else weight.nonzeros
            if isinstance(weight, CompressedWeight) and count != weight.nonzeros:
                raise FreeTicketsError(
                    f"layer {weight.name!r} holds {weight.nonzeros} weights and can't have "
                    f"{count}: make the Sparsifier with backend='auto', or with that topology"
                )

    def _mask(self, names: Iterable[str]) -> None:
        """Gives dense weights a mask, of all of them."""
        new = {name: self._dense[name] for name in names if name in self._dense}
        _check_alone(self.optimizer, new.values())
        found = {weight.name: weight for weight in self.weights}
        for name, weight in new.items():
            found[name] = MaskedWeight(name, weight, torch.ones(weight.shape, dtype=torch.bool))
            del self._dense[name]
        self.weights = [found[name] for name in self.shapes if name in found]

    def _forget_past_steps(self) -> None:
        if isinstance(self.optimizer, LBFGS):
            self.optimizer.state.clear()  # its past steps would revive pruned weights


def _check_alone(optimizer: Optimizer, weights: Iterable[nn.Parameter]) -> None:
    """Refuses a second sparsifier of one weight: it would be held to both topologies."""
    mine = {id(weight) for weight in weights}
    for hook in optimizer._optimizer_step_pre_hooks.values():
        other = getattr(getattr(hook, "__self__", None), "_network", None)
        for weight in other.weights if isinstance(other, SparseNetwork) else ():
            if id(weight.parameter) in mine:
                raise FreeTicketsError(
                    f"another sparsifier holds {weight.name!r} already: detach() it first"
                )
