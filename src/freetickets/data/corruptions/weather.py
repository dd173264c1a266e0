"""Snow, fog, and spatter: drops of water on the lens, then mud."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from .apply import Bytes, Floats, Streams, corruption
from .blur import enlarge, smooth, stroke

_GREY = (0.299, 0.587, 0.114)
_PALE_TURQUOISE, _BROWN = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255
_CANNY, _FARTHEST = (50, 150), 20
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # lights the drops from one side


# Mean and deviation of the noise, zoom, threshold, radius and sigma of the motion, share kept.
@corruption(
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
def snow(images: Bytes, level: tuple[Any, ...], streams: Streams) -> Floats:
    """Bleach the image, then let flakes fall over it and, turned around, once more."""
    mean, deviation, zoom, threshold, radius, sigma, kept = level
    size = images.shape[1:3]
    flakes = enlarge(streams.draw(lambda rng: rng.normal(mean, deviation, size)), zoom)
    flakes[flakes < threshold] = 0
    angles = streams.draw(lambda rng: rng.uniform(-135, -45))
    layer = stroke((255 * np.clip(flakes, 0, 1)).astype(np.uint8), radius, sigma, angles) / 255
    layer = layer + layer[:, ::-1, ::-1]
    pixels = images / np.float32(255)
    grey = pixels @ np.array(_GREY, np.float32)
    bleached = np.maximum(pixels, 1.5 * grey[..., None] + 0.5)
    return kept * pixels + (1 - kept) * bleached + layer[..., None]


@corruption((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # strength, decay
def fog(images: Bytes, level: tuple[float, float], streams: Streams) -> Floats:
    """Add clouds, then darken the image so that its brightest value could stay what it was."""
    strength, decay = level
    height, width = images.shape[1:3]
    size = 1 << (max(height, width, 2) - 1).bit_length()
    clouds = plasma(streams.draw(lambda rng: rng.uniform(-1, 1, size * size - 1)), size, decay)
    pixels = images / 255
    brightest = pixels.max(axis=(1, 2, 3), keepdims=True)
    foggy = pixels + strength * clouds[:, :height, :width, None]
    return foggy * brightest / (brightest + strength)


def plasma(noise: Floats, size: int, decay: float) -> Floats:
    """Return clouds (N, size, size) from 0 to 1, by diamonds and squares on a torus.

    The noise is (N, size**2 - 1), uniform from -1 to 1; the size a power of two. The amplitude
    falls by the square of the decay when the grid gets twice as fine: the original has it twice.
    """
    clouds = np.zeros((len(noise), size, size))
    used, step, amplitude = 0, size, 100.0

    def rough(sums: Floats) -> Floats:
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


# Mean and deviation of the noise, its smoothness, the level above which there is liquid; then the
# strength of water or the smoothness of mud.
@corruption(
    ("water", 0.62, 0.1, 0.7, 0.7, 0.5),
    ("water", 0.65, 0.1, 0.8, 0.7, 0.5),
    ("water", 0.65, 0.3, 1.0, 0.69, 0.5),
    ("mud", 0.65, 0.1, 0.7, 0.69, 0.6),
    ("mud", 0.65, 0.1, 0.5, 0.68, 0.6),
)
def spatter(images: Bytes, level: tuple[Any, ...], streams: Streams) -> Floats:
    """Cover parts of the image: water brightens, mud hides."""
    kind, mean, deviation, smoothness, least, last = level
    size = images.shape[1:3]
    liquid = smooth(streams.draw(lambda rng: rng.normal(mean, deviation, size)), smoothness)
    pixels = images / 255
    if kind == "water":
        drops = last * _water(np.where(liquid < least, 0, liquid))
        return pixels + drops[..., None] * _PALE_TURQUOISE
    mud = smooth((liquid > least).astype(float), last)
    mud = np.where(mud < 0.8, 0, mud)[..., None]
    return pixels * (1 - mud) + mud * _BROWN


def _water(liquid: Floats) -> Floats:
    """Return how bright drops are, (N, H, W) from 0 to 1: their relief, lit from one side."""
    depth = (255 * liquid).clip(0, 255).astype(np.uint8)
    found = edges(depth, *_CANNY)
    distance = np.full(found.shape, float(_FARTHEST))  # to the nearest edge of the image
    for image in np.flatnonzero(found.any(axis=(1, 2))):
        near = ndimage.distance_transform_edt(~found[image])
        distance[image] = np.minimum(near, _FARTHEST)
    height = equalize(_mean3(distance).astype(np.uint8))
    relief = ndimage.correlate(height.astype(float), _RELIEF[None], mode="mirror").clip(0, 255)
    drops = depth * np.rint(_mean3(relief))
    highest = drops.max(axis=(1, 2), keepdims=True)
    # The original divides by zero where there is no drop; here nothing happens to such an image.
    return drops / np.where(highest > 0, highest, 1)


def _mean3(images: Floats) -> Floats:
    mean = ndimage.correlate(images * 1.0, np.full((1, 3, 3), 1 / 9), mode="mirror")
    return mean + 1e-9  # a sum of ninths that should be whole must not be cut to the number below


def edges(images: Bytes, low: float, high: float) -> npt.NDArray[np.bool_]:
    """Find edges as Canny does: ridges of the gradient above `low` that reach above `high`."""
    pixels = images.astype(float)
    changes = (ndimage.correlate1d(pixels, [-1, 0, 1], axis, mode="nearest") for axis in (2, 1))
    right, down = (
        ndimage.correlate1d(change, [1, 2, 1], across, mode="nearest")
        for change, across in zip(changes, (1, 2), strict=True)
    )
    steepness = np.abs(right) + np.abs(down)
    around = np.pad(steepness, ((0, 0), (1, 1), (1, 1)))
    height, width = images.shape[1:]

    def neighbour(dy: int, dx: int) -> Floats:
        return around[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    # Four directions of the gradient, apart at 22.5 and 67.5 degrees. Of two equal neighbours on a
    # ridge the first counts; on a diagonal neither does.
    flat = np.abs(down) < np.tan(np.pi / 8) * np.abs(right)
    steep = np.abs(down) > np.tan(3 * np.pi / 8) * np.abs(right)
    falling = (right < 0) == (down < 0)
    ways = [(0, 1, np.greater_equal), (1, 0, np.greater_equal), (1, 1, np.greater)]
    *ridges, other = (
        (steepness > neighbour(-dy, -dx)) & beats(steepness, neighbour(dy, dx))
        for dy, dx, beats in (*ways, (1, -1, np.greater))
    )
    ridge = np.select([flat, steep, falling], ridges, other)
    weak = ridge & (steepness > low)
    touching = np.zeros((3, 3, 3))
    touching[1] = 1  # in the image, not from one image to the next
    pieces, _ = ndimage.label(weak, touching)
    kept = np.unique(pieces[weak & (steepness > high)])
    return np.isin(pieces, kept) & weak


def equalize(images: Bytes) -> Bytes:
    """Spread the levels of each image over 0 to 255, so that each has its share of the pixels."""
    result = images.copy()
    for image in result:
        below = np.bincount(image.ravel(), minlength=256).cumsum()
        below -= below[image.min()]
        if rest := below[-1]:  # an image of one level stays as it is
            image[...] = np.rint(below.clip(0) * (255 / rest)).astype(np.uint8)[image]
    return result
