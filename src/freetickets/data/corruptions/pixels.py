"""Corruptions of pixels where they are: noise, colours, pixelate and JPEG.

Brightness and saturation are meant in HSV, but need no hue. With V the largest of the three values
of a pixel and S = 1 - min / V, a value is V (1 - S k), where k, from 0 to 1, says how far it lies
below V. So a new V scales the pixel, and a new S spreads it.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image

from .streams import Bytes, Floats, Streams

_GAUSSIAN = (0.04, 0.06, 0.08, 0.09, 0.10)
_PHOTONS = (500, 250, 100, 75, 50)
_AMOUNT = (0.01, 0.02, 0.03, 0.05, 0.07)
_SPECKLE = (0.06, 0.1, 0.12, 0.16, 0.2)
_BRIGHTER = (0.05, 0.1, 0.15, 0.2, 0.3)
_SATURATION = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # times, plus
_CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
_SCALES = (0.95, 0.9, 0.85, 0.75, 0.65)
_QUALITIES = (80, 65, 58, 50, 40)


def gaussian_noise(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Add normal noise to every value."""
    return 255 * np.clip(images / 255 + _GAUSSIAN[severity - 1] * _normal(images, streams), 0, 1)


def shot_noise(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Count photons: a Poisson number, whose mean is the value times the photons of white."""
    photons = _PHOTONS[severity - 1]
    counts = streams.draw(lambda rng, mean: rng.poisson(mean), images / 255 * photons)
    return 255 * np.clip(counts / photons, 0, 1)


def impulse_noise(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Replace a share of the values by 0 and as many by 255, each channel by itself."""
    amount = _AMOUNT[severity - 1]
    lot = streams.draw(lambda rng: rng.random(images.shape[1:]))
    return np.where(lot < amount / 2, 0, np.where(lot < amount, 255, images))


def speckle_noise(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Add normal noise in proportion to the value."""
    noise = 1 + _SPECKLE[severity - 1] * _normal(images, streams)
    return 255 * np.clip(images / 255 * noise, 0, 1)


def _normal(images: Floats, streams: Streams) -> Floats:
    return streams.draw(lambda rng: rng.standard_normal(images.shape[1:]))


def brightness(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Add to V, keep hue and saturation."""
    pixels = images / 255
    value = pixels.max(axis=3, keepdims=True)
    brighter = np.minimum(value + _BRIGHTER[severity - 1], 1)
    # Black has no hue, and becomes grey.
    share = np.divide(pixels, value, out=np.ones_like(pixels), where=value > 0)
    return 255 * np.clip(brighter * share, 0, 1)


def saturate(images: Bytes, severity: int, streams: Streams) -> Floats:
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


def contrast(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Move every value towards the mean of its channel in its image."""
    pixels = images / 255
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    return 255 * np.clip((pixels - mean) * _CONTRAST[severity - 1] + mean, 0, 1)


def pixelate(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Make the image smaller and as large again, by boxes."""
    height, width = images.shape[1:3]
    scale = _SCALES[severity - 1]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    box = Image.Resampling.BOX
    return _each(images, lambda image: image.resize(small, box).resize((width, height), box))


def jpeg_compression(images: Bytes, severity: int, streams: Streams) -> Floats:
    """Save as JPEG and read again."""

    def save_and_read(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=_QUALITIES[severity - 1])
        return Image.open(file)

    return _each(images, save_and_read)


def _each(images: Bytes, change: Callable[[Image.Image], Image.Image]) -> Floats:
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in images])
