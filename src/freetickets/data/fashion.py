"""Fashion-MNIST, the part that comes with FreeTickets and the whole, and MNIST's test digits."""

import gzip
import math
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from ..reading import damaged
from .download import GET_AGAIN, PUBLISHERS
from .samples import Split, arrays

_PARTS = {"train": ("train", 60_000), "test": ("t10k", 10_000)}


def load_mini(split: Literal["train", "test"]) -> Split:
    """Read a split of the embedded data set."""
    file = resources.files("freetickets.data").joinpath("embedded/fashion_mini.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        return arrays(content[f"x_{split}"], content[f"y_{split}"])


def load_idx(name: str, split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of "fashion-mnist", or the test digits of "mnist"."""
    stem, count = _PARTS[split]
    found = []
    for kind, shape in (("images-idx3", (28, 28)), ("labels-idx1", ())):
        file = f"{stem}-{kind}-ubyte"
        path = PUBLISHERS[name].find(root, f"{file}.gz", download, file)
        found.append(read_idx(path, (count, *shape)))
    return arrays(*found)


def read_idx(path: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in MNIST's format, of this shape; a .gz is unpacked."""
    # Magic number: two zeros, the type (8 is bytes), the number of axes; then their lengths.
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">i4").tobytes()
    length = len(header) + math.prod(shape)
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with damaged(path, GET_AGAIN), opened(path, "rb") as file:
        content = file.read(length + 1)  # one more shows a file that is too long
    if not content.startswith(header) or len(content) != length:
        raise FreeTicketsError(f"{path} does not hold bytes of shape {shape}: get it again")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)
