from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets.data.augment import AUGMENTATIONS, CropFlip, crop_flip


def pixel_by_pixel(image, pad, top, left, mirrored, reflect):
    """One image, the slow way: look up where each pixel of the crop comes from."""
    channels, height, width = image.shape
    result = np.zeros_like(image)
    for c, y, x in np.ndindex(channels, height, width):
        row, column = y + top - pad, (width - 1 - x if mirrored else x) + left - pad
        if reflect:
            row, column = abs(row), abs(column)
            row = min(row, 2 * (height - 1) - row)
            column = min(column, 2 * (width - 1) - column)
        if 0 <= row < height and 0 <= column < width:
            result[c, y, x] = image[c, row, column]
    return result


@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 4),
    channels=st.integers(1, 3),
    height=st.integers(5, 9),
    width=st.integers(5, 9),
    pad=st.integers(1, 4),
    border=st.sampled_from(["constant", "reflect"]),
)
def test_a_batch_is_augmented_like_its_images_one_by_one(
    seed, count, channels, height, width, pad, border
):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, channels, height, width), dtype=np.uint8)
    draws = CropFlip.draw(rng, count, pad)
    result = crop_flip(images, draws, border)
    assert result.shape == images.shape
    assert result.dtype == np.uint8
    for i, image in enumerate(images):
        expected = pixel_by_pixel(
            image, pad, draws.top[i], draws.left[i], draws.mirrored[i], border == "reflect"
        )
        assert np.array_equal(result[i], expected)


def test_all_offsets_and_both_sides_are_drawn_evenly():
    draws = CropFlip.draw(np.random.default_rng(0), 81_000, 4)
    counts = np.bincount(draws.top * 9 + draws.left, minlength=81)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert abs(draws.mirrored.mean() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("name", "pads"),
    [
        *[(name, (8, 4, 4, 2, 2, 1, 1, 1, 0)) for name in ("pad-crop-flip", "reflect-crop-flip")],
        *[(name, (4, 2, 2, 1, 1, 1, 1, 1, 0)) for name in ("translate", "translate-alternate")],
    ],
)
def test_images_move_by_an_eighth_or_a_sixteenth_of_a_side(name, pads):
    for side, pad in zip((64, 32, 28, 16, 14, 8, 3, 2, 1), pads, strict=True):
        assert AUGMENTATIONS[name].padding(side, side) == pad
        assert AUGMENTATIONS[name].padding(side, side + 30) == pad
