"""What an ensemble costs against its sparsity: the points of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .timing import Ratio

# The curve that is a line: what one dense network costs on our kernels.
ONE_DENSE = "ONE dense, on our kernels"


@dataclass(frozen=True, kw_only=True)
class Point(Ratio):
    """A ratio that is a point of a curve.

    Attributes:
        curve: The name of the curve.
        sparsity: Where on it the point lies.
    """

    curve: str
    sparsity: float


def curves(points: Sequence[Point]) -> dict[str, list[tuple[float, float]]]:
    """The sparsities and ratios of each curve, in order of the sparsity."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        found.setdefault(point.curve, []).append((point.sparsity, point.value))
    return {name: sorted(pairs) for name, pairs in found.items()}
