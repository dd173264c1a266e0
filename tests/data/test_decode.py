import numpy as np
import pytest
from PIL import Image

from freetickets.data.decode import (
    centre_crop,
    fit,
    image_size_and_channels,
    match_shape,
    open_image,
    pixels,
    random_crop,
)


def gradient(width, height):
    """Red tells the column, green the row."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, 0 * x], -1).astype(np.uint8))


def test_a_png_is_read_back_exactly_and_a_bomb_refused(tmp_path, rng, refused, monkeypatch):
    array = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    assert np.array_equal(pixels(open_image(tmp_path / "a.png", 3)), array.transpose(2, 0, 1))
    assert image_size_and_channels(tmp_path / "a.png") == ((5, 7), 3)
    Image.new("L", (40, 40)).save(tmp_path / "a.png")
    for limit in (1000, 100):  # Pillow warns above the limit, and raises above twice the limit
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        refused("too many pixels", open_image, tmp_path / "a.png", 1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_mode_becomes_grey_or_colour(tmp_path, mode, channels):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (4, 4), "white").convert(mode).save(path)
    assert pixels(open_image(path, channels)).tolist() == [[[255] * 4] * 4] * channels


def test_sixteen_bits_are_scaled_thirty_two_refused_and_a_palette_may_have_alpha(refused, tmp_path):
    Image.fromarray(np.full((2, 2), 0x8000, np.uint16)).save(tmp_path / "a.png")
    assert (pixels(open_image(tmp_path / "a.png", 1)) == 0x80).all()
    assert image_size_and_channels(tmp_path / "a.png")[1] == 1
    Image.new("F", (2, 2)).save(tmp_path / "a.tif")
    refused("32 bits", open_image, tmp_path / "a.tif", 1)
    refused("1 or 3 channels", open_image, tmp_path / "a.tif", 4)
    Image.new("P", (2, 2)).save(tmp_path / "a.png", transparency=b"\x00\x80")
    assert pixels(open_image(tmp_path / "a.png", 3)).shape == (3, 2, 2)  # without a warning


def test_another_size_is_resized_its_centre_kept_and_the_right_size_left_alone(rng):
    image = gradient(20, 10)
    assert np.array_equal(pixels(fit(image, 10, 20)), pixels(image))
    square = pixels(fit(image, 10, 10))
    assert square.shape == (3, 10, 10)
    assert 60 < square[0].min() < 70  # a quarter is cut off at the left
    wide = np.zeros((1, 3, 4, 8), np.uint8)
    wide[..., :2] = 255  # the left quarter, which a square has no room for
    assert match_shape(wide, (3, 4, 4), "wide", resize=True).max() == 0
    image = rng.integers(0, 256, (1, 1, 6, 6), dtype=np.uint8)
    expected = np.asarray(Image.fromarray(image[0, 0]).resize((12, 12), Image.Resampling.BICUBIC))
    assert np.array_equal(match_shape(image, (1, 12, 12), "one", resize=True)[0, 0], expected)


@pytest.mark.parametrize("size", [(500, 375), (300, 600), (80, 90)])
def test_the_centre_crop_is_seven_eighths_of_the_shorter_side(size):
    crop = pixels(centre_crop(gradient(*size), 224, 224)).astype(float)
    assert crop.shape == (3, 224, 224)
    share = 7 / 8 * min(size) / np.array(size)
    for channel in range(2):
        assert abs((crop[channel].max() - crop[channel].min()) / 255 - share[channel]) < 0.02
        assert abs(crop[channel].mean() - 127) < 2


def test_random_crops_have_the_areas_ratios_and_mirrors_of_imagenet():
    image = gradient(400, 300)
    areas, ratios, mirrors = [], [], []
    for seed in range(400):
        crop = pixels(random_crop(image, 32, 32, np.random.default_rng(seed))).astype(float)
        # Pixel centres lie half a pixel inside the crop.
        wide = (crop[0].max() - crop[0].min()) / 255 * 32 / 31 * 400
        high = (crop[1].max() - crop[1].min()) / 255 * 32 / 31 * 300
        areas.append(wide * high / (400 * 300))
        ratios.append(wide / high)
        mirrors.append(crop[0, 0, 0] > crop[0, 0, -1])
    assert 0.05 < min(areas) < 0.15
    assert 0.85 < max(areas) < 1.03
    assert 0.70 < min(ratios) < 0.80
    assert 1.28 < max(ratios) < 1.40
    assert 0.4 < np.mean(mirrors) < 0.6
    for size in ((2000, 10), (10, 2000), (1, 1)):  # no crop of an allowed ratio is found by chance
        crop = random_crop(gradient(*size), 16, 16, np.random.default_rng(0))
        assert crop.size == (16, 16)


def test_grey_becomes_colour_by_repeating_and_colour_grey_by_its_luma(refused, rng):
    grey = rng.integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)
    for resize in (False, True):
        assert match_shape(grey, (1, 8, 8), "these", resize) is grey
    refused("only grey and colour", match_shape, grey, (4, 8, 8), "these", resize=True)
    words = "are 1 x 8 x 8, .* 3 x 8 x 8: convert by --resize"
    refused(words, match_shape, grey, (3, 8, 8), "these", resize=False)
    colour = match_shape(grey, (3, 8, 8), "these", resize=True)
    assert np.array_equal(colour, np.repeat(grey, 3, axis=1))
    assert np.array_equal(match_shape(colour, (1, 8, 8), "these", resize=True), grey)
    red = np.zeros((1, 3, 2, 2), np.uint8)
    red[:, 0] = 200
    luma = match_shape(red, (1, 2, 2), "red", resize=True)
    assert np.array_equal(luma, np.full((1, 1, 2, 2), round(0.299 * 200)))
