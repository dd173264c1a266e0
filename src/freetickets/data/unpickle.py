"""CIFAR's pickles, read without running anything in them.

A pickle may name any function to be called. Those of CIFAR name three, all of NumPy, to rebuild
one array of bytes. Here these names stand for harmless stand-ins, and every other is refused.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError

_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    OverflowError,
    MemoryError,
)


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle: lists, numbers, strings and arrays of bytes.

    Strings of Python 2 come as `bytes`, but as `str` if they are keys.

    Raises:
        FreeTicketsError: The file is damaged, or asks for anything else.
    """
    try:
        with path.open("rb") as file:
            content = _DataUnpickler(file, path).load()
    except OSError as error:
        raise FreeTicketsError(f"cannot read {path}: {error.strerror or error}") from error
    except _DAMAGE as error:
        raise FreeTicketsError(
            f"{path} is damaged ({error}): delete it and get it again"
        ) from error
    if not isinstance(content, dict):
        raise FreeTicketsError(f"{path} holds no dictionary: it is no file of CIFAR")
    return {_text(key): _plain(value) for key, value in content.items()}


class _DataUnpickler(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="bytes")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise FreeTicketsError(
                f"{self._path} wants to run {module}.{name}, which no file of CIFAR does: "
                "it was not opened"
            ) from None


class _Ndarray:
    """Takes the place of an array until its bytes are known."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array of something else than bytes")
        if is_fortran or math.prod(shape) != len(data):
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


def _plain(value: Any) -> npt.NDArray[np.uint8] | Any:
    return value.array if isinstance(value, _Ndarray) else value


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
