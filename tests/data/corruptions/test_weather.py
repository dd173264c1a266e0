import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from freetickets.data.corruptions import SEVERITIES, corrupt, weather
from freetickets.data.corruptions.apply import Streams
from freetickets.data.corruptions.weather import edges, equalize
from freetickets.seeds import derive


def _plasma_by_points(noise, size, decay):
    """Diamonds and squares one point after the other, with the noise in the same order."""
    grid, numbers = np.zeros((size, size)), iter(noise)
    step, amplitude = size, 100.0

    def set_points(points, around):
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


@pytest.mark.parametrize("severity", SEVERITIES)
def test_fog_adds_plasma_and_scales_by_the_brightest_value(photos, severity):
    strength, decay = [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)][severity - 1]
    noise = Streams(derive(0, "fog", severity), 0, 1).draw(lambda rng: rng.uniform(-1, 1, 1023))
    dim = photos[:1] // 2
    brightest = dim.max() / 255
    clouds = _plasma_by_points(noise[0], 32, decay)
    expected = (dim[0] / 255 + strength * clouds[..., None]) * brightest / (brightest + strength)
    assert np.abs(corrupt(dim, "fog", severity)[0] - 255 * expected + 0.5).max() < 0.501


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_only_brightens_and_bleaches_to_its_share(photos, severity):
    result = corrupt(photos, "snow", severity).astype(int)
    kept = (0.95, 0.9, 0.9, 0.85, 0.8)[severity - 1]
    grey = photos @ np.array([0.299, 0.587, 0.114])
    bleached = np.maximum(photos, (1.5 * grey + 127.5)[..., None])
    least = np.minimum(kept * photos + (1 - kept) * bleached, 255)
    assert (result >= np.floor(least - 0.01)).all()
    layer = (result - least)[~(result == 255).any(axis=3)]
    # Flakes are white: what they add is the same in all channels, but for what is cut off.
    assert np.ptp(layer, axis=1).max() < 1.01


def test_snow_falls_down_twice_the_second_time_turned_around():
    dark = np.zeros((100, 32, 32), np.uint8)
    for severity in SEVERITIES:
        flakes = corrupt(dark, "snow", severity).astype(float)
        assert np.array_equal(flakes, flakes[:, ::-1, ::-1])
        assert flakes.std(axis=(1, 2)).min() > 1
        down, across = (np.abs(np.diff(flakes, axis=axis)).mean() for axis in (1, 2))
        assert down < 0.6 * across


def _edges_by_pixels(image, low, high):
    """Canny's edges, one pixel after the other."""
    height, width = image.shape
    padded = np.pad(image.astype(int), 1, "edge")
    right, down = np.zeros((2, height, width), int)
    for y, x in np.ndindex(height, width):
        window = padded[y : y + 3, x : x + 3]
        right[y, x] = (window[:, 2] - window[:, 0]) @ [1, 2, 1]
        down[y, x] = (window[2] - window[0]) @ [1, 2, 1]
    steep = np.abs(right) + np.abs(down)

    def at(y, x):
        return int(steep[y, x]) if 0 <= y < height and 0 <= x < width else 0

    ridge = np.zeros((height, width), bool)
    for y, x in np.argwhere(steep > low):
        here = at(y, x)
        angle = np.degrees(np.arctan2(abs(down[y, x]), abs(right[y, x])))
        if angle < 22.5:
            ridge[y, x] = here > at(y, x - 1) and here >= at(y, x + 1)
        elif angle > 67.5:
            ridge[y, x] = here > at(y - 1, x) and here >= at(y + 1, x)
        else:
            side = 1 if (right[y, x] < 0) == (down[y, x] < 0) else -1
            ridge[y, x] = here > at(y - 1, x - side) and here > at(y + 1, x + side)
    found = ridge & (steep > high)
    while True:  # weak edges that touch a found one are found
        touched = ridge & ndimage.binary_dilation(found, np.ones((3, 3)))
        if (touched == found).all():
            return found
        found = touched


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999))
def test_edges_are_cannys(seed):
    rng = np.random.default_rng(seed)
    drops = ndimage.gaussian_filter(rng.normal(0.62, 0.15, (3, 16, 14)), (0, 0.7, 0.7))
    images = (255 * np.where(drops < 0.7, 0, drops)).clip(0, 255).astype(np.uint8)
    smooth = (255 * drops).clip(0, 255).astype(np.uint8)  # with weak edges
    for batch in (images, smooth):
        for image, result in zip(batch, edges(batch, 50, 150), strict=True):
            assert np.array_equal(result, _edges_by_pixels(image, 50, 150))


def test_equalized_levels_have_their_share_of_pixels():
    images = np.random.default_rng(0).binomial(20, 0.2, (4, 16, 16)).astype(np.uint8)
    for image, result in zip(images, equalize(images), strict=True):
        lowest = (image == image.min()).sum()
        for level in np.unique(image):
            share = ((image <= level).sum() - lowest) / (image.size - lowest)
            assert set(result[image == level]) == {round(255 * share)}
    flat = np.full((1, 5, 5), 20, np.uint8)
    assert np.array_equal(equalize(flat), flat)


@pytest.mark.parametrize("severity", [4, 5])
def test_mud_replaces_pixels_by_brown(photos, severity):
    smoothness, level = {4: (0.7, 0.69), 5: (0.5, 0.68)}[severity]
    streams = Streams(derive(0, "spatter", severity), 0, 12)
    noise = streams.draw(lambda rng: rng.normal(0.65, 0.1, (32, 32)))
    result = corrupt(photos, "spatter", severity)
    for number in range(12):
        liquid = ndimage.gaussian_filter(noise[number], smoothness, mode="nearest")
        mud = ndimage.gaussian_filter((liquid > level) * 1.0, 0.6, mode="nearest")
        mud[mud < 0.8] = 0
        expected = mud[..., None] * [63, 42, 20] + (1 - mud[..., None]) * photos[number]
        assert np.array_equal(result[number][mud == 0], photos[number][mud == 0])
        assert np.abs(result[number] - expected + 0.5).max() < 0.501
        assert 0 < (mud > 0).mean() < 0.5


@pytest.mark.parametrize("severity", [1, 2, 3])
def test_water_only_brightens_with_pale_turquoise_of_half_strength(severity):
    black = np.zeros((60, 32, 32, 3), np.uint8)
    result = corrupt(black, "spatter", severity).astype(float)
    assert result.max(axis=(1, 2)).max(axis=0).tolist() == [87, 119, 119]  # half of (175, 238, 238)
    assert np.abs(result[..., 1] * 175 / 238 - result[..., 0]).max() < 1.01
    assert np.array_equal(result[..., 1], result[..., 2])
    wet = (result > 0).any(axis=3).mean()
    assert 0.001 < wet < 0.5
    assert not weather._water(np.zeros((2, 8, 8))).any()  # without a drop nothing changes
