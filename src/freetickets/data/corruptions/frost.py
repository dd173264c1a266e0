"""Frost: a part of a picture of ice is laid over the image. Pictures of one's own, or made here.

Frost is `a * image + b * picture`, so what counts most is each picture's mean and deviation: those
of the pictures that are made here are the originals'. Clouds and needles give the look.
"""

from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from ...errors import FreeTicketsError
from ..decode import open_image
from ..spec import data_root
from .apply import Bytes, Floats, Streams, corruption

# A sixth is published, but the original draws only among the first five.
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_SEED, _SIZE, _NEEDLES = 2022, 128, 500
_SLOPE = 0.9  # the clouds' amplitude falls with the frequency to this power
# Mean and deviation of red, green and blue of the five published pictures.
_COLOURS = (
    ((78, 149, 165), (24, 15, 14)),
    ((199, 203, 213), (19, 19, 19)),
    ((199, 203, 213), (19, 19, 19)),
    ((141, 156, 169), (28, 28, 28)),
    ((107, 118, 130), (37, 36, 35)),
)


@corruption((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # of image, of ice
def frost(
    images: Bytes, shares: tuple[float, float], streams: Streams, pictures: tuple[Bytes, ...]
) -> Bytes:
    """Add a random part of a random picture to the darkened image."""
    height, width = images.shape[1:3]
    grown = []
    for picture in pictures:  # one that is too small goes on by being turned over at its border
        down, right = max(0, height + 1 - len(picture)), max(0, width + 1 - picture.shape[1])
        grown.append(np.pad(picture, ((0, down), (0, right), (0, 0)), "symmetric"))

    def crop(rng: np.random.Generator) -> Bytes:
        picture = grown[rng.integers(len(grown))]
        top = rng.integers(picture.shape[0] - height)
        left = rng.integers(picture.shape[1] - width)
        return picture[top : top + height, left : left + width]

    laid = shares[0] * images + shares[1] * streams.draw(crop)
    return np.clip(laid, 0, 255).astype(np.uint8)


def frost_source(frost: str | Path | None) -> Literal["files", "synthetic"]:
    """Say what `corrupt` takes for frost: the pictures of a folder, or those that are made here."""
    return "synthetic" if frost is None else "files"


def find_frost(frost: str | Path | None, data_dir: str | Path | None = None) -> Path | None:
    """The folder of the pictures: the given one, else `frost` in the data root, else None."""
    folder = data_root(data_dir) / "frost" if frost is None else Path(frost).expanduser()
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing and frost is not None:
        raise FreeTicketsError(f"no {missing[0]} in {folder}: give the folder of all five, or none")
    return None if missing else folder


@lru_cache(maxsize=3)
def load_pictures(frost: str | Path | None) -> tuple[Bytes, ...]:
    """Return the pictures of a folder, a fifth of their size, or those that are made here."""
    if frost is None or (folder := find_frost(frost)) is None:
        return tuple(_freeze(number) for number in range(len(FILES)))
    pictures = (np.asarray(open_image(folder / name, 3)) for name in FILES)
    # What linear interpolation to a fifth comes to: no mean is taken, each fifth pixel is.
    return tuple(np.ascontiguousarray(picture[2::5, 2::5]) for picture in pictures)


def _freeze(number: int) -> Bytes:
    rng = np.random.default_rng([_SEED, number])
    frequency = np.hypot(np.fft.fftfreq(_SIZE)[:, None], np.fft.rfftfreq(_SIZE))
    frequency[0, 0] = np.inf  # the mean is set later
    spectrum = np.fft.rfft2(rng.standard_normal((_SIZE, _SIZE))) / frequency**_SLOPE
    clouds = np.fft.irfft2(spectrum, (_SIZE, _SIZE))
    ice = _standard(0.75 * _standard(clouds) + 0.66 * _standard(_needles(rng)))
    mean, deviation = np.array(_COLOURS[number])
    return (mean + deviation * ice[..., None]).clip(0, 255).astype(np.uint8)


def _needles(rng: np.random.Generator) -> Floats:
    """Draw lines in the three directions of a crystal, which fade towards their ends."""
    from scipy import ndimage  # needed for this only

    canvas = np.zeros((_SIZE, _SIZE))
    base = rng.uniform(0, np.pi)
    angles = base + np.pi / 3 * rng.integers(-1, 2, _NEEDLES) + rng.normal(0, 0.1, _NEEDLES)
    lengths, places = rng.uniform(4, 24, _NEEDLES), rng.uniform(0, _SIZE, (_NEEDLES, 2))
    along = np.linspace(-1, 1, 64)
    reach = np.outer(lengths, along)
    rows = places[:, :1] + reach * np.sin(angles)[:, None]
    columns = places[:, 1:] + reach * np.cos(angles)[:, None]
    light = np.outer(lengths * rng.uniform(0.3, 1, _NEEDLES), 1 - np.abs(along))
    np.add.at(canvas, (rows.astype(int) % _SIZE, columns.astype(int) % _SIZE), light)
    return ndimage.gaussian_filter(canvas, 0.3, mode="wrap")


def _standard(values: Floats) -> Floats:
    return (values - values.mean()) / values.std()
