import colorsys
import io

import numpy as np
import pytest
from PIL import Image

from freetickets.data.corruptions import SEVERITIES, corrupt


def _flat(level):
    return np.full((40, 32, 32, 3), level, np.uint8)


def test_normal_noise_has_its_deviation_and_is_cut_not_rounded():
    for name, scale, deviations in (
        ("gaussian_noise", 255, (0.04, 0.06, 0.08, 0.09, 0.10)),
        ("speckle_noise", 120, (0.06, 0.1, 0.12, 0.16, 0.2)),
    ):
        found = [corrupt(_flat(120), name, severity).astype(float) - 120 for severity in SEVERITIES]
        for noise, deviation in zip(found, deviations, strict=True):
            assert noise.std() == pytest.approx(deviation * scale, rel=0.02)
            assert noise.mean() == pytest.approx(-0.5, abs=0.5)  # half a level is cut off
            assert len({image.tobytes() for image in noise}) == 40
        # Severities are not scaled copies of one another.
        assert abs(np.corrcoef(found[2].ravel(), found[3].ravel())[0, 1]) < 0.02


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
            assert set(np.unique(values)) <= {255 * k / photons // 1 for k in range(photons + 1)}


def test_impulse_noise_hits_each_channel_by_itself_half_black_half_white():
    for severity, amount in zip(SEVERITIES, (0.01, 0.02, 0.03, 0.05, 0.07), strict=True):
        result = corrupt(_flat(99), "impulse_noise", severity)
        assert set(np.unique(result)) == {0, 99, 255}
        assert (result != 99).mean() == pytest.approx(amount, rel=0.1)
        assert (result == 0).mean() == pytest.approx(amount / 2, rel=0.15)
        assert (result != 99).all(axis=3).mean() < amount**2


BRIGHTER = (0.05, 0.1, 0.15, 0.2, 0.3)
SATURATION = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_changes_v_of_hsv_and_saturate_s(severity):
    levels = [0, 1, 100, 128, 200, 254, 255]
    cube = np.array([[r, g, b] for r in levels for g in levels for b in levels], np.uint8)
    more, (times, plus) = BRIGHTER[severity - 1], SATURATION[severity - 1]
    for name, change in (
        ("brightness", lambda h, s, v: colorsys.hsv_to_rgb(h, s, min(v + more, 1))),
        ("saturate", lambda h, s, v: colorsys.hsv_to_rgb(h, min(times * s + plus, 1), v)),
    ):
        result = corrupt(cube.reshape(1, -1, 1, 3), name, severity).reshape(-1, 3)
        for pixel, rgb in zip(result, cube, strict=True):
            expected = 255 * np.array(change(*colorsys.rgb_to_hsv(*(rgb / 255))))
            assert np.abs(pixel - expected + 0.5).max() < 0.501


@pytest.mark.parametrize(
    ("severity", "factor", "quality", "size"),
    [(1, 0.75, 80, 30), (2, 0.5, 65, 28), (3, 0.4, 58, 27), (4, 0.3, 50, 24), (5, 0.15, 40, 20)],
)
def test_contrast_jpeg_and_pixelate_are_numpys_and_pillows(photos, severity, factor, quality, size):
    names = ("contrast", "jpeg_compression", "pixelate")
    results = [corrupt(photos, name, severity) for name in names]
    for photo, paler, compressed, coarse in zip(photos, *results, strict=True):
        expected = factor * photo + (1 - factor) * photo.mean(axis=(0, 1))
        assert np.abs(paler - expected + 0.5).max() < 0.501
        file, picture = io.BytesIO(), Image.fromarray(photo)
        picture.save(file, "JPEG", quality=quality)
        assert np.array_equal(np.asarray(Image.open(file)), compressed)
        small = picture.resize((size, size), Image.Resampling.BOX)
        assert np.array_equal(np.asarray(small.resize((32, 32), Image.Resampling.BOX)), coarse)
