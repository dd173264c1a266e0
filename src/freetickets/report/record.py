"""Records: data classes filled from what a file says, with the types that they declare."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Record = TypeVar("_Record", bound="DataclassInstance")


def printable(text: Any) -> str:
    r"""A text without what neither HTML nor SVG can hold: control characters, stray bytes.

    Example:
        >>> printable("refine\0 1")
        'refine� 1'
    """
    return "".join(
        sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(text)
    )


_CONVERT: dict[Any, Callable[[Any], Any]] = {
    int: int,
    float: float,
    str: printable,
    # CSV writes None as nothing.
    float | None: lambda value: None if value in (None, "") else float(value),
}


def fill(kind: type[_Record], values: Mapping[str, Any], **given: Any) -> _Record:
    """Makes a record of the values of its fields' names; those `given` are taken as they are.

    Raises:
        KeyError: A field has no value.
        TypeError: A value is of a type that can't be meant.
        ValueError: A value can't be read as its field's type.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     x: float
        ...     y: int
        >>> fill(Point, {"x": "0.5", "y": 2, "colour": "red"})
        Point(x=0.5, y=2)
    """
    converted = {
        name: convert(values[name]) for name, convert in _converters(kind) if name not in given
    }
    return kind(**converted, **given)


@cache
def _converters(kind: type[DataclassInstance]) -> list[tuple[str, Callable[[Any], Any]]]:
    """What reads each field of a kind; kept, for logs have thousands of rows."""
    hints = typing.get_type_hints(kind)
    return [(field.name, _CONVERT.get(hints[field.name], _unknown)) for field in fields(kind)]


def _unknown(value: Any) -> Any:
    raise TypeError(f"no field that is read from a file: {value!r}")
