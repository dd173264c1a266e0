"""Blurs that look alike everywhere in the image: Gaussian, defocus, glass, zoom."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .streams import Streams

_SIGMAS = (0.4, 0.6, 0.7, 0.8, 1.0)
_DISKS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, smoothing
_GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # sigma, rounds
_ZOOM_ENDS = (1.06, 1.11, 1.16, 1.21, 1.26)


def smooth(images: npt.NDArray[Any], sigma: float) -> npt.NDArray[Any]:
    """Blur over axes 1 and 2 by a Gaussian that is cut off after 4 sigma."""
    sigmas = (0, sigma, sigma) + (0,) * (images.ndim - 3)
    blurred: npt.NDArray[Any] = ndimage.gaussian_filter(images, sigmas, mode="nearest", truncate=4)
    return blurred


def gaussian_blur(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Blur by a Gaussian."""
    return 255 * np.clip(smooth(images / 255, _SIGMAS[severity - 1]), 0, 1)


def defocus_blur(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Blur by a small disk, as a lens does that is out of focus."""
    kernel = disk(*_DISKS[severity - 1])[None, :, :, None]
    return 255 * np.clip(ndimage.correlate(images / 255, kernel, mode="mirror"), 0, 1)


def disk(radius: float, smoothing: float) -> npt.NDArray[Any]:
    """Return the kernel of a disk whose edge was smoothed by a Gaussian of three taps.

    At CIFAR's radii it holds 1, 1, 1, 5 and 9 pixels, so that severities 1 to 3 are little
    Gaussians.

    Example:
        >>> disk(1.5, 0.1).round(3)
        array([[0.111, 0.111, 0.111],
               [0.111, 0.111, 0.111],
               [0.111, 0.111, 0.111]])
    """
    reach = np.arange(-3, 4)
    inside = (reach**2 + reach[:, None] ** 2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * smoothing**2))
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, taps / taps.sum(), axis)
    while inside[0].max() < 1e-9 * inside.max():  # zeros cost time
        inside = inside[1:-1, 1:-1]
    kernel: npt.NDArray[Any] = inside / inside.sum()
    return kernel


def glass_blur(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Blur, let pixels jump to their neighbours, blur again."""
    sigma, rounds = _GLASS[severity - 1]
    pixels = (255 * smooth(images / 255, sigma)).astype(np.uint8)
    height, width = pixels.shape[1:3]
    size = max(height - 2, 0), max(width - 2, 0)
    image = np.arange(len(pixels))[:, None, None]
    for _ in range(rounds):
        # The original means to swap two pixels, but copies one of them, which is above or to the
        # left; as it goes from the last pixel to the first, that one has not changed yet. So all
        # the copies of a round can be made at once. Two rows and two columns stay as they are.
        up, left = np.moveaxis(streams.draw(lambda rng: rng.integers(0, 2, (2, *size))), 1, 0)
        rows = np.arange(2, height)[:, None] - up
        columns = np.arange(2, width) - left
        pixels[:, 2:, 2:] = pixels[image, rows, columns]
    return 255 * np.clip(smooth(pixels / 255, sigma), 0, 1)


def zoom_blur(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Average the image with larger and larger copies of itself."""
    # Steps of 0.01 do not sum up exactly: the end is a level of severities 1 and 2 only.
    factors = np.arange(1, _ZOOM_ENDS[severity - 1], 0.01)
    # One plane of one channel is one product of matrices, always of the same size: the bits of
    # the result do not depend on how many images there are.
    planes = np.ascontiguousarray((images / np.float32(255)).transpose(0, 3, 1, 2))
    total = planes.copy()
    for factor in factors:
        total += enlarge(planes, float(factor))
    return (255 * np.clip(total / (len(factors) + 1), 0, 1)).transpose(0, 2, 3, 1)


def enlarge(planes: npt.NDArray[Any], factor: float) -> npt.NDArray[Any]:
    """Zoom into the centre of planes (..., H, W), which keep their size."""
    rows = _zoom_matrix(planes.shape[-2], factor).astype(planes.dtype)
    columns = _zoom_matrix(planes.shape[-1], factor).astype(planes.dtype)
    result: npt.NDArray[Any] = rows @ planes @ columns.T
    return result


@lru_cache(maxsize=128)
def _zoom_matrix(size: int, factor: float) -> npt.NDArray[Any]:
    """Linear interpolation along one axis: SciPy's zoom of the unit vectors, cropped."""
    crop = ceil(size / factor)
    start = (size - crop) // 2
    weights = ndimage.zoom(np.eye(crop), (factor, 1), order=1)
    trim = (len(weights) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, start : start + crop] = weights[trim : trim + size]
    return matrix
