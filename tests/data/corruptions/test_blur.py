"""Against loops over pixels, and the calls that the original makes to SciPy."""

from functools import partial
from math import ceil, exp

import numpy as np
import pytest
from scipy import ndimage

from freetickets.data.corruptions import SEVERITIES, corrupt
from freetickets.data.corruptions.apply import LEVELS, Streams
from freetickets.data.corruptions.blur import disk, stroke
from freetickets.seeds import derive


def _at_most_one_level(result, expected, bit=1e-4):
    """Where a sum should be whole, the last bit decides what is cut off."""
    difference = result.astype(float) - expected
    assert difference.min() > -1 - bit
    assert difference.max() < bit


def _gaussian(sigma, reach):
    line = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.outer(line, line) / line.sum() ** 2


GAUSSIANS = [_gaussian(sigma, int(4 * sigma + 0.5)) for sigma in (0.4, 0.6, 0.7, 0.8, 1.0)]
PLUS = 0.2 * np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])
DISKS = [*(_gaussian(sigma, 1) for sigma in (0.4, 0.5, 0.6)), PLUS, np.full((3, 3), 1 / 9)]


@pytest.mark.parametrize(
    ("name", "kernels", "border"),
    [("gaussian_blur", GAUSSIANS, "edge"), ("defocus_blur", DISKS, "reflect")],
)
def test_a_blur_is_a_sum_over_neighbours(photos, name, kernels, border):
    for severity, kernel in zip(SEVERITIES, kernels, strict=True):
        if name == "defocus_blur":
            real = disk(*LEVELS[name][severity - 1])
            cut = (len(real) - 3) // 2
            assert np.allclose(real[cut : cut + 3, cut : cut + 3], kernel, atol=1e-5)
            kernel = real
        reach = len(kernel) // 2
        padded = np.pad(photos[0] * 1.0, ((reach, reach), (reach, reach), (0, 0)), border)
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel.shape, axis=(0, 1))
        expected = np.einsum("ij,yxcij->yxc", kernel, windows)
        _at_most_one_level(corrupt(photos, name, severity)[0], expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_is_the_original_walk_over_pixels(photos, severity):
    sigma, rounds = [(0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)][severity - 1]
    result = corrupt(photos[:3], "glass_blur", severity, seed=9)
    streams = Streams(derive(9, "glass_blur", severity), 0, 3)
    jumps = [streams.draw(lambda rng: rng.integers(0, 2, (2, 30, 30))) for _ in range(rounds)]
    for number in range(3):
        image = ndimage.gaussian_filter(photos[number] / 255, (sigma, sigma, 0), mode="nearest")
        image = (image * 255).astype(np.uint8)
        for jump in jumps:
            up, left = jump[number]
            for h in range(31, 1, -1):  # from the last pixel to the first
                for w in range(31, 1, -1):
                    there = h - up[h - 2, w - 2], w - left[h - 2, w - 2]
                    one, other = image[h, w], image[there]  # views: so this is no swap
                    image[h, w] = other
                    image[there] = one
        image = ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest")
        assert np.array_equal(result[number], (255 * image.clip(0, 1)).astype(np.uint8))


@pytest.mark.parametrize(("severity", "levels"), list(enumerate((7, 12, 16, 21, 26), 1)))
def test_zoom_blur_is_the_mean_of_scipys_zooms(photos, severity, levels):
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
    assert len(factors) == levels
    image = photos[0, :, :25]
    total = image.astype(float)
    for factor in factors:
        part = image.astype(float)
        for axis, size in enumerate((32, 25)):
            kept = ceil(size / factor)
            start = (size - kept) // 2
            part = part.take(range(start, start + kept), axis)
        zoomed = ndimage.zoom(part, (factor, factor, 1), order=1)
        top, left = (len(zoomed) - 32) // 2, (zoomed.shape[1] - 25) // 2
        total += zoomed[top : top + 32, left : left + 25]
    result = corrupt(image[None], "zoom_blur", severity)[0]
    _at_most_one_level(result, total / (levels + 1), 1e-3)


def test_a_stroke_is_what_imagemagick_draws():
    """By `convert IN.png -motion-blur 6x1.5+30 OUT.png` of ImageMagick 6.9.11 (16 bits)."""
    image = (np.arange(48) ** 2 * 7 % 256).reshape(1, 6, 8).astype(np.uint8)
    assert stroke(image, 6, 1.5, np.array([30.0]))[0].tolist() == [
        [42, 42, 83, 97, 125, 168, 145, 76],
        [152, 140, 151, 121, 172, 126, 80, 57],
        [114, 220, 202, 229, 138, 44, 83, 108],
        [124, 82, 159, 167, 164, 195, 125, 89],
        [87, 177, 156, 122, 129, 113, 127, 139],
        [184, 165, 121, 172, 178, 139, 152, 103],
    ]


def test_motion_is_within_45_degrees_of_level_to_one_side_and_longer_with_each_severity():
    dots = np.zeros((400, 41, 41), np.uint8)
    dots[:, 20, 20] = 255
    smeared = [corrupt(dots, "motion_blur", severity).astype(float) for severity in SEVERITIES]
    y, x = np.mgrid[-20:21, -20:21]
    mass = smeared[4].sum(axis=(1, 2))
    down, right = ((smeared[4] * side).sum(axis=(1, 2)) / mass for side in (y, x))
    angles = np.degrees(np.arctan2(down, right))
    # What lies to the right of a pixel is mixed into it: a dot spreads to the left.
    turned = (angles + 360) % 360 - 180
    assert np.abs(turned).max() < 50
    assert turned.std() == pytest.approx(90 / 12**0.5, rel=0.15)
    assert abs(turned.mean()) < 5
    strokes = ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))
    sums = [sum(exp(-(i**2) / (2 * s**2)) for i in range(2 * radius + 1)) for radius, s in strokes]
    peaks = [each[:, 20, 20].mean() for each in smeared]
    assert peaks == pytest.approx(np.floor(255 / np.array(sums)), abs=0.01)


SHARES = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))


def by_scipy(image, places, border):
    """An image read between its pixels, channel by channel."""
    channels = (image[..., channel] for channel in range(3))
    read = partial(ndimage.map_coordinates, coordinates=places, order=1, mode=border)
    return np.stack([read(channel) for channel in channels], axis=-1)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_is_a_shear_then_a_smooth_pull(photos, severity):
    strength, sigma, reach = 32 * np.array(SHARES[severity - 1])
    streams = Streams(derive(0, "elastic_transform", severity), 0, 1)
    move = streams.draw(lambda rng: rng.uniform(-reach, reach, (3, 2)))[0]
    corners = np.array([[26.0, 26.0], [26.0, 6.0], [6.0, 6.0]])
    # The affine map from the old points to the new ones, inverted as images are warped.
    forward = np.linalg.solve(np.c_[corners, np.ones(3)], corners + move).T
    forward = np.vstack([forward, [0, 0, 1]])
    y, x = np.mgrid[:32, :32]
    old = np.linalg.inv(forward) @ np.stack([x.ravel(), y.ravel(), np.ones(1024)])
    image = by_scipy(photos[0] / 255, old[[1, 0]].reshape(2, 32, 32), "mirror")
    if severity > 1:
        pull = streams.draw(lambda rng: rng.uniform(-1, 1, (2, 32, 32)))[0]
        smooth = partial(ndimage.gaussian_filter, sigma=sigma, mode="reflect", truncate=3)
        right, down = (strength * smooth(part) for part in pull)
        image = by_scipy(image, [y + down, x + right], "reflect")
    result = corrupt(photos[:1], "elastic_transform", severity)[0]
    assert np.abs(result - 255 * image + 0.5).max() < 0.501
