from __future__ import annotations

import colorsys
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib import colors

from freetickets.data.corruptions import SEVERITIES, corrupt

BRIGHTER = (0.05, 0.1, 0.15, 0.2, 0.3)
SATURATION = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))


def _close(result: np.ndarray, expected: np.ndarray) -> None:
    """Equal, but where the last bit of a whole number decides what is cut off."""
    whole = np.floor(expected + 1e-6)
    assert np.abs(result - whole).max() <= 1
    assert (result == whole).mean() > 0.9


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_adds_to_v_of_hsv(photos: np.ndarray, severity: int) -> None:
    hsv = colors.rgb_to_hsv(photos / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + BRIGHTER[severity - 1], 0, 1)
    _close(corrupt(photos, "brightness", severity), 255 * colors.hsv_to_rgb(hsv))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_saturate_changes_s_of_hsv(photos: np.ndarray, severity: int) -> None:
    times, plus = SATURATION[severity - 1]
    hsv = colors.rgb_to_hsv(photos / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * times + plus, 0, 1)
    _close(corrupt(photos, "saturate", severity), 255 * colors.hsv_to_rgb(hsv))


def _brightest(h: float, s: float, v: float) -> tuple[float, float, float]:
    return colorsys.hsv_to_rgb(h, s, min(v + 0.3, 1))


def _most_saturated(h: float, s: float, v: float) -> tuple[float, float, float]:
    return colorsys.hsv_to_rgb(h, min(2.5 * s + 0.2, 1), v)


@pytest.mark.parametrize(
    ("name", "change"), [("brightness", _brightest), ("saturate", _most_saturated)]
)
def test_all_corners_of_the_colour_cube_agree_with_colorsys(
    name: str, change: Callable[[float, float, float], tuple[float, float, float]]
) -> None:
    levels = [0, 1, 100, 128, 254, 255]
    cube = np.array([[r, g, b] for r in levels for g in levels for b in levels], np.uint8)
    result = corrupt(cube.reshape(1, -1, 1, 3), name, 5).reshape(-1, 3)
    for pixel, rgb in zip(result, cube, strict=True):
        expected = 255 * np.array(change(*colorsys.rgb_to_hsv(*(rgb / 255))))
        assert np.abs(pixel - expected + 0.5).max() < 0.501


def test_grey_is_tinted_red_at_high_saturation_and_stays_grey_below() -> None:
    grey = np.full((1, 2, 2, 3), 200, np.uint8)
    for severity in (1, 2, 3):
        assert np.array_equal(corrupt(grey, "saturate", severity), grey)
    assert corrupt(grey, "saturate", 4)[0, 0, 0].tolist() == [200, 180, 180]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_is_a_pull_to_the_mean_of_each_channel(photos: np.ndarray, severity: int) -> None:
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    means = np.array([[image[..., c].astype(float).mean() for c in range(3)] for image in photos])
    expected = factor * photos + (1 - factor) * means[:, None, None]
    _close(corrupt(photos, "contrast", severity), expected)
