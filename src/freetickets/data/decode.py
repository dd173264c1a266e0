"""One image file to one array of pixels, by Pillow: opened with care, resized, cropped."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.random import Generator
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import FreeTicketsError

_MARGIN = 256 / 224  # ImageNet's evaluation: shorter side to 256, then the centre 224 x 224
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
_MODES = {1: "L", 3: "RGB"}
_GREY = ("1", "L", "LA", "I;16")
# Pillow knows more, some of which start other programs (EPS) or fetch other files.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 64_000_000  # a quarter of a gigabyte, decoded


def image_size_and_channels(path: Path) -> tuple[tuple[int, int], int]:
    """Return ((height, width), channels) of an image from its header: 1 channel if grey, else 3."""
    with _open(path) as image:
        return (image.height, image.width), 1 if image.mode in _GREY else 3


def open_image(path: Path, channels: int) -> Image.Image:
    """Decode an image as grey (1 channel) or RGB (3 channels); nothing bad gets through."""
    if channels not in _MODES:
        raise FreeTicketsError(f"image files have 1 or 3 channels, not {channels}: use an array")
    with _open(path) as image:
        image.load()
        if image.mode.startswith("I;16"):  # Pillow would clip, not scale, 16 bits to 8
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("I", "F"):
            raise FreeTicketsError(f"{path} has 32 bits per pixel: save it with 8 or 16")
        if "transparency" in image.info:  # a palette with alpha converts without loss by RGBA only
            image = image.convert("RGBA")
        return image.convert(_MODES[channels])


@contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    """An image of which only the header is read; what a bad file makes Pillow raise is one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.simplefilter("ignore", UserWarning)  # a camera's odd metadata harms nobody
            with Image.open(path, formats=_FORMATS) as image:
                if image.width * image.height > _MOST_PIXELS:
                    raise Image.DecompressionBombError
                yield image
    except FileNotFoundError as error:
        raise FreeTicketsError(f"{path}: there is no such file") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FreeTicketsError(f"{path} has too many pixels to be opened safely") from error
    except UnidentifiedImageError as error:
        raise FreeTicketsError(f"{path} can't be read as an image") from error
    except FreeTicketsError:
        raise
    except Exception as error:  # Pillow's parsers raise whatever they stumble over
        raise FreeTicketsError(f"cannot read the image {path}: {error}") from error


def fit(image: Image.Image, height: int, width: int) -> Image.Image:
    """Resize and crop the centre, keeping proportions; an image of the right size is unchanged."""
    return ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)


def centre_crop(image: Image.Image, height: int, width: int) -> Image.Image:
    """Crop as ImageNet's evaluation does: resize to 8/7 of the wanted size, take the centre."""
    scale = _MARGIN * max(height / image.height, width / image.width)
    wide, high = round(image.width * scale), round(image.height * scale)
    image = image.resize((wide, high), Image.Resampling.BILINEAR)
    left, top = round((wide - width) / 2), round((high - height) / 2)
    return image.crop((left, top, left + width, top + height))


def random_crop(image: Image.Image, height: int, width: int, rng: Generator) -> Image.Image:
    """Crop as ImageNet's training: 8 to 100 % of the area, ratio 3/4 to 4/3, or its mirror."""
    areas = rng.uniform(*_AREA, size=_TRIES) * image.width * image.height
    ratios = np.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1]), size=_TRIES))
    corner = rng.random(2)
    mirrored = rng.random() < 0.5
    wide, high = np.sqrt(areas * ratios).round(), np.sqrt(areas / ratios).round()
    fits = np.flatnonzero((wide <= image.width) & (high <= image.height) & (wide * high > 0))
    if len(fits):
        w, h = int(wide[fits[0]]), int(high[fits[0]])
        left, top = int(corner[0] * (image.width - w + 1)), int(corner[1] * (image.height - h + 1))
    else:  # a very long image: the largest centred box of an allowed ratio
        w = max(1, min(image.width, int(image.height * _RATIO[1])))
        h = max(1, min(image.height, int(image.width / _RATIO[0])))
        left, top = (image.width - w) // 2, (image.height - h) // 2
    box = (left, top, left + w, top + h)
    image = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
    return ImageOps.mirror(image) if mirrored else image


def pixels(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return the pixels of a grey or RGB image as uint8 (C, H, W)."""
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


Images = npt.NDArray[np.uint8]


def match_shape(images: Images, shape: tuple[int, ...], what: str, resize: bool) -> Images:
    """Returns images (N, C, H, W) in the shape (C, H, W) that a network takes.

    Only if they may be resized: grey becomes colour by repeating it; colour becomes grey by its
    luma (ITU-R 601); another size is resized bicubically and its centre cropped.
    """
    if images.shape[1:] == tuple(shape):
        return images
    found, wanted = (" x ".join(map(str, sides)) for sides in (images.shape[1:], shape))
    if not resize:
        raise FreeTicketsError(
            f"the images of {what} are {found}, the ensemble takes {wanted}: convert by --resize"
        )
    if len(shape) != 3 or shape[0] not in (1, 3) or images.shape[1] not in (1, 3):
        raise FreeTicketsError(f"{what} ({found}) can't be made {wanted}: only grey and colour can")
    converted = np.empty((len(images), *shape), np.uint8)
    for row, image in zip(converted, images, strict=True):
        picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        row[...] = pixels(fit(picture.convert(_MODES[shape[0]]), shape[1], shape[2]))
    return converted
