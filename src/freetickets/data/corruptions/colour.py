"""Brightness, saturation and contrast. The first two are meant in HSV, but need no hue.

With V the largest of the three values of a pixel and S = 1 - min / V, a value is V (1 - S k), where
k, from 0 to 1, says how far it lies below V. So a new V scales the pixel, and a new S spreads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .streams import Streams

_BRIGHTER = (0.05, 0.1, 0.15, 0.2, 0.3)
_SATURATION = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # times, plus
_CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)


def brightness(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Add to V, keep hue and saturation."""
    pixels = images / 255
    value = pixels.max(axis=3, keepdims=True)
    brighter = np.minimum(value + _BRIGHTER[severity - 1], 1)
    # Black has no hue, and becomes grey.
    share = np.divide(pixels, value, out=np.ones_like(pixels), where=value > 0)
    return 255 * np.clip(brighter * share, 0, 1)


def saturate(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Change S, keep hue and V."""
    times, plus = _SATURATION[severity - 1]
    pixels = images / 255
    value, least = pixels.max(axis=3, keepdims=True), pixels.min(axis=3, keepdims=True)
    spread = value - least
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    # Grey has no hue: it counts as red, so that severities 4 and 5 tint it.
    red = np.broadcast_to(np.array([0.0, 1.0, 1.0]), pixels.shape).copy()
    below = np.divide(value - pixels, spread, out=red, where=spread > 0)
    return 255 * np.clip(value * (1 - np.clip(saturation * times + plus, 0, 1) * below), 0, 1)


def contrast(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Move every value towards the mean of its channel in its image."""
    pixels = images / 255
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    return 255 * np.clip((pixels - mean) * _CONTRAST[severity - 1] + mean, 0, 1)
