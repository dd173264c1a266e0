"""Arrays in files. Headers are checked before data is read; nothing in them can run."""

import math
import os
import struct
import tokenize
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from ..reading import DAMAGE
from ..tasks import Task
from .spec import DatasetSpec

# zlib packs nothing tighter than 1 : 1032, and no data that anyone would train on beyond 1 : 200.
_BOMB_RATIO, _BOMB_BYTES = 200, 1 << 28
_KEYS = ("x_train", "y_train", "x_test", "y_test")
# NumPy's headers are Python's words.
_DAMAGE = (*DAMAGE, OSError, MemoryError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile)


class Header(NamedTuple):
    """Shape, order and type of one array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype


def read_headers(path: Path) -> dict[str, Header]:
    """Return the header of each array of an .npz or of the one of an .npy; none of them is read.

    What can't be read is one line.
    """
    if path.suffix == ".npy":
        array = open_npy(path)
        return {"x": Header(array.shape, False, array.dtype)}
    with _one_line(path, "npz"), zipfile.ZipFile(path) as archive:
        _check_members(archive, path)
        return {
            info.filename.removesuffix(".npy"): _read_header(archive, info, path)
            for info in archive.infolist()
        }


def read_arrays(path: Path, *keys: str) -> list[npt.NDArray[Any]]:
    """Return arrays of the file by their keys; see `read_headers` for the errors."""
    headers = read_headers(path)
    for key in keys:
        if key not in headers:
            raise FreeTicketsError(f"{path} has no array {key!r}, only: {', '.join(headers)}")
    with _one_line(path, "npz"), np.load(path, allow_pickle=False) as file:
        return [file[key] for key in keys]


def read_rows(path: Path, key: str, at_once: int) -> Iterator[npt.NDArray[Any]]:
    """Give this many rows of an array at a time; see `read_headers` for the errors."""
    with _one_line(path, "npz"):
        shape, fortran, dtype = read_headers(path)[key]
        starts = range(0, shape[0], at_once)
        if path.suffix == ".npy" or fortran:  # column by column: no row is whole before the end
            whole = open_npy(path) if path.suffix == ".npy" else read_arrays(path, key)[0]
            yield from (np.array(whole[at : at + at_once]) for at in starts)
            return
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as member:
            _read_start(member)
            for at in starts:
                rows = (min(at_once, shape[0] - at), *shape[1:])
                data = bytearray(member.read(math.prod(rows) * dtype.itemsize))
                yield np.frombuffer(data, dtype).reshape(rows)


def open_npy(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy, mapped, so that its header is checked before memory is taken."""
    with _one_line(path, "npy"):
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if not array.ndim:
        raise FreeTicketsError(f"{path} holds a single value: samples are rows of an array")
    return array


def check_finite(array: npt.NDArray[Any], what: str) -> None:
    """Refuses NaN and infinity, and says how many there are."""
    if array.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):  # what float32 can't hold is infinite there
        count = int(np.count_nonzero(~np.isfinite(array.astype(np.float32, copy=False))))
    if count:
        words = "value that is not a finite number: remove or replace it"
        if count > 1:
            words = "values that are not finite numbers: remove or replace them"
        raise FreeTicketsError(f"{what} has {count:,} {words}")


def npz_spec(path: Path, task: Task) -> DatasetSpec:
    """Return the spec of a data set in an .npz; only headers, class names and labels are read."""
    headers = read_headers(path)
    if missing := [key for key in _KEYS if key not in headers]:
        raise FreeTicketsError(f"{path} lacks {', '.join(missing)}: it needs {', '.join(_KEYS)}")
    shape = _input_shape(path, headers["x_train"])
    if _input_shape(path, headers["x_test"]) != shape:
        raise FreeTicketsError(f"{path}: the inputs of x_train and x_test differ in shape")
    for part in ("train", "test"):
        x, y = headers[f"x_{part}"].shape, headers[f"y_{part}"].shape
        if x[:1] != (y if task.has_classes else y[:1]):
            raise FreeTicketsError(f"{path}: x_{part} is {x} but y_{part} is {y}, not one a row")
    is_image = headers["x_train"].dtype == np.uint8
    return DatasetSpec(
        name=str(path),
        description="arrays of images" if is_image else "arrays of features",
        classes=_class_names(path, "classes" in headers) if task.has_classes else (),
        shape=shape,
        train_size=headers["x_train"].shape[0],
        test_size=headers["x_test"].shape[0],
        mean=(0.5,) * shape[0] if is_image else (),
        std=(0.25,) * shape[0] if is_image else (),
        target_shape=() if task.has_classes else headers["y_train"].shape[1:],
        task=task,
    )


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuses an archive that would unpack to far more than it is, before anything is unpacked."""
    with path.open("rb") as file:  # its last record gives the number of members
        file.seek(-22 - len(archive.comment), os.SEEK_END)
        (promised,) = struct.unpack_from("<H", file.read(22), 10)
    names = archive.namelist()
    # An entry that says it is longer than it is swallows the next one, and zipfile does not mind.
    if len(names) != promised:
        raise FreeTicketsError(f"{path} is damaged: it does not hold as many arrays as it says")
    if len(set(names)) < len(names):
        raise FreeTicketsError(f"{path} is damaged: it holds two arrays of one name")
    for info in archive.infolist():
        # A damaged name would hide an array, and some may be missing without a fault.
        if not info.filename.endswith(".npy"):
            raise FreeTicketsError(f"{path} is damaged: {info.filename!r} in it is not an array")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FreeTicketsError(f"{path}: {info.filename} is not packed as NumPy packs arrays")
        packed = info.file_size if info.compress_type == zipfile.ZIP_STORED else info.compress_size
        if packed > path.stat().st_size or info.file_size > max(_BOMB_BYTES, _BOMB_RATIO * packed):
            raise FreeTicketsError(
                f"{path}: {info.filename} would unpack to {info.file_size:,} bytes: not opened"
            )


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> Header:
    with archive.open(info) as member:
        header = _read_start(member)
        if header.dtype.hasobject:
            raise FreeTicketsError(f"{path}: {info.filename} holds Python objects, which could run")
        # A header that promises more than the file holds would make NumPy ask for that memory.
        if info.file_size - member.tell() != math.prod(header.shape) * header.dtype.itemsize:
            raise FreeTicketsError(f"{path} is damaged: {info.filename} is not as long as it says")
        return header


def _read_start(member: Any) -> Header:
    if np.lib.format.read_magic(member) == (1, 0):
        return Header(*np.lib.format.read_array_header_1_0(member))
    return Header(*np.lib.format.read_array_header_2_0(member))


def _input_shape(path: Path, header: Header) -> tuple[int, int, int]:
    shape = header.shape
    if not shape or shape[0] == 0:
        raise FreeTicketsError(f"{path}: an array of inputs is empty")
    if header.dtype == np.uint8:
        return image_shape(shape)
    if header.dtype.kind != "f":
        raise FreeTicketsError(f"{path}: inputs are {header.dtype}, not uint8 images or floats")
    if len(shape) not in (2, 4):
        raise FreeTicketsError(f"{path}: float inputs are (N, F) or (N, C, H, W), not {shape}")
    return (shape[1], 1, 1) if len(shape) == 2 else (shape[1], shape[2], shape[3])


def _class_names(path: Path, named: bool) -> tuple[str, ...]:
    (found,) = read_arrays(path, "classes" if named else "y_train")
    if named:
        if found.ndim != 1 or found.dtype.kind != "U" or len(found) < 2:
            raise FreeTicketsError(f"{path}: 'classes' must be two or more strings in one axis")
        return tuple(found.tolist())
    if found.dtype.kind not in "iu" or found.min() < 0:
        raise FreeTicketsError(f"{path}: labels must be integers from 0")
    if found.max() >= len(found):
        raise FreeTicketsError(f"{path}: label {found.max()} of {len(found)} samples; from 0 up")
    return tuple(str(label) for label in range(max(2, int(found.max()) + 1)))


@contextmanager
def _one_line(path: Path, kind: str) -> Iterator[None]:
    """Whatever a damaged file makes zipfile and NumPy raise, the user reads one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise FreeTicketsError(f"{path} is missing: there is no such file") from error
    except _DAMAGE as error:
        raise FreeTicketsError(f"{path} is not a readable .{kind} file: {error}") from error


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of images in an array of the given shape.

    (N, H, W) is grey. Of four axes the last is the channels' only if the second cannot be.
    """
    if len(shape) == 3:
        return (1, shape[1], shape[2])
    if len(shape) != 4:
        layouts = "(N, H, W), (N, C, H, W) or (N, H, W, C)"
        raise FreeTicketsError(
            f"uint8 array of shape {shape}: images are {layouts}, other features float32"
        )
    last = shape[3] in (1, 3) and shape[1] not in (1, 3)
    return (shape[3], shape[1], shape[2]) if last else (shape[1], shape[2], shape[3])


def channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return images of any accepted layout as (N, C, H, W)."""
    wanted = image_shape(images.shape)
    if images.ndim == 4 and wanted != images.shape[1:]:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images.reshape(len(images), *wanted)
