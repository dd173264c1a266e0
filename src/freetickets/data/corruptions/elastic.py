"""Elastic transformation: the image is sheared, then pulled here and there."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .streams import Streams

# Of the image's size: strength and smoothness of the pull, reach of the shear.
_ELASTIC = (
    (0, 0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)


def elastic_transform(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Move three points at random, the whole image with them, then each pixel a little."""
    height, width = images.shape[1:3]
    strength, smoothness, reach = (min(height, width) * share for share in _ELASTIC[severity - 1])
    pixels = images / np.float32(255)
    matrices = _shears(height, width, streams.draw(lambda rng: rng.uniform(-reach, reach, (3, 2))))
    y, x = np.mgrid[:height, :width].astype(float)
    places = np.stack([x, y, np.ones_like(x)], axis=-1) @ matrices[:, None]
    pixels = sample(pixels, places[..., 1], places[..., 0], "mirror")
    if strength:
        pulls = streams.draw(lambda rng: rng.uniform(-1, 1, (2, height, width)))
        sigmas = (0, 0, smoothness, smoothness)
        pulls = strength * ndimage.gaussian_filter(pulls, sigmas, mode="reflect", truncate=3)
        pixels = sample(pixels, y + pulls[:, 1], x + pulls[:, 0], "reflect")
    return 255 * np.clip(pixels, 0, 1)


def _shears(height: int, width: int, moves: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return (N, 3, 2) affine maps from the new image's (x, y, 1) to the old one's (x, y)."""
    centre, size = np.array([width // 2, height // 2]), min(height, width) // 3
    corners = centre + max(size, 1) * np.array([[1, 1], [1, -1], [-1, -1]])
    ones = np.ones((len(moves), 3, 1))
    moved = np.concatenate([corners + moves, ones], axis=2)
    maps: npt.NDArray[Any] = np.linalg.solve(moved, np.broadcast_to(corners, moves.shape) * 1.0)
    return maps


def sample(
    images: npt.NDArray[Any],
    y: npt.NDArray[Any],
    x: npt.NDArray[Any],
    border: Literal["mirror", "reflect"],
) -> npt.NDArray[Any]:
    """Read images (N, H, W, C) between their pixels, at (N, H', W') places, by bilinear weights.

    Args:
        images: What to read.
        y: Rows, counted in pixels; anything is allowed.
        x: Columns.
        border: What is outside, in SciPy's words: the image turned over, with its first pixel once
            ("mirror") or twice ("reflect").
    """
    count, height, width, channels = images.shape
    flat = images.reshape(-1, channels)
    first = np.arange(count)[:, None, None] * (height * width)
    top, left = np.floor(y), np.floor(x)
    result = np.zeros((*y.shape, channels), images.dtype)
    for row, row_weight in ((top, 1 - (y - top)), (top + 1, y - top)):
        start = first + _fold(row, height, border) * width
        for column, column_weight in ((left, 1 - (x - left)), (left + 1, x - left)):
            weight = (row_weight * column_weight).astype(images.dtype)
            result += weight[..., None] * flat[start + _fold(column, width, border)]
    return result


def _fold(index: npt.NDArray[Any], size: int, border: str) -> npt.NDArray[np.intp]:
    """Fold any index into 0 .. size - 1."""
    whole = index.astype(np.intp)
    if border == "mirror":
        period = max(2 * size - 2, 1)
        whole = whole % period
        return np.minimum(whole, period - whole) if size > 1 else whole * 0
    whole = whole % (2 * size)
    return np.minimum(whole, 2 * size - 1 - whole)
