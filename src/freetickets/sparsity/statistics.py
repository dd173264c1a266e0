"""What a sparse network looks like, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    lines = [f"{'layer':{width}s} {'shape':>16s} {'non-zeros':>12s}  sparsity  ever active"]
    for row in rows:
        shape = "x".join(map(str, row.shape))
        ever = row.ever_active / row.weights
        lines.append(
            f"{row.name:{width}s} {shape:>16s} {row.nonzeros:12,d} {row.sparsity:9.4f} {ever:12.3f}"
        )
    lines.append(f"sparsity {overall_sparsity(rows):.4f}, ITOP rate {itop_rate(rows):.4f}")
    return "\n".join(lines)
