"""Motion blur as ImageMagick defines it, which snow needs as well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .streams import Streams

_STROKES = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma


def motion_blur(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Blur along a line whose angle is drawn for each image, from -45 to 45 degrees."""
    angles = streams.draw(lambda rng: rng.uniform(-45, 45))
    return stroke(images, *_STROKES[severity - 1], angles)


def stroke(
    images: npt.NDArray[np.uint8], radius: int, sigma: float, angles: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Blur (N, H, W, ...) along one line a picture: half a Gaussian, which starts at the pixel.

    To the bit what ImageMagick makes of it: sums are rounded to 16 bits and then cut off to 8.
    Outside the image its border goes on.

    Args:
        images: The pictures.
        radius: The line has 2 * radius + 1 pixels.
        sigma: Of the Gaussian.
        angles: (N,) in degrees; the line goes to the right, and down for positive angles.

    Example:
        >>> dot = np.zeros((1, 1, 5), np.uint8)
        >>> dot[0, 0, 3] = 255
        >>> stroke(dot, 1, 1.0, np.array([0.0])).tolist()
        [[[0, 19, 88, 146, 0]]]
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    radians = np.deg2rad(angles)[:, None]
    down = np.ceil(steps * np.sin(radians) - 0.5).astype(np.intp)
    right = np.ceil(steps * np.cos(radians) - 0.5).astype(np.intp)
    count, height, width = images.shape[:3]
    flat = images.reshape(count * height * width, -1)
    first = np.arange(count)[:, None, None] * (height * width)
    total = np.zeros((count, height, width, flat.shape[1]), np.float32)
    for step, weight in enumerate(weights):
        rows = np.clip(np.arange(height) + down[:, step, None], 0, height - 1)
        columns = np.clip(np.arange(width) + right[:, step, None], 0, width - 1)
        total += np.float32(weight) * flat[first + rows[:, :, None] * width + columns[:, None, :]]
    fine = np.floor(257 * total.astype(np.float64) + 0.5)
    return (fine // 257).astype(np.uint8).reshape(images.shape)
