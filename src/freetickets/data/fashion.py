"""Fashion-MNIST: the part that comes with FreeTickets, and the whole."""

from __future__ import annotations

import gzip
import math
import zlib
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from .download import Remote, find_or_fetch
from .split import Split, arrays

_ADDRESS = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
REMOTES = {
    name: Remote(f"{_ADDRESS}/{name}.gz", md5)
    for name, md5 in (
        ("train-images-idx3-ubyte", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte", "bb300cfdad3c16e7a12a480ee83cd310"),
    )
}
_FOLDERS = ("FashionMNIST/raw", "fashion-mnist", ".")  # torchvision's first
_COUNTS = {"train": 60_000, "test": 10_000}


def load_mini(split: Literal["train", "test"]) -> Split:
    """Read a split of the embedded data set.

    Example:
        >>> len(load_mini("train")), len(load_mini("test"))
        (10000, 2000)
    """
    file = resources.files("freetickets.data").joinpath("embedded/fashion_mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        return arrays(content[f"x_{split}"], content[f"y_{split}"])


def load_fashion(split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of the whole data set; download the two files if they are missing.

    Raises:
        FreeTicketsError: The files are missing or not those of Fashion-MNIST.
    """
    stem, count = ("train" if split == "train" else "t10k"), _COUNTS[split]
    images = _obtain(f"{stem}-images-idx3-ubyte", root, download)
    labels = _obtain(f"{stem}-labels-idx1-ubyte", root, download)
    return arrays(read_idx(images, (count, 28, 28)), read_idx(labels, (count,)))


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in MNIST's format, compressed or not.

    Args:
        path: The file; compressed if its name ends in .gz.
        shape: The shape that it must have.

    Raises:
        FreeTicketsError: It is damaged, or has another shape.
    """
    # Magic number: two zeros, the type (8 is bytes), the number of axes; then their lengths.
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">i4").tobytes()
    length = len(header) + math.prod(shape)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(length + 1)  # one more shows a file that is too long
    except (OSError, EOFError, zlib.error) as error:
        raise FreeTicketsError(
            f"{path} is damaged ({error}): delete it and get it again"
        ) from error
    if not content.startswith(header) or len(content) != length:
        raise FreeTicketsError(f"{path} does not hold bytes of shape {shape}: get it again")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def _obtain(name: str, root: Path, download: bool) -> Path:
    places = [f"{folder}/{name}{suffix}" for folder in _FOLDERS for suffix in ("", ".gz")]
    return find_or_fetch(root, places, f"{_FOLDERS[0]}/{name}.gz", REMOTES[name], download)
