"""CIFAR-10 and CIFAR-100 as their author publishes them for Python: pickles.

A pickle may name any function to be called. The three of NumPy that CIFAR's name have harmless
stand-ins here; every other is refused, and so are instructions that those files don't need.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import shutil
import tarfile
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from ..reading import damaged, error_line
from .download import GET_AGAIN, Remote, check_md5, fetch, write_whole
from .split import Split


@dataclass(frozen=True)
class CifarFiles:
    """Where the parts of one of the two data sets are."""

    folder: str  # the same in the archive and below the data root
    files: dict[str, tuple[str, ...]]  # of each split, in order
    labels: str  # the labels' name in a file
    classes: int
    images: dict[str, int]  # in each file, by split
    archive: Remote


_ADDRESS = "https://www.cs.toronto.edu/~kriz"
LAYOUTS = {
    "cifar10": CifarFiles(
        folder="cifar-10-batches-py",
        files={"train": tuple(f"data_batch_{n}" for n in range(1, 6)), "test": ("test_batch",)},
        labels="labels",
        classes=10,
        images={"train": 10_000, "test": 10_000},
        archive=Remote(f"{_ADDRESS}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
    ),
    "cifar100": CifarFiles(
        folder="cifar-100-python",
        files={"train": ("train",), "test": ("test",)},
        labels="fine_labels",
        classes=100,
        images={"train": 50_000, "test": 10_000},
        archive=Remote(f"{_ADDRESS}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ),
}


def load_cifar(name: str, split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of "cifar10" or "cifar100"; download the archive if its files are missing."""
    layout = LAYOUTS[name]
    wanted, count = layout.files[split], layout.images[split]
    # The data root may be given as the folder itself.
    for folder in (root / layout.folder, root):
        if all((folder / file).is_file() for file in wanted):
            break
    else:
        folder = _unpack(layout, root, download)
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for path in (folder / file for file in wanted):
        content = read_pickle(path)
        data, told = content.get("data"), content.get(layout.labels)
        if not isinstance(data, np.ndarray) or data.shape != (count, 3072):
            raise FreeTicketsError(f"{path} does not hold {count:,} images of 32 x 32 x 3 bytes")
        if (
            not isinstance(told, list)
            or len(told) != count
            or not all(type(label) is int and 0 <= label < layout.classes for label in told)
        ):
            raise FreeTicketsError(
                f"{path} does not hold {count:,} {layout.labels} from 0 to {layout.classes - 1}"
            )
        images.append(data.reshape(count, 3, 32, 32))
        labels += told
    return Split(torch.from_numpy(np.concatenate(images)), torch.tensor(labels, dtype=torch.int64))


def _unpack(layout: CifarFiles, root: Path, download: bool) -> Path:
    """Take the known files out of the archive, by name: it cannot write anywhere else."""
    folder, archive = root / layout.folder, root / layout.archive.filename
    if archive.is_file():
        check_md5(archive, layout.archive.md5)
    elif download:
        fetch(layout.archive.url, archive, layout.archive.md5)
    else:
        raise FreeTicketsError(
            f"{folder} is missing or not complete: name its --data-dir, or allow the download"
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
                    shutil.copyfileobj(member, target)
    except (KeyError, tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise FreeTicketsError(f"cannot unpack {archive}: {error}") from error
    return folder


_LARGEST = 1 << 30  # bytes; the largest file of CIFAR has 155 MB
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_RECALLABLE = {
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "GLOBAL", "STACK_GLOBAL", "REDUCE",
}  # fmt: skip
_OTHERS = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1",
    "BININT2", "LONG", "LONG1", "BUILD", "EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS",
}  # fmt: skip
_ALLOWED = _PUTS | _GETS | _RECALLABLE | _OTHERS


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle: lists, numbers, strings and arrays of bytes, no more.

    Strings of Python 2 come as `bytes`, but as `str` if they are keys.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise FreeTicketsError(f"{path} is too large for a CIFAR file")
        data = path.read_bytes()
    except OSError as error:
        raise FreeTicketsError(f"cannot read {path}: {error_line(error)}") from error
    with damaged(path, GET_AGAIN, but=FreeTicketsError):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            try:
                _look_through(data)
            except DeprecationWarning as error:  # a text with an escape that is none
                raise pickle.UnpicklingError(str(error)) from error
        unpickler = _DataUnpickler(io.BytesIO(data), encoding="bytes")
        unpickler.path = path
        content = unpickler.load()
        if isinstance(content, dict):  # an array that was never filled is none
            return {
                _text(key): getattr(value, "array", None) if isinstance(value, _Ndarray) else value
                for key, value in content.items()
            }
    raise FreeTicketsError(f"{path} holds no dictionary: it is not a CIFAR file")


def _look_through(data: bytes) -> None:
    """Refuses instructions by which a small pickle takes endless memory or time."""
    before, puts = "", 0
    recallable: set[int] = set()
    for code, argument, _ in pickletools.genops(data):  # this checks that texts are in the file
        if code.name not in _ALLOWED:
            raise pickle.UnpicklingError(f"{code.name} has no place in a CIFAR file")
        if code.name in _PUTS:
            place = puts if code.name == "MEMOIZE" else int(argument or 0)
            if place > len(data):
                raise pickle.UnpicklingError("a memory that is larger than the file")
            puts += 1
            # Lists of lists, each recalled twice, would double at every step.
            (recallable.add if before in _RECALLABLE else recallable.discard)(place)
            continue
        if code.name in _GETS and argument not in recallable:
            raise pickle.UnpicklingError("it recalls more than texts")
        before = code.name


class _DataUnpickler(pickle.Unpickler):
    path: Path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise FreeTicketsError(
                f"{self.path} wants to run {module}.{name}, as no file of CIFAR does: not opened"
            ) from None


class _Ndarray:
    """Takes the place of an array until its bytes are known."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
            raise pickle.UnpicklingError("an array without a shape")
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of something else than bytes")
        if is_fortran or min(shape, default=0) < 0 or math.prod(shape) != len(data):
            raise pickle.UnpicklingError(f"{len(data)} bytes for an array of shape {shape}")
        self.array = np.frombuffer(data, np.uint8).reshape(shape)


class _Dtype:
    """Takes the place of NumPy's type; only bytes are accepted."""

    def __init__(self, code: str | bytes, *_: Any) -> None:
        if _text(code) != "u1":
            raise pickle.UnpicklingError(f"an array of {_text(code)}, not of bytes")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Byte order and the like mean nothing for single bytes."""


def _reconstruct(*_: Any) -> _Ndarray:
    return _Ndarray()


_STAND_INS = {
    ("numpy", "ndarray"): _Ndarray,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # files written by NumPy 2
}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise pickle.UnpicklingError(f"a {type(value).__name__} instead of a text")
    return value
