from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from freetickets.data.convert import match_shape
from freetickets.errors import FreeTicketsError


def test_images_of_the_right_shape_are_left_as_they_are(rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (4, 3, 9, 7), dtype=np.uint8)
    assert match_shape(images, (3, 9, 7), "these", resize=False) is images
    assert match_shape(images, (3, 9, 7), "these", resize=True) is images


def test_images_of_another_shape_are_refused_unless_asked_for() -> None:
    images = np.zeros((2, 1, 28, 28), np.uint8)
    with pytest.raises(
        FreeTicketsError, match=r"digits are 1 x 28 x 28 .* takes 3 x 32 x 32: .* --resize"
    ):
        match_shape(images, (3, 32, 32), "digits", resize=False)


def test_grey_becomes_colour_by_repeating_and_colour_grey_by_its_luma(
    rng: np.random.Generator,
) -> None:
    grey = rng.integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    colour = match_shape(grey, (3, 8, 8), "these", resize=True)
    assert np.array_equal(colour, np.repeat(grey, 3, axis=1))
    assert np.array_equal(match_shape(colour, (1, 8, 8), "these", resize=True), grey)
    red = np.zeros((1, 3, 2, 2), np.uint8)
    red[:, 0] = 200
    luma = match_shape(red, (1, 2, 2), "red", resize=True)
    assert np.array_equal(luma, np.full((1, 1, 2, 2), round(0.299 * 200)))


def test_another_size_is_resized_and_its_centre_kept(rng: np.random.Generator) -> None:
    wide = np.zeros((1, 3, 4, 8), np.uint8)
    wide[..., :2] = 255  # the left quarter, which a square has no room for
    assert match_shape(wide, (3, 4, 4), "wide", resize=True).max() == 0
    image = rng.integers(0, 256, (1, 1, 6, 6), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(image[0, 0]).resize((12, 12), Image.Resampling.BICUBIC))
    assert np.array_equal(match_shape(image, (1, 12, 12), "one", resize=True)[0, 0], expected)


def test_what_is_neither_grey_nor_colour_can_not_be_converted() -> None:
    with pytest.raises(FreeTicketsError, match="only grey and colour"):
        match_shape(np.zeros((2, 4, 8, 8), np.uint8), (3, 8, 8), "these", resize=True)
