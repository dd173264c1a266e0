"""CIFAR-10 and CIFAR-100 as their author publishes them for Python: pickles.

A pickle may name any function to be called. Here nothing is: what CIFAR's files need of the format
is read by hand, names of anything but NumPy's arrays are refused, and so are other instructions.
"""

import math
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
from ..reading import damaged, read, read_file
from ..storage import whole_file
from .download import GET_AGAIN, PUBLISHERS, Publisher, check_md5
from .samples import Split
from .spec import known_facts


@dataclass(frozen=True)
class CifarFiles:
    """The parts of one of the two archives, as `datasets.yaml` describes them."""

    folder: str
    files: dict[str, tuple[str, ...]]
    images: dict[str, int]
    labels: str
    classes: int


LAYOUTS = {name: read(CifarFiles, told) for name, told in known_facts("cifar").items()}


def load_cifar(name: str, split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split of "cifar10" or "cifar100"; download the archive if its files are missing."""
    layout = LAYOUTS[name]
    wanted, count = layout.files[split], layout.images[split]
    # The data root may be given as the folder itself.
    for folder in (root / layout.folder, root):
        if all((folder / file).is_file() for file in wanted):
            break
    else:
        folder = _unpack(layout, PUBLISHERS[name], root, download)
    images, labels = list[npt.NDArray[np.uint8]](), list[int]()
    for path in (folder / file for file in wanted):
        content = read_pickle(path)
        data, told = content.get("data"), content.get(layout.labels, ())
        if not isinstance(data, np.ndarray) or data.shape != (count, 3072):
            raise FreeTicketsError(f"{path} does not hold {count:,} images of 32 x 32 x 3 bytes")
        wrong = not isinstance(told, list) or len(told) != count
        if wrong or not all(type(each) is int and 0 <= each < layout.classes for each in told):
            raise FreeTicketsError(
                f"{path} does not hold {count:,} {layout.labels} from 0 to {layout.classes - 1}"
            )
        images.append(data.reshape(count, 3, 32, 32))
        labels += told
    return Split(torch.from_numpy(np.concatenate(images)), torch.tensor(labels, dtype=torch.int64))


def _unpack(layout: CifarFiles, publisher: Publisher, root: Path, download: bool) -> Path:
    """Take the known files out of the archive, by name: it cannot write anywhere else."""
    folder, ((name, md5),) = root / layout.folder, publisher.md5.items()
    archive = publisher.find(root, name, download)
    try:
        with archive.open("rb") as packed:
            check_md5(packed, md5, str(archive))
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            for file in (file for files in layout.files.values() for file in files):
                found = tar.getmember(f"{layout.folder}/{file}")
                member = tar.extractfile(found) if found.isreg() else None
                if member is None:  # a link, a folder, a device
                    raise FreeTicketsError(f"{archive}: {file} is not a file")
                with member, whole_file(folder / file) as target:
                    shutil.copyfileobj(member, target)
    except (KeyError, tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise FreeTicketsError(f"cannot unpack {archive}: {error}") from error
    return folder


_LARGEST = 1 << 30  # bytes; the largest file of CIFAR has 155 MB
_RECONSTRUCT = {f"numpy.{core}.multiarray _reconstruct" for core in ("core", "_core")}  # NumPy 1, 2
_NAMES = {"numpy ndarray", "numpy dtype", *_RECONSTRUCT}
_VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PLAIN = {"int", "int_or_bool", "str", "bytes", "bytes_or_str"}  # what instructions may give


@dataclass
class _Call:  # which is never made
    function: str
    arguments: Any = ()
    state: Any = None


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle: lists, numbers, texts and arrays of bytes, no more."""
    data = read_file(path, _LARGEST)
    with damaged(path, GET_AGAIN):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text with an escape that is none
            content = _read(data)
        if isinstance(content, dict):
            return {key: _array(value) for key, value in content.items()}
    raise FreeTicketsError(f"{path} holds no dictionary: it is not a CIFAR file")


def _read(data: bytes) -> Any:
    """What a pickle holds: a machine with a stack, marks in it, and a memory."""
    stack, marks, memory = list[Any](), list[int](), dict[Any, Any]()

    def popped(count: int = 0) -> list[Any]:
        start = len(stack) - count if count else marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for code, argument, _ in pickletools.genops(data):  # this checks that texts are in the file
        match code.name:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "MARK":
                marks.append(len(stack))
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memory[len(memory) if argument is None else argument] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(memory[argument])
            case name if name in _VALUES:
                stack.append(_VALUES[name])
            case "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(popped(int(code.name[5:] or 0))))
            case "EMPTY_LIST" | "LIST":
                stack.append(popped() if code.name == "LIST" else [])
            case "APPEND" | "APPENDS":
                items = popped(int(code.name == "APPEND"))
                stack[-1].extend(items)
            case "EMPTY_DICT":
                stack.append({})
            case "DICT" | "SETITEM" | "SETITEMS":
                items = popped(2 * (code.name == "SETITEM"))
                if code.name == "DICT":
                    stack.append({})
                # Not any keys: to look at all of a tuple of tuples of tuples would take for ever.
                stack[-1].update(zip(map(_text, items[::2]), items[1::2], strict=True))
            case "GLOBAL" | "STACK_GLOBAL":
                name = argument or " ".join(popped(2))
                if name not in _NAMES:
                    name = name.replace(" ", ".")
                    raise FreeTicketsError(f"it wants to run {name}, as no file of CIFAR does")
                stack.append(name)
            case "REDUCE":
                stack.append(_Call(*popped(2)))
            case "BUILD":
                (state,) = popped(1)
                stack[-1].state = state
            case _ if any(given.name in _PLAIN for given in code.stack_after):
                stack.append(argument)
            case _:
                raise ValueError(f"{code.name} has no place in a CIFAR file")
    (content,) = stack
    return content


def _array(value: Any) -> Any:
    """A value of the dictionary, as an array if that is what its maker stands for."""
    if not isinstance(value, _Call):
        return value
    _, shape, kind, is_fortran, data = value.state
    if value.function not in _RECONSTRUCT or _text(kind.arguments[0]) != "u1":
        raise ValueError("an array of something else, not of bytes")
    data = data.encode("latin1") if isinstance(data, str) else data
    sides = tuple(map(int, shape))
    if is_fortran or min(sides, default=0) < 0 or math.prod(sides) != len(data):
        raise ValueError(f"{len(data)} bytes for an array of shape {sides}")
    return np.frombuffer(data, np.uint8).reshape(sides)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} instead of a text")
    return value
