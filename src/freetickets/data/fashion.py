"""Fashion-MNIST, the part that comes with FreeTickets and the whole, and MNIST's test digits."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from ..reading import damaged
from .download import GET_AGAIN, Remote, find_or_fetch
from .samples import Split, arrays


@dataclass(frozen=True)
class IdxFiles:
    """Where the files of one of the two data sets are: MD5 sums by name, folders below the root."""

    address: str
    folders: tuple[str, ...]
    md5: dict[str, str]

    def load(self, stem: str, count: int, root: Path, download: bool) -> Split:
        """Read so many images and labels; download the two files if they are missing."""
        found = []
        for name, shape in ((f"{stem}-images-idx3", (28, 28)), (f"{stem}-labels-idx1", ())):
            name = f"{name}-ubyte"
            places = [f"{folder}/{name}{end}" for folder in self.folders for end in (".gz", "")]
            remote = Remote(f"{self.address}/{name}.gz", self.md5[name])
            path = find_or_fetch(root, places, remote, download)
            found.append(read_idx(path, (count, *shape)))
        return arrays(*found)


# Torchvision's folders first.
FASHION = IdxFiles(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ("FashionMNIST/raw", "fashion-mnist", "."),
    {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
)
MNIST = IdxFiles(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    ("MNIST/raw", "mnist"),  # not the root itself: Fashion-MNIST's files have the same names
    {
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
_PARTS = {"train": ("train", 60_000), "test": ("t10k", 10_000)}


def load_mini(split: Literal["train", "test"]) -> Split:
    """Read a split of the embedded data set."""
    file = resources.files("freetickets.data").joinpath("embedded/fashion_mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        return arrays(content[f"x_{split}"], content[f"y_{split}"])


def load_fashion(split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of the whole data set."""
    return FASHION.load(*_PARTS[split], root, download)


def load_mnist(root: Path, download: bool) -> Split:
    """Read the 10,000 test digits."""
    return MNIST.load("t10k", 10_000, root, download)


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in MNIST's format, of this shape; a .gz is unpacked."""
    # Magic number: two zeros, the type (8 is bytes), the number of axes; then their lengths.
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">i4").tobytes()
    length = len(header) + math.prod(shape)
    with (
        damaged(path, GET_AGAIN),
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
    ):
        content = file.read(length + 1)  # one more shows a file that is too long
    if not content.startswith(header) or len(content) != length:
        raise FreeTicketsError(f"{path} does not hold bytes of shape {shape}: get it again")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
