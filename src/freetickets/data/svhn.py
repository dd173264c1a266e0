"""Street View House Numbers, the cropped digits, and MATLAB's files (version 5) that hold them."""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from ..reading import damaged
from .download import GET_AGAIN, PUBLISHERS
from .samples import Split, arrays


def load_svhn(split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split; download its file if it is missing.

    A file with fewer images than the published one is accepted: extracts of it are common.
    """
    path = PUBLISHERS["svhn"].find(root, f"{split}_32x32.mat", download)
    content = read_mat(path)
    images, labels = content.get("X"), content.get("y")
    if images is None or images.dtype != np.uint8 or images.shape[:-1] != (32, 32, 3):
        raise FreeTicketsError(f"{path} does not hold images of 32 x 32 x 3 bytes")
    if labels is None or labels.size != images.shape[-1] or not np.isin(labels, range(1, 11)).all():
        raise FreeTicketsError(f"{path} does not hold a label from 1 to 10 for each image")
    digits = labels.reshape(-1).astype(np.int64) % 10  # the publisher's label of the digit 0 is 10
    return arrays(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits)


_HEADER = 128
_MOST_BYTES = 1 << 29  # of one array, unpacked; the largest of SVHN's has 225 MB
_MATRIX, _COMPRESSED = 14, 15
# By the codes of the file: how numbers are stored, and what they are in MATLAB.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_CLASSES = dict(enumerate(["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"], 6))


def read_mat(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Returns the arrays of numbers in a file by their names; texts, cells, ... are left out."""
    found: dict[str, npt.NDArray[Any]] = {}
    with damaged(path, GET_AGAIN):
        data = memoryview(path.read_bytes())
        if len(data) < _HEADER or bytes(data[124:128]) != b"\x00\x01IM":
            raise ValueError("no header of MATLAB's version 5")
        for kind, content in _elements(data[_HEADER:], padded=False):
            if kind == _COMPRESSED:
                ((kind, content),) = _elements(_unpack(content))
            if kind == _MATRIX and (named := _read_array(content)) is not None:
                name, array = named
                if name in found:
                    raise ValueError(f"two arrays {name!r}")
                found[name] = array
    return found


def _elements(data: memoryview, padded: bool = True) -> Iterator[tuple[int, memoryview]]:
    place = 0
    while place < len(data):
        kind, length = struct.unpack_from("<II", data, place)
        if kind >> 16:  # up to four bytes share the eight of the tag
            start, length, kind = place + 4, kind >> 16, kind & 0xFFFF
            place += 8
            if length > 4:
                raise ValueError("a short element that is long")
        else:
            start = place + 8
            # The last of an array may lack its padding, and packed elements have none.
            place = start + (length + 7) // 8 * 8 if padded else start + length
        if start + length > len(data):
            raise ValueError(f"{length:,} bytes are promised, and there are {len(data) - start:,}")
        yield kind, data[start : start + length]


def _unpack(content: memoryview) -> memoryview:
    stream = zlib.decompressobj()
    tag = stream.decompress(content, 8)
    length = 8 + struct.unpack("<II", tag)[1]
    if length > _MOST_BYTES:
        raise ValueError(f"an array of {length:,} bytes")
    # Asking for more than is promised shows a stream that is too long; its end has a checksum.
    rest = stream.decompress(stream.unconsumed_tail, length)
    if not stream.eof or len(tag) + len(rest) != length:
        raise ValueError("a packed array of another length than promised")
    return memoryview(tag + rest)


def _read_array(content: memoryview) -> tuple[str, npt.NDArray[Any]] | None:
    parts = list(_elements(content))
    if not parts or parts[0][0] != 6 or len(parts[0][1]) != 8:
        raise ValueError("an array without a class")
    flags, _ = struct.unpack("<II", parts[0][1])
    if flags & 0xFF not in _CLASSES:
        return None
    if len(parts) != 4 or flags & 0x800:  # imaginary parts are a fifth element
        raise ValueError("an array of something else than numbers")
    (_, _), (dims, sides), (_, name), (stored, numbers) = parts
    if dims != 5 or stored not in _STORED:
        raise ValueError("an array without a shape or numbers")
    shape = np.frombuffer(sides, "<i4").tolist()
    values = np.frombuffer(numbers, f"<{_STORED[stored]}")
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"{len(values):,} numbers of shape {tuple(shape)}")
    array = values.astype(_CLASSES[flags & 0xFF], copy=False).reshape(shape, order="F")
    return bytes(name).decode("latin1"), array
