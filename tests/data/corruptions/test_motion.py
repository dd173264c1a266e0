from __future__ import annotations

from math import ceil, cos, exp, radians, sin

import numpy as np
import pytest

from freetickets.data.corruptions import corrupt
from freetickets.data.corruptions.blur import stroke


@pytest.mark.parametrize("angle", [-135.0, -90.0, -45.0, -17.3, 0.0, 30.0, 45.0])
def test_a_stroke_is_a_weighted_walk_from_each_pixel(photos: np.ndarray, angle: float) -> None:
    radius, sigma = 4, 2.0
    weights = [exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    result = stroke(photos[:1], radius, sigma, np.array([angle]))
    for y in range(0, 32, 3):
        for x in range(0, 32, 3):
            total = np.zeros(3)
            for i, weight in enumerate(weights):
                row = min(max(y + ceil(i * sin(radians(angle)) - 0.5), 0), 31)
                column = min(max(x + ceil(i * cos(radians(angle)) - 0.5), 0), 31)
                total += weight / sum(weights) * photos[0, row, column]
            assert (total - result[0, y, x]).max() < 1  # cut off
            assert (total - result[0, y, x]).min() > -0.5 / 257 - 1e-3


def test_a_stroke_is_what_imagemagick_draws() -> None:
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


def test_a_flat_image_stays_as_it_is() -> None:
    image = np.full((3, 16, 16, 3), 77, np.uint8)
    for severity in range(1, 6):
        assert np.array_equal(corrupt(image, "motion_blur", severity), image)


def test_motion_is_within_45_degrees_of_level_and_falls_to_one_side() -> None:
    dots = np.zeros((400, 41, 41), np.uint8)
    dots[:, 20, 20] = 255
    smeared = corrupt(dots, "motion_blur", 5).astype(float)
    y, x = np.mgrid[-20:21, -20:21]
    mass = smeared.sum(axis=(1, 2))
    down, right = (smeared * y).sum(axis=(1, 2)) / mass, (smeared * x).sum(axis=(1, 2)) / mass
    angles = np.degrees(np.arctan2(down, right))
    # What lies to the right of a pixel is mixed into it: a dot spreads to the left.
    turned = (angles + 360) % 360 - 180
    assert np.abs(turned).max() < 50
    assert turned.std() == pytest.approx(90 / 12**0.5, rel=0.15)
    assert abs(turned.mean()) < 5


def test_each_severity_is_a_longer_stroke() -> None:
    dot = np.zeros((200, 41, 41), np.uint8)
    dot[:, 20, 20] = 255
    peaks = [corrupt(dot, "motion_blur", severity)[:, 20, 20].mean() for severity in range(1, 6)]
    expected = []
    for radius, sigma in ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)):
        expected.append(255 / sum(exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)))
    assert peaks == pytest.approx(np.floor(expected), abs=0.01)
