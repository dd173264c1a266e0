"""Frost: a part of a picture of ice is laid over the image. Pictures of one's own, or made here."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...errors import FreeTicketsError
from ..root import data_root
from .streams import Streams

_SHARES = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # of image, of ice
# A sixth is published, but the original draws only among the first five.
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def frost(
    images: npt.NDArray[np.uint8],
    severity: int,
    streams: Streams,
    pictures: tuple[npt.NDArray[np.uint8], ...],
) -> npt.NDArray[Any]:
    """Add a random part of a random picture to the darkened image."""
    height, width = images.shape[1:3]
    grown = [_at_least(picture, height + 1, width + 1) for picture in pictures]

    def crop(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        picture = grown[rng.integers(len(grown))]
        top = rng.integers(picture.shape[0] - height)
        left = rng.integers(picture.shape[1] - width)
        return picture[top : top + height, left : left + width]

    image_share, ice_share = _SHARES[severity - 1]
    return np.clip(image_share * images + ice_share * streams.draw(crop), 0, 255)


def _at_least(picture: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Go on with a picture that is too small for the images by turning it over at its border."""
    missing = max(0, height - picture.shape[0]), max(0, width - picture.shape[1])
    return np.pad(picture, ((0, missing[0]), (0, missing[1]), (0, 0)), "symmetric")


def frost_source(frost: str | Path | None) -> Literal["files", "synthetic"]:
    """Say what `corrupt` takes for frost: the pictures of a folder, or those that are made here.

    Example:
        >>> frost_source(None)
        'synthetic'
    """
    return "synthetic" if frost is None else "files"


def find_frost(frost: str | Path | None, data_dir: str | Path | None = None) -> Path | None:
    """Return the folder of the pictures: the given one, else `frost` in the data root, else None.

    Raises:
        FreeTicketsError: The given folder lacks pictures.
    """
    if frost is not None:
        folder = Path(frost).expanduser()
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise FreeTicketsError(
                f"no {missing[0]} in {folder}: give the folder of the frost pictures "
                "(frost1.png to frost5.jpg), or leave it out to have them made"
            )
        return folder
    folder = data_root(data_dir) / "frost"
    return folder if all((folder / name).is_file() for name in FILES) else None


def load_pictures(frost: str | Path | None) -> tuple[npt.NDArray[np.uint8], ...]:
    """Return the pictures of a folder, a fifth of their size, or those that are made here."""
    if frost is None:
        from .ice import synthetic_pictures  # SciPy is needed for this only

        return synthetic_pictures()
    return _read(Path(find_frost(frost) or frost))


@lru_cache(maxsize=2)
def _read(folder: Path) -> tuple[npt.NDArray[np.uint8], ...]:
    from PIL import Image

    pictures = []
    for name in FILES:
        try:
            with Image.open(folder / name) as image:
                picture = np.asarray(image.convert("RGB"))
        except (OSError, ValueError) as error:
            raise FreeTicketsError(
                f"can't read {folder / name} ({error}): get the picture again"
            ) from error
        # What linear interpolation to a fifth comes to: no mean is taken, each fifth pixel is.
        pictures.append(np.ascontiguousarray(picture[2::5, 2::5]))
    return tuple(pictures)
