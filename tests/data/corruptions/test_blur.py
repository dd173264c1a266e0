"""Against loops over pixels, and the calls that the original makes to SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from freetickets.data.corruptions import SEVERITIES, blur, corrupt
from freetickets.data.corruptions.blur import disk, enlarge
from freetickets.data.corruptions.streams import Streams
from freetickets.seeds import derive


def _at_most_one_level(result: np.ndarray, expected: np.ndarray) -> None:
    """Where a sum should be whole, the last bit decides what is cut off."""
    difference = result.astype(float) - expected
    assert difference.min() > -1 - 1e-4
    assert difference.max() < 1e-4


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_blur_is_a_sum_over_neighbours(photos: np.ndarray, severity: int) -> None:
    sigma = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    reach = int(4 * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    taps /= taps.sum()
    padded = np.pad(photos[0].astype(float), ((reach, reach), (reach, reach), (0, 0)), "edge")
    expected = np.zeros((32, 32, 3))
    for y in range(32):
        for x in range(32):
            window = padded[y : y + 2 * reach + 1, x : x + 2 * reach + 1]
            expected[y, x] = np.einsum("i,j,ijc->c", taps, taps, window)
    _at_most_one_level(corrupt(photos, "gaussian_blur", severity)[0], expected)


def test_defocus_kernels_are_three_gaussians_a_plus_and_a_box() -> None:
    for number, sigma in enumerate((0.4, 0.5, 0.6)):
        line = np.exp(-(np.array([-1, 0, 1]) ** 2) / (2 * sigma**2))
        kernel = np.outer(line, line)
        assert np.allclose(disk(*blur._DISKS[number]), kernel / kernel.sum())
    plus = disk(*blur._DISKS[3])[1:-1, 1:-1]
    assert np.allclose(plus, 0.2 * np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]), atol=1e-5)
    assert np.allclose(disk(*blur._DISKS[4]), 1 / 9)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_mirrors_at_the_border(photos: np.ndarray, severity: int) -> None:
    kernel = disk(*blur._DISKS[severity - 1])
    reach = len(kernel) // 2
    padded = np.pad(
        photos.astype(float), ((0, 0), (reach, reach), (reach, reach), (0, 0)), "reflect"
    )
    expected = np.zeros(photos.shape)
    for dy in range(len(kernel)):
        for dx in range(len(kernel)):
            expected += kernel[dy, dx] * padded[:, dy : dy + 32, dx : dx + 32]
    _at_most_one_level(corrupt(photos, "defocus_blur", severity), expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_is_the_original_walk_over_pixels(photos: np.ndarray, severity: int) -> None:
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


def test_glass_moves_pixels_down_and_right_only() -> None:
    image = np.zeros((300, 9, 9), np.uint8)
    image[:, 4, 4] = 255
    where = np.argwhere(corrupt(image, "glass_blur", 1).max(axis=0) > 0)
    assert {tuple(place) for place in where} == {(4, 4), (4, 5), (5, 4), (5, 5)}


@pytest.mark.parametrize(("severity", "levels"), list(enumerate((7, 12, 16, 21, 26), 1)))
def test_zoom_blur_is_the_mean_of_scipys_zooms(
    photos: np.ndarray, severity: int, levels: int
) -> None:
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01)
    assert len(factors) == levels
    total = photos[:2].astype(float)
    for factor in factors:
        size = int(np.ceil(32 / factor))
        start = (32 - size) // 2
        for number in range(2):
            part = photos[number, start : start + size, start : start + size].astype(float)
            zoomed = ndimage.zoom(part, (factor, factor, 1), order=1)
            trim = (len(zoomed) - 32) // 2
            total[number] += zoomed[trim : trim + 32, trim : trim + 32]
    result = corrupt(photos[:2], "zoom_blur", severity).astype(float)
    difference = result - total / (levels + 1)
    assert difference.min() > -1.001
    assert difference.max() < 0.001


def test_enlarging_keeps_the_centre_of_planes_that_are_not_square() -> None:
    y, x = np.mgrid[:20, :33]
    bump = np.exp(-((y - 9.5) ** 2 / 30 + (x - 16) ** 2 / 60))
    larger = enlarge(bump[None], 1.5)[0]
    assert larger.shape == bump.shape
    assert ndimage.center_of_mass(larger) == pytest.approx((9.5, 16), abs=0.6)
    assert larger.sum() > 1.5 * bump.sum()
