"""Correlation of two quantities, such as member accuracy and ensemble accuracy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from .arrays import Array


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """How close two quantities are to a straight line, from -1 to 1.

    Example:
        >>> round(pearson([1, 2, 3], [1, 2, 4]), 4)
        0.982
    """
    return _correlate(*_check(x, y))


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """How close two quantities are to having the same order, from -1 to 1; ties share their rank.

    Example:
        >>> spearman([1, 2, 3], [1, 2, 400])
        1.0
    """
    one, other = _check(x, y)
    return _correlate(_ranks(one), _ranks(other))


def _correlate(x: Array, y: Array) -> float:
    one, other = _direction(x), _direction(y)
    return float(np.clip(one @ other, -1.0, 1.0))


def _direction(values: Array) -> Array:
    """Centred and of length 1, however large or small the values are."""
    scaled = values / np.abs(values).max()
    centred = scaled - scaled.mean()
    centred /= np.abs(centred).max()
    return centred / np.linalg.norm(centred)


def _ranks(values: Array) -> Array:
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[which]


def _check(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    one, other = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if one.ndim != 1 or one.shape != other.shape or len(one) < 2:
        raise FreeTicketsError(
            f"a correlation needs two lists of the same length, at least 2, not {one.shape} and "
            f"{other.shape}"
        )
    for values in (one, other):
        if not np.isfinite(values).all():
            raise FreeTicketsError("a correlation needs finite numbers")
        if (values == values[0]).all():
            raise FreeTicketsError("a correlation needs numbers that are not all the same")
    return one, other
