"""What is known of all sparse weights of a network, and which kernels compute with them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from torch import nn, optim
from torch.optim import Optimizer

from ..errors import FreeTicketsError, UnknownNameError
from ..kernels.library import available
from .layers import bare
from .topology import Topology
from .weight import PRUNED

if TYPE_CHECKING:
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


def make_engine(
    backend: str,
    model: nn.Module,
    optimizer: Optimizer,
    masks: Topology,
    *,
    unsuited: str | None,
    owned: bool,
) -> Engine | None:
    """Makes the layers of a network that skip zeros; None if every weight is to be masked.

    `unsuited` is an option that only masked weights can serve. If the network is `owned`, nobody
    else holds its parameters: then "auto" replaces layers as "sparse" does, where it can.
    """
    if backend not in get_args(Backend):
        raise UnknownNameError("backend", backend, get_args(Backend))
    if backend == "masked":
        return None
    obstacle = None
    if not available():
        obstacle = "the sparse kernels are not built: install a C++ compiler and freetickets again"
    elif bare(model) is not model:
        obstacle = "wrap the network (data-parallel, torch.compile) after making the Sparsifier"
    impossible = "backend 'sparse' is not possible:"
    if backend == "sparse":
        reason = f"it does not go with {unsuited}" if unsuited is not None else obstacle
        if reason is not None:
            raise FreeTicketsError(f"{impossible} {reason}, or use 'auto'")
    else:
        size = sum(mask.numel() for mask in masks.values())
        sparsity = 1 - sum(int(mask.sum()) for mask in masks.values()) / max(1, size)
        if unsuited is not None or not available() or sparsity < _WORTHWHILE:
            return None
    from ..kernels.engine import Adoption, Compression

    engine: Engine
    is_replaceable = owned and type(optimizer) in _ELEMENTWISE and obstacle is None
    if backend == "sparse" or is_replaceable:
        engine = Compression(model, optimizer, masks)
    else:
        engine = Adoption(bare(model), masks)
    if backend == "sparse" and not engine.layers:
        plain = "plain float32 Linear and Conv2d on the CPU"
        raise FreeTicketsError(f"{impossible} no layer can be sparse, only {plain}; use 'auto'")
    return engine if engine.layers else None


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
