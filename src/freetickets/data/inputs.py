"""Inputs given in Python: one way in, for training and for prediction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from .npz import channels_first

_NUMBERS = (bool, int, float, np.bool_, np.number)


def as_array(x: Any, name: str = "x") -> npt.NDArray[Any]:
    """Return an array, a tensor, a data frame (it has `to_numpy`) or nested lists as an array."""
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        # NumPy has no bfloat16.
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    try:
        return np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    except ValueError as error:
        raise FreeTicketsError(f"{name} is not an array: {error}") from error


def as_inputs(x: Any) -> torch.Tensor:
    """Return uint8 images, floats (N, ...) or integers as a network takes them, after checks."""
    array = as_array(x)
    if array.dtype == object:  # a data frame whose columns are of several types
        if not all(isinstance(value, _NUMBERS) for value in array.flat):
            raise FreeTicketsError("x has text or missing values in it: encode or fill them")
        array = array.astype(np.float64)
    if array.dtype == np.uint8:
        return as_tensor(channels_first(array))
    if array.ndim < 2 or array.dtype.kind not in "iufb":
        raise FreeTicketsError(
            f"x is {array.dtype} of shape {array.shape}: give uint8 images or floats (N, ...)"
        )
    if array.dtype.kind in "iu":
        return as_tensor(array.astype(np.int64, copy=False))
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite: refused below
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise FreeTicketsError("x has values that are not finite: remove NaN and infinity")
    return as_tensor(array)


def as_numbers(inputs: torch.Tensor) -> torch.Tensor:
    """Return inputs for a network without an embedding: the integers of a table are numbers."""
    if inputs.dtype != torch.int64:
        return inputs
    if inputs.ndim != 2:
        raise FreeTicketsError(
            f"x is integers of shape {tuple(inputs.shape)}: give uint8 images or floats "
            "(token ids are for an nn.Embedding)"
        )
    return inputs.float()


@contextmanager
def looked_up(inputs: torch.Tensor) -> Iterator[None]:
    """Says it in one line if a network has no embedding for one of its integers."""
    try:
        yield
    except IndexError as error:
        if inputs.dtype != torch.int64:
            raise
        raise FreeTicketsError(
            f"the network can't look up all integers from {int(inputs.min())} to "
            f"{int(inputs.max())}: give its nn.Embedding more rows, or smaller integers"
        ) from error


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor, of the same memory if that will do."""
    # Torch wants memory that is writable and in order; NumPy's files and views may be neither.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
