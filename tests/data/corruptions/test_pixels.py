import colorsys
import io

import numpy as np
import pytest
from matplotlib import colors
from PIL import Image

from freetickets.data.corruptions import SEVERITIES, corrupt


def _flat(level):
    return np.full((40, 32, 32, 3), level, np.uint8)


@pytest.mark.parametrize(
    ("name", "deviations"),
    [
        ("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10)),
        ("speckle_noise", (0.06, 0.1, 0.12, 0.16, 0.2)),
    ],
)
def test_normal_noise_has_its_deviation_and_is_cut_not_rounded(name, deviations):
    for severity, deviation in zip(SEVERITIES, deviations, strict=True):
        noise = corrupt(_flat(120), name, severity).astype(float) - 120
        expected = deviation * (255 if name == "gaussian_noise" else 120)
        assert noise.std() == pytest.approx(expected, rel=0.02)
        assert noise.mean() == pytest.approx(-0.5, abs=0.5)  # half a level is cut off on average


def test_speckle_leaves_black_black():
    assert not corrupt(_flat(0), "speckle_noise", 5).any()


@pytest.mark.parametrize("level", [20, 90, 150])
def test_shot_noise_counts_photons(level):
    for severity, photons in zip(SEVERITIES, (500, 250, 100, 75, 50), strict=True):
        values = corrupt(_flat(level), "shot_noise", severity).astype(float)
        # A count k becomes floor(255 k / photons) (at most 255), so k can be read back.
        counts = np.ceil(values * photons / 255)
        mean = level / 255 * photons
        assert counts.mean() == pytest.approx(mean, rel=0.02)
        assert counts.var() == pytest.approx(mean, rel=0.05)
        if photons < 255:
            assert set(np.unique(values)) <= {
                255 * np.clip(k / photons, 0, 1) // 1 for k in range(photons + 1)
            }


def test_impulse_noise_hits_each_channel_by_itself_half_black_half_white():
    for severity, amount in zip(SEVERITIES, (0.01, 0.02, 0.03, 0.05, 0.07), strict=True):
        result = corrupt(_flat(99), "impulse_noise", severity)
        assert set(np.unique(result)) == {0, 99, 255}
        assert (result != 99).mean() == pytest.approx(amount, rel=0.1)
        assert (result == 0).mean() == pytest.approx(amount / 2, rel=0.15)
        together = (result != 99).all(axis=3).mean()
        assert together < amount**2


def test_images_draw_different_noise():
    result = corrupt(_flat(120), "gaussian_noise", 3)
    assert len({image.tobytes() for image in result}) == 40
    again = corrupt(_flat(120), "gaussian_noise", 4)
    first, second = (values.astype(float).ravel() for values in (result, again))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02  # and severities are not scaled copies


BRIGHTER = ((1, 0.05), (1, 0.1), (1, 0.15), (1, 0.2), (1, 0.3))
SATURATION = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))


def _close(result, expected):
    """Equal, but where the last bit of a whole number decides what is cut off."""
    whole = np.floor(expected + 1e-6)
    assert np.abs(result - whole).max() <= 1
    assert (result == whole).mean() > 0.9


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    ("name", "axis", "changes"), [("brightness", 2, BRIGHTER), ("saturate", 1, SATURATION)]
)
def test_brightness_changes_v_of_hsv_and_saturate_s(photos, severity, name, axis, changes):
    times, plus = changes[severity - 1]
    hsv = colors.rgb_to_hsv(photos / 255)
    hsv[..., axis] = np.clip(hsv[..., axis] * times + plus, 0, 1)
    _close(corrupt(photos, name, severity), 255 * colors.hsv_to_rgb(hsv))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("brightness", lambda h, s, v: colorsys.hsv_to_rgb(h, s, min(v + 0.3, 1))),
        ("saturate", lambda h, s, v: colorsys.hsv_to_rgb(h, min(2.5 * s + 0.2, 1), v)),
    ],
)
def test_all_corners_of_the_colour_cube_agree_with_colorsys(name, change):
    levels = [0, 1, 100, 128, 254, 255]
    cube = np.array([[r, g, b] for r in levels for g in levels for b in levels], np.uint8)
    result = corrupt(cube.reshape(1, -1, 1, 3), name, 5).reshape(-1, 3)
    for pixel, rgb in zip(result, cube, strict=True):
        expected = 255 * np.array(change(*colorsys.rgb_to_hsv(*(rgb / 255))))
        assert np.abs(pixel - expected + 0.5).max() < 0.501


def test_grey_is_tinted_red_at_high_saturation_and_stays_grey_below():
    grey = np.full((1, 2, 2, 3), 200, np.uint8)
    for severity in (1, 2, 3):
        assert np.array_equal(corrupt(grey, "saturate", severity), grey)
    assert corrupt(grey, "saturate", 4)[0, 0, 0].tolist() == [200, 180, 180]


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_is_a_pull_to_the_mean_of_each_channel(photos, severity):
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    means = np.array([[image[..., c].astype(float).mean() for c in range(3)] for image in photos])
    expected = factor * photos + (1 - factor) * means[:, None, None]
    _close(corrupt(photos, "contrast", severity), expected)


@pytest.mark.parametrize(("severity", "quality"), list(enumerate((80, 65, 58, 50, 40), 1)))
def test_jpeg_is_pillows(photos, severity, quality):
    for image, result in zip(photos, corrupt(photos, "jpeg_compression", severity), strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        assert np.array_equal(np.asarray(Image.open(file)), result)


@pytest.mark.parametrize(("severity", "size"), list(enumerate((30, 28, 27, 24, 20), 1)))
def test_pixelate_leaves_so_many_rows_and_columns(photos, severity, size):
    result = corrupt(photos, "pixelate", severity)
    for image, pixelated in zip(photos, result, strict=True):
        small = Image.fromarray(image).resize((size, size), Image.Resampling.BOX)
        large = small.resize((32, 32), Image.Resampling.BOX)
        assert np.array_equal(np.asarray(large), pixelated)
    # Some rows are doubled, so that `size` different ones are left.
    assert (np.diff(result.astype(int), axis=1) != 0).any(axis=(0, 2, 3)).sum() == size - 1
