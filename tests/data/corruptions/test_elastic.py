from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from freetickets.data.corruptions import SEVERITIES, corrupt
from freetickets.data.corruptions.blur import _shears, sample
from freetickets.data.corruptions.streams import Streams
from freetickets.seeds import derive

SHARES = (
    (0, 0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)


@settings(max_examples=40, deadline=None)
@given(
    border=st.sampled_from(["mirror", "reflect"]),
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    seed=st.integers(0, 99),
)
def test_sampling_is_scipys_map_coordinates(
    border: Literal["mirror", "reflect"], height: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    images = rng.random((2, height, width, 3))
    y, x = rng.uniform(-20, 20, (2, 2, 5, 4))
    result = sample(images, y, x, border)
    for number in range(2):
        for channel in range(3):
            expected = ndimage.map_coordinates(
                images[number, ..., channel], [y[number], x[number]], order=1, mode=border
            )
            assert np.allclose(result[number, ..., channel], expected)


def test_the_shear_takes_the_moved_points_back_to_where_they_were() -> None:
    moves = np.random.default_rng(0).uniform(-3, 3, (4, 3, 2))
    maps = _shears(32, 32, moves)
    corners = np.array([[26, 26], [26, 6], [6, 6]])
    for matrix, move in zip(maps, moves, strict=True):
        assert np.allclose(np.c_[corners + move, np.ones(3)] @ matrix, corners)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_elastic_is_a_shear_then_a_smooth_pull(photos: np.ndarray, severity: int) -> None:
    strength, sigma, reach = 32 * np.array(SHARES[severity - 1])
    streams = Streams(derive(0, "elastic_transform", severity), 0, 1)
    move = streams.draw(lambda rng: rng.uniform(-reach, reach, (3, 2)))[0]
    corners = np.array([[26.0, 26.0], [26.0, 6.0], [6.0, 6.0]])
    # The affine map from the old points to the new ones, inverted as images are warped.
    forward = np.linalg.solve(np.c_[corners, np.ones(3)], corners + move).T
    forward = np.vstack([forward, [0, 0, 1]])
    y, x = np.mgrid[:32, :32]
    old = np.linalg.inv(forward) @ np.stack([x.ravel(), y.ravel(), np.ones(1024)])
    image = np.stack(
        [
            ndimage.map_coordinates(photos[0, ..., c] / 255, old[[1, 0]], order=1, mode="mirror")
            for c in range(3)
        ],
        axis=-1,
    ).reshape(32, 32, 3)
    if severity > 1:
        pull = streams.draw(lambda rng: rng.uniform(-1, 1, (2, 32, 32)))[0]
        right, down = (
            strength * ndimage.gaussian_filter(part, sigma, mode="reflect", truncate=3)
            for part in pull
        )
        image = np.stack(
            [
                ndimage.map_coordinates(
                    image[..., c], [y + down, x + right], order=1, mode="reflect"
                )
                for c in range(3)
            ],
            axis=-1,
        )
    result = corrupt(photos[:1], "elastic_transform", severity)[0]
    assert np.abs(result - 255 * image + 0.5).max() < 0.501
