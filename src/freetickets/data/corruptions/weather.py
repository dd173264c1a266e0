"""Snow and fog."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .blur import enlarge
from .motion import stroke
from .streams import Streams

# Mean and deviation of the noise, zoom, threshold, radius and sigma of the motion, share kept.
_SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
_FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # strength, decay
_GREY = (0.299, 0.587, 0.114)


def snow(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Bleach the image, then let flakes fall over it and, turned around, once more."""
    mean, deviation, zoom, threshold, radius, sigma, kept = _SNOW[severity - 1]
    size = images.shape[1:3]
    flakes = enlarge(streams.draw(lambda rng: rng.normal(mean, deviation, size)), zoom)
    flakes[flakes < threshold] = 0
    angles = streams.draw(lambda rng: rng.uniform(-135, -45))
    layer = stroke((255 * np.clip(flakes, 0, 1)).astype(np.uint8), radius, sigma, angles) / 255
    layer = layer + layer[:, ::-1, ::-1]
    pixels = images / np.float32(255)
    grey = pixels @ np.array(_GREY, np.float32)
    bleached = np.maximum(pixels, 1.5 * grey[..., None] + 0.5)
    return 255 * np.clip(kept * pixels + (1 - kept) * bleached + layer[..., None], 0, 1)


def fog(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Add clouds, then darken the image so that its brightest value could stay what it was."""
    strength, decay = _FOG[severity - 1]
    height, width = images.shape[1:3]
    size = 1 << (max(height, width, 2) - 1).bit_length()
    clouds = plasma(streams.draw(lambda rng: rng.uniform(-1, 1, size * size - 1)), size, decay)
    pixels = images / 255
    brightest = pixels.max(axis=(1, 2, 3), keepdims=True)
    foggy = pixels + strength * clouds[:, :height, :width, None]
    return 255 * np.clip(foggy * brightest / (brightest + strength), 0, 1)


def plasma(noise: npt.NDArray[Any], size: int, decay: float) -> npt.NDArray[Any]:
    """Return clouds (N, size, size) from 0 to 1, by diamonds and squares on a torus.

    Args:
        noise: Uniform numbers from -1 to 1, (N, size**2 - 1).
        size: A power of two.
        decay: By how much the amplitude falls when the grid gets twice as fine; squared, since the
            original multiplies its amplitude in twice.
    """
    clouds = np.zeros((len(noise), size, size))
    used, step, amplitude = 0, size, 100.0

    def rough(sums: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A mean of four points, shaken."""
        nonlocal used
        count = sums[0].size
        shake = noise[:, used : used + count].reshape(sums.shape)
        used += count
        return sums / 4 + amplitude**2 * shake

    while step >= 2:
        half = step // 2
        corners = clouds[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = rough(pairs + np.roll(pairs, -1, axis=2))
        clouds[:, half::step, half::step] = centres
        # Of the points between, each has two corners and two centres around it.
        level = corners + np.roll(corners, -1, axis=2) + centres + np.roll(centres, 1, axis=1)
        clouds[:, ::step, half::step] = rough(level)
        upright = corners + np.roll(corners, -1, axis=1) + centres + np.roll(centres, 1, axis=2)
        clouds[:, half::step, ::step] = rough(upright)
        step, amplitude = half, amplitude / decay
    clouds -= clouds.min(axis=(1, 2), keepdims=True)
    return clouds / clouds.max(axis=(1, 2), keepdims=True)
