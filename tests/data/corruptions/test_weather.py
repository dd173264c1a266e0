from __future__ import annotations

import numpy as np
import pytest

from freetickets.data.corruptions import SEVERITIES, corrupt, weather
from freetickets.data.corruptions.streams import Streams
from freetickets.data.corruptions.weather import plasma
from freetickets.seeds import derive


def _plasma_by_points(noise: np.ndarray, size: int, decay: float) -> np.ndarray:
    """Diamonds and squares one point after the other, with the noise in the same order."""
    grid, numbers = np.zeros((size, size)), iter(noise)
    step, amplitude = size, 100.0

    def set_points(points: list[tuple[int, int]], around: list[tuple[int, int]]) -> None:
        for y, x in points:
            corners = [grid[(y + dy) % size, (x + dx) % size] for dy, dx in around]
            grid[y, x] = sum(corners) / 4 + amplitude**2 * next(numbers)

    while step >= 2:
        half = step // 2
        lattice, middle = range(0, size, step), range(half, size, step)
        diagonal = [(-half, -half), (-half, half), (half, -half), (half, half)]
        straight = [(-half, 0), (half, 0), (0, -half), (0, half)]
        set_points([(y, x) for y in middle for x in middle], diagonal)
        set_points([(y, x) for y in lattice for x in middle], straight)
        set_points([(y, x) for y in middle for x in lattice], straight)
        step, amplitude = half, amplitude / decay
    return (grid - grid.min()) / (grid.max() - grid.min())


@pytest.mark.parametrize(("size", "decay"), [(2, 3.0), (8, 2.0), (32, 3.0), (32, 1.75)])
def test_plasma_is_diamonds_and_squares_point_by_point(size: int, decay: float) -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, (3, size**2 - 1))
    for clouds, numbers in zip(plasma(noise, size, decay), noise, strict=True):
        assert np.allclose(clouds, _plasma_by_points(numbers, size, decay))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_scales_by_the_brightest_value(
    photos: np.ndarray, severity: int
) -> None:
    strength, decay = [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)][severity - 1]
    noise = Streams(derive(0, "fog", severity), 0, 1).draw(lambda rng: rng.uniform(-1, 1, 1023))
    dim = photos[:1] // 2
    brightest = dim.max() / 255
    clouds = _plasma_by_points(noise[0], 32, decay)
    expected = (dim[0] / 255 + strength * clouds[..., None]) * brightest / (brightest + strength)
    assert np.abs(corrupt(dim, "fog", severity)[0] - 255 * expected + 0.5).max() < 0.501


def test_black_stays_black_in_fog() -> None:
    assert not corrupt(np.zeros((2, 32, 32, 3), np.uint8), "fog", 5).any()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_only_brightens_and_bleaches_to_its_share(photos: np.ndarray, severity: int) -> None:
    result = corrupt(photos, "snow", severity).astype(int)
    kept = weather._SNOW[severity - 1][-1]
    grey = photos @ np.array([0.299, 0.587, 0.114])
    bleached = np.maximum(photos, (1.5 * grey + 127.5)[..., None])
    least = np.minimum(kept * photos + (1 - kept) * bleached, 255)
    assert (result >= np.floor(least - 0.01)).all()
    layer = (result - least)[~(result == 255).any(axis=3)]
    # Flakes are white: what they add is the same in all channels, but for what is cut off.
    assert np.ptp(layer, axis=1).max() < 1.01


def test_snow_falls_twice_the_second_time_turned_around() -> None:
    dark = np.zeros((50, 32, 32, 3), np.uint8)
    for severity in SEVERITIES:
        result = corrupt(dark, "snow", severity)
        assert np.array_equal(result, result[:, ::-1, ::-1])
        assert result.std(axis=(1, 2)).min() > 1


def test_flakes_fall_down_rather_than_sideways() -> None:
    dark = np.zeros((100, 32, 32), np.uint8)
    for severity in SEVERITIES:
        flakes = corrupt(dark, "snow", severity).astype(float)
        down, across = (np.abs(np.diff(flakes, axis=axis)).mean() for axis in (1, 2))
        assert down < 0.6 * across
