"""Corruptions that move pixels: blurs, motion as ImageMagick defines it, and elastic pulls."""

from functools import lru_cache
from math import ceil
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .apply import Bytes, Floats, Streams, corruption


def smooth(images: Floats, sigma: float) -> Floats:
    """Blur over axes 1 and 2 by a Gaussian that is cut off after 4 sigma."""
    sigmas = (0, sigma, sigma) + (0,) * (images.ndim - 3)
    return ndimage.gaussian_filter(images, sigmas, mode="nearest", truncate=4)


@corruption(0.4, 0.6, 0.7, 0.8, 1.0)
def gaussian_blur(images: Bytes, sigma: float, streams: Streams) -> Floats:
    """Blur by a Gaussian."""
    return smooth(images / 255, sigma)


@corruption((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius, smoothing
def defocus_blur(images: Bytes, level: tuple[float, float], streams: Streams) -> Floats:
    """Blur by a small disk, as a lens does that is out of focus."""
    return ndimage.correlate(images / 255, disk(*level)[None, :, :, None], mode="mirror")


def disk(radius: float, smoothing: float) -> Floats:
    """Return the kernel of a disk whose edge was smoothed by a Gaussian of three taps.

    At CIFAR's radii it holds 1, 1, 1, 5 and 9 pixels: severities 1 to 3 are little Gaussians.
    """
    reach = np.arange(-3, 4)
    inside = (reach**2 + reach[:, None] ** 2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * smoothing**2))
    for axis in (0, 1):
        inside = ndimage.correlate1d(inside, taps / taps.sum(), axis)
    while inside[0].max() < 1e-9 * inside.max():  # zeros cost time
        inside = inside[1:-1, 1:-1]
    return inside / inside.sum()


@corruption((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # sigma, rounds
def glass_blur(images: Bytes, level: tuple[float, int], streams: Streams) -> Floats:
    """Blur, let pixels jump to their neighbours, blur again."""
    sigma, rounds = level
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
    return smooth(pixels / 255, sigma)


@corruption(1.06, 1.11, 1.16, 1.21, 1.26)
def zoom_blur(images: Bytes, end: float, streams: Streams) -> Floats:
    """Average the image with larger and larger copies of itself."""
    # Steps of 0.01 do not sum up exactly: the end is a level of severities 1 and 2 only.
    factors = np.arange(1, end, 0.01)
    # One plane of one channel is one product of matrices, always of the same size: the bits of
    # the result do not depend on how many images there are.
    planes = np.ascontiguousarray((images / np.float32(255)).transpose(0, 3, 1, 2))
    total = planes.copy()
    for factor in factors:
        total += enlarge(planes, float(factor))
    return (total / (len(factors) + 1)).transpose(0, 2, 3, 1)


def enlarge(planes: Floats, factor: float) -> Floats:
    """Zoom into the centre of planes (..., H, W), which keep their size."""
    sizes = planes.shape[-2:]
    rows, columns = (_zoom_matrix(size, factor).astype(planes.dtype) for size in sizes)
    return rows @ planes @ columns.T


@lru_cache(maxsize=128)
def _zoom_matrix(size: int, factor: float) -> Floats:
    """Linear interpolation along one axis: SciPy's zoom of the unit vectors, cropped."""
    crop = ceil(size / factor)
    start = (size - crop) // 2
    weights = ndimage.zoom(np.eye(crop), (factor, 1), order=1)
    trim = (len(weights) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, start : start + crop] = weights[trim : trim + size]
    return matrix


@corruption((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # radius, sigma
def motion_blur(images: Bytes, level: tuple[int, float], streams: Streams) -> Bytes:
    """Blur along a line whose angle is drawn for each image, from -45 to 45 degrees."""
    return stroke(images, *level, streams.draw(lambda rng: rng.uniform(-45, 45)))


def stroke(images: Bytes, radius: int, sigma: float, angles: Floats) -> Bytes:
    """Blur (N, H, W, ...) along one line of 2 * radius + 1 pixels: half a Gaussian, from the pixel.

    To the bit what ImageMagick makes of it: sums are rounded to 16 bits and then cut off to 8.
    Angles (N,) are in degrees: to the right, and down if positive. Outside, the border goes on.
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


# Of the image's size: strength and smoothness of the pull, reach of the shear.
@corruption(
    (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
)
def elastic_transform(images: Bytes, level: tuple[float, float, float], streams: Streams) -> Floats:
    """Move three points at random, the whole image with them, then each pixel a little."""
    height, width = images.shape[1:3]
    strength, smoothness, reach = (min(height, width) * share for share in level)
    pixels = images / np.float32(255)
    moves = streams.draw(lambda rng: rng.uniform(-reach, reach, (3, 2)))
    centre, size = np.array([width // 2, height // 2]), min(height, width) // 3
    corners = centre + max(size, 1) * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = np.concatenate([corners + moves, np.ones((len(moves), 3, 1))], axis=2)
    # (N, 3, 2): affine maps from the new image's (x, y, 1) to the old one's (x, y).
    matrices = np.linalg.solve(moved, np.broadcast_to(corners, moves.shape) * 1.0)
    y, x = np.mgrid[:height, :width].astype(float)
    places = np.stack([x, y, np.ones_like(x)], axis=-1) @ matrices[:, None]
    pixels = sample(pixels, places[..., 1], places[..., 0], "mirror")
    if strength:
        pulls = streams.draw(lambda rng: rng.uniform(-1, 1, (2, height, width)))
        sigmas = (0, 0, smoothness, smoothness)
        pulls = strength * ndimage.gaussian_filter(pulls, sigmas, mode="reflect", truncate=3)
        pixels = sample(pixels, y + pulls[:, 1], x + pulls[:, 0], "reflect")
    return pixels


def sample(images: Floats, y: Floats, x: Floats, border: Literal["mirror", "reflect"]) -> Floats:
    """Read images (N, H, W, C) between their pixels, at any (N, H', W') places, bilinearly.

    Outside is the image turned over, its first pixel once ("mirror") or twice ("reflect").
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


def _fold(index: Floats, size: int, border: str) -> npt.NDArray[np.intp]:
    turn, period = 2 * size - 1, 2 * size
    if border == "mirror":
        turn, period = 2 * size - 2, max(2 * size - 2, 1)
    whole = index.astype(np.intp) % period
    return np.minimum(whole, turn - whole)
