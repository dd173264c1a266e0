from __future__ import annotations

import numpy as np
import pytest

from freetickets.data.corruptions import SEVERITIES, corrupt


def _flat(level: int) -> np.ndarray:
    return np.full((40, 32, 32, 3), level, np.uint8)


@pytest.mark.parametrize(
    ("name", "deviations"),
    [
        ("gaussian_noise", (0.04, 0.06, 0.08, 0.09, 0.10)),
        ("speckle_noise", (0.06, 0.1, 0.12, 0.16, 0.2)),
    ],
)
def test_normal_noise_has_its_deviation_and_is_cut_not_rounded(
    name: str, deviations: tuple[float, ...]
) -> None:
    for severity, deviation in zip(SEVERITIES, deviations, strict=True):
        noise = corrupt(_flat(120), name, severity).astype(float) - 120
        expected = deviation * (255 if name == "gaussian_noise" else 120)
        assert noise.std() == pytest.approx(expected, rel=0.02)
        assert noise.mean() == pytest.approx(-0.5, abs=0.5)  # half a level is cut off on average


def test_speckle_leaves_black_black() -> None:
    assert not corrupt(_flat(0), "speckle_noise", 5).any()


@pytest.mark.parametrize("level", [20, 90, 150])
def test_shot_noise_counts_photons(level: int) -> None:
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


def test_impulse_noise_hits_each_channel_by_itself_half_black_half_white() -> None:
    for severity, amount in zip(SEVERITIES, (0.01, 0.02, 0.03, 0.05, 0.07), strict=True):
        result = corrupt(_flat(99), "impulse_noise", severity)
        assert set(np.unique(result)) == {0, 99, 255}
        assert (result != 99).mean() == pytest.approx(amount, rel=0.1)
        assert (result == 0).mean() == pytest.approx(amount / 2, rel=0.15)
        together = (result != 99).all(axis=3).mean()
        assert together < amount**2


def test_images_draw_different_noise() -> None:
    result = corrupt(_flat(120), "gaussian_noise", 3)
    assert len({image.tobytes() for image in result}) == 40
    again = corrupt(_flat(120), "gaussian_noise", 4)
    first, second = (values.astype(float).ravel() for values in (result, again))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02  # and severities are not scaled copies
