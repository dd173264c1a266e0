"""CIFAR-10 and CIFAR-100 as their author publishes them for Python."""

from __future__ import annotations

import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..errors import FreeTicketsError
from .download import Remote, check_md5, fetch, write_whole
from .split import Split
from .unpickle import read_pickle


@dataclass(frozen=True)
class Layout:
    """Where the parts of one of the two data sets are.

    Attributes:
        folder: Folder of the files, the same in the archive and below the data root.
        files: The files of each split, in order.
        labels: Name of the labels in a file.
        classes: How many of them there are.
        images: Number of images in each file, by split.
        archive: The file to download.
    """

    folder: str
    files: dict[str, tuple[str, ...]]
    labels: str
    classes: int
    images: dict[str, int]
    archive: Remote


LAYOUTS = {
    "cifar10": Layout(
        folder="cifar-10-batches-py",
        files={
            "train": tuple(f"data_batch_{part}" for part in range(1, 6)),
            "test": ("test_batch",),
        },
        labels="labels",
        classes=10,
        images={"train": 10_000, "test": 10_000},
        archive=Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
        ),
    ),
    "cifar100": Layout(
        folder="cifar-100-python",
        files={"train": ("train",), "test": ("test",)},
        labels="fine_labels",
        classes=100,
        images={"train": 50_000, "test": 10_000},
        archive=Remote(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
}


def load_cifar(name: str, split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of "cifar10" or "cifar100"; download the archive if its files are missing.

    Raises:
        FreeTicketsError: The files are missing or not those of CIFAR.
    """
    layout = LAYOUTS[name]
    wanted = layout.files[split]
    # The data root may be given as the folder itself.
    folders = [root / layout.folder, root]
    complete = (f for f in folders if all((f / file).is_file() for file in wanted))
    folder = next(complete, None) or _unpack(layout, root, download)
    parts = [_read(folder / file, layout, layout.images[split]) for file in wanted]
    return Split(
        torch.from_numpy(np.concatenate([images for images, _ in parts])),
        torch.tensor([label for _, labels in parts for label in labels], dtype=torch.int64),
    )


def _read(path: Path, layout: Layout, count: int) -> tuple[np.ndarray, list[int]]:
    content = read_pickle(path)
    data, labels = content.get("data"), content.get(layout.labels)
    if not isinstance(data, np.ndarray) or data.shape != (count, 3072):
        raise FreeTicketsError(f"{path} does not hold {count:,} images of 32 x 32 x 3 bytes")
    if (
        not isinstance(labels, list)
        or len(labels) != count
        or not all(type(x) is int and 0 <= x < layout.classes for x in labels)
    ):
        raise FreeTicketsError(
            f"{path} does not hold {count:,} {layout.labels} from 0 to {layout.classes - 1}"
        )
    return data.reshape(count, 3, 32, 32), labels


def _unpack(layout: Layout, root: Path, download: bool) -> Path:
    """Take the known files out of the archive, by name: it cannot write anywhere else."""
    folder, archive = root / layout.folder, root / layout.archive.filename
    if archive.is_file():
        check_md5(archive, layout.archive.md5)
    elif download:
        fetch(layout.archive.url, archive, md5=layout.archive.md5)
    else:
        raise FreeTicketsError(
            f"{folder} is missing or not complete: name the folder that holds it with --data-dir, "
            "or allow the download"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            for file in (file for files in layout.files.values() for file in files):
                found = tar.getmember(f"{layout.folder}/{file}")
                member = tar.extractfile(found) if found.isreg() else None
                if member is None:  # a link, a folder, a device
                    raise FreeTicketsError(f"{archive}: {file} is not a file")
                with member, write_whole(folder / file) as target:
                    while chunk := member.read(1 << 20):
                        target.write(chunk)
    except (KeyError, tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise FreeTicketsError(f"cannot unpack {archive}: {error}") from error
    return folder
