"""Corruptions of pixels where they are: noise, colours, pixelate and JPEG.

Brightness and saturation are meant in HSV, but need no hue. With V the largest of the three values
of a pixel and S = 1 - min / V, a value is V (1 - S k), where k, from 0 to 1, says how far it lies
below V. So a new V scales the pixel, and a new S spreads it.
"""

from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image

from .apply import Bytes, Floats, Streams, corruption


@corruption(0.04, 0.06, 0.08, 0.09, 0.10)
def gaussian_noise(images: Bytes, deviation: float, streams: Streams) -> Floats:
    """Add normal noise to every value."""
    return images / 255 + deviation * _normal(images, streams)


@corruption(500, 250, 100, 75, 50)
def shot_noise(images: Bytes, photons: int, streams: Streams) -> Floats:
    """Count photons: a Poisson number, whose mean is the value times the photons of white."""
    return streams.draw(lambda rng, mean: rng.poisson(mean), images / 255 * photons) / photons


@corruption(0.01, 0.02, 0.03, 0.05, 0.07)
def impulse_noise(images: Bytes, amount: float, streams: Streams) -> Bytes:
    """Replace a share of the values by 0 and as many by 255, each channel by itself."""
    lot = streams.draw(lambda rng: rng.random(images.shape[1:]))
    return np.where(lot < amount / 2, 0, np.where(lot < amount, 255, images)).astype(np.uint8)


@corruption(0.06, 0.1, 0.12, 0.16, 0.2)
def speckle_noise(images: Bytes, deviation: float, streams: Streams) -> Floats:
    """Add normal noise in proportion to the value."""
    return images / 255 * (1 + deviation * _normal(images, streams))


def _normal(images: Floats, streams: Streams) -> Floats:
    return streams.draw(lambda rng: rng.standard_normal(images.shape[1:]))


@corruption(0.05, 0.1, 0.15, 0.2, 0.3)
def brightness(images: Bytes, more: float, streams: Streams) -> Floats:
    """Add to V, keep hue and saturation."""
    pixels = images / 255
    value = pixels.max(axis=3, keepdims=True)
    # Black has no hue, and becomes grey.
    share = np.divide(pixels, value, out=np.ones_like(pixels), where=value > 0)
    return np.minimum(value + more, 1) * share


@corruption((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))
def saturate(images: Bytes, level: tuple[float, float], streams: Streams) -> Floats:
    """Multiply S and add to it, keep hue and V."""
    times, plus = level
    pixels = images / 255
    value, least = pixels.max(axis=3, keepdims=True), pixels.min(axis=3, keepdims=True)
    spread = value - least
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    # Grey has no hue: it counts as red, so that severities 4 and 5 tint it.
    red = np.broadcast_to(np.array([0.0, 1.0, 1.0]), pixels.shape).copy()
    below = np.divide(value - pixels, spread, out=red, where=spread > 0)
    return value * (1 - np.clip(saturation * times + plus, 0, 1) * below)


@corruption(0.75, 0.5, 0.4, 0.3, 0.15)
def contrast(images: Bytes, kept: float, streams: Streams) -> Floats:
    """Move every value towards the mean of its channel in its image."""
    pixels = images / 255
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    return (pixels - mean) * kept + mean


@corruption(0.95, 0.9, 0.85, 0.75, 0.65)
def pixelate(images: Bytes, scale: float, streams: Streams) -> Bytes:
    """Make the image smaller and as large again, by boxes."""
    height, width = images.shape[1:3]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    box = Image.Resampling.BOX
    return _each(images, lambda image: image.resize(small, box).resize((width, height), box))


@corruption(80, 65, 58, 50, 40)
def jpeg_compression(images: Bytes, quality: int, streams: Streams) -> Bytes:
    """Save as JPEG and read again."""

    def save_and_read(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _each(images, save_and_read)


def _each(images: Bytes, change: Callable[[Image.Image], Image.Image]) -> Bytes:
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in images])
