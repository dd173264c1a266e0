"""Speed-up against sparsity: where it begins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .timing import Ratio


@dataclass(frozen=True, kw_only=True)
class Point(Ratio):
    """A ratio that is a point of a curve.

    Attributes:
        curve: The name of the curve.
        sparsity: Where on it the point lies.
    """

    curve: str
    sparsity: float


def crossover_sparsity(points: Sequence[tuple[float, float]]) -> float | None:
    """The sparsity from which on sparse is faster than dense.

    Between two points, the logarithm of the speed-up is taken to be a straight line.

    Args:
        points: Sparsities and speed-ups, in order of the sparsity.

    Returns:
        The first sparsity that was measured, if sparse is faster from there on; None if it is not
        faster at the last one.

    Example:
        >>> crossover_sparsity([(0.0, 0.25), (0.25, 0.5), (0.75, 2.0)])
        0.5
    """
    if points[-1][1] < 1:
        return None
    for (left, below), (right, above) in reversed(list(pairwise(points))):
        if below < 1:
            share = -math.log(below) / (math.log(above) - math.log(below))
            return left + share * (right - left)
    return points[0][0]


def curves(points: Sequence[Point]) -> dict[str, list[tuple[float, float]]]:
    """The sparsities and speed-ups of each curve, in order of the sparsity."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        found.setdefault(point.curve, []).append((point.sparsity, point.speedup))
    return {name: sorted(pairs) for name, pairs in found.items()}
