"""Thinning: curves of many points drawn with few, without a visible change."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_POINTS = 300

Floats = NDArray[np.float64]


def finite(values: ArrayLike) -> Floats:
    """Values as floats, NaN where they are not finite: what drawing leaves out.

    Example:
        >>> finite([1, float("inf")])
        array([ 1., nan])
    """
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def thin(x: ArrayLike, y: ArrayLike, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """The points of a curve that matter most, first and last included.

    The point that lies furthest from the curve drawn so far is added next (after Ramer, Douglas
    and Peucker), both axes counted in shares of their range. Points that are not finite are left
    out.

    Example:
        >>> x, y = thin([0, 1, 2, 3], [0, 0, 0, 1])
        >>> x.tolist(), y.tolist()
        ([0.0, 2.0, 3.0], [0.0, 0.0, 1.0])
    """
    points = np.stack([finite(x), finite(y)])
    points = points[:, np.isfinite(points).all(axis=0)]
    if points.shape[1] <= 2:
        return points[0], points[1]
    extent = np.ptp(points, axis=1, keepdims=True)
    scaled = points / np.where(extent > 0, extent, 1.0)
    last = points.shape[1] - 1
    kept = {0, last}
    worst = [_worst(scaled, 0, last)]
    while len(kept) < most and worst[0][0] < -1e-5:
        _, middle, start, end = heapq.heappop(worst)
        kept.add(middle)
        heapq.heappush(worst, _worst(scaled, start, middle))
        heapq.heappush(worst, _worst(scaled, middle, end))
    order = sorted(kept)
    return points[0, order], points[1, order]


def _worst(points: Floats, start: int, end: int) -> tuple[float, int, int, int]:
    """Minus the distance, and the number, of the point furthest from the chord of a stretch."""
    if end - start < 2:
        return 0.0, start, start, end
    chord = points[:, end] - points[:, start]
    offset = points[:, start + 1 : end] - points[:, [start]]
    length = float(np.hypot(*chord))
    away = np.hypot(*offset) if length == 0 else abs(chord[0] * offset[1] - chord[1] * offset[0])
    furthest = int(away.argmax())
    return -float(away[furthest]) / (length or 1.0), start + 1 + furthest, start, end
