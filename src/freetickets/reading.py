"""The one strict reader: files as plain values, and data classes made of those.

Each value must be of the type of its field and in its range, and what is wrong is one line that
names the file and the field. A type is a plain one, a data class, a map or a list of such, or any
of these with checks: `Annotated[int, must("be at least 1", lambda count: count >= 1)]`.
"""

import enum
import math
import numbers
import pickle
import reprlib
import struct
import types
import typing
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml

from .errors import (
    DamagedFileError,
    FreeTicketsError,
    NewerFileError,
    UnknownNameError,
    is_out_of_memory,
)
from .seal import open_values

# What reading values, tensors and formats of bytes raises where they are not what they should be.
DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    *(EOFError, pickle.UnpicklingError, struct.error, zlib.error),
)

_DEEPEST = 20  # maps and lists within one another
_KINDS: dict[Any, tuple[str, Any]] = {  # what errors call them, and what is one
    bool: ("true or false", bool),
    int: ("a whole number", numbers.Integral),
    float: ("a number", numbers.Real),
    str: ("text", str),
    dict: ("a map", Mapping),
    tuple: ("a list", (list, tuple)),
}
_FORMS = (dict, Mapping, tuple, list, typing.Union, types.UnionType, Annotated)


class Allow(enum.Flag):
    """What a file may do beyond what its data class says."""

    NOTHING = 0
    TEXTS = enum.auto()  # numbers as text: YAML takes 1e-3 for one, and CSV has nothing else
    UNKNOWN = enum.auto()  # keys that no field has, which a later version may have added
    NULLS = enum.auto()  # null for what is no number: JSON has no NaN
    RECORD = UNKNOWN | NULLS


def must(words: str, holds: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """A check for `Annotated`: what a value must do, and whether it does."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(f"must {words}, not {reprlib.repr(value)}")
        return value

    return check


def printable(text: Any) -> str:
    r"""A text without what neither a terminal nor a page should get: control characters.

    Example:
        >>> printable("refine\0 1")
        'refine� 1'
    """
    instead = "\N{REPLACEMENT CHARACTER}"
    return "".join(sign if sign.isprintable() else instead for sign in str(text))


Count = Annotated[int, must("be at least 1", lambda count: count >= 1)]
Natural = Annotated[int, must("be at least 0", lambda number: number >= 0)]
Positive = Annotated[float, must("be positive", lambda number: number > 0)]
NotNegative = Annotated[float, must("not be negative", lambda number: not number < 0)]
Text = Annotated[str, printable]  # for people to see


def read(kind: Any, value: Any, where: str = "", allow: Allow = Allow.NOTHING) -> Any:
    """Makes a value of a type out of plain values; `where` is what errors call it.

    Example:
        >>> read(dict[str, tuple[Count, ...]], {"a": [1, 3]})
        {'a': (1, 3)}
        >>> read(dict[str, tuple[Count, ...]], {"a": [1, 0]})
        Traceback (most recent call last):
        ...
        freetickets.errors.FreeTicketsError: a[1] must be at least 1, not 0
    """
    form, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if form is Any:
        return value
    if form is Annotated:
        kind, *checks = inner
        if typing.get_origin(kind) in _FORMS or kind in _KINDS:  # else the checks make it
            value = read(kind, value, where, allow)
        with _told(f"{where or 'it'} "):
            for check in checks:
                value = check(value)
        return value
    if form in (typing.Union, types.UnionType):
        if types.NoneType in inner and (value is None or (value == "" and Allow.TEXTS in allow)):
            return None
        *others, last = (choice for choice in inner if choice is not types.NoneType)
        for choice in others:
            with suppress(FreeTicketsError):
                return read(choice, value, where, allow)
        return read(last, value, where, allow)
    if is_dataclass(form):
        values = read_fields(form, value, where, allow)
        needed = (f for f in fields(form) if f.init and f.default is f.default_factory is MISSING)
        if missing := [each.name for each in needed if each.name not in values]:
            raise FreeTicketsError(f"{where or 'it'} lacks {', '.join(missing)}")
        with _told(f"{where}: " if where else ""):
            return kind(**values)
    if form in (dict, Mapping):
        given = _plain(dict, value, where)
        keys = [read(inner[0], key, f"a key of {where or 'it'}", allow) for key in given]
        found = [read(inner[1], item, _join(where, key), allow) for key, item in given.items()]
        return dict(zip(keys, found, strict=True))
    if form in (tuple, list):
        items = list(_plain(tuple, value, where))
        kinds = inner if form is tuple and Ellipsis not in inner else inner[:1] * len(items)
        if len(kinds) != len(items):
            raise _wrong(where, f"a list of {len(kinds)}", value)
        places = enumerate(zip(kinds, items, strict=True))
        return form(read(one, item, f"{where}[{place}]", allow) for place, (one, item) in places)
    if form is float and value is None and Allow.NULLS in allow:
        return math.nan
    if Allow.TEXTS in allow and isinstance(value, str) and form in (int, float):
        try:
            value = form(value)
        except ValueError:
            raise _wrong(where, _KINDS[form][0], value) from None
    return _plain(form, value, where)


def read_fields(
    kind: Any, values: Any, where: str = "", allow: Allow = Allow.NOTHING, noun: str = "key"
) -> dict[str, Any]:
    """Of a map those values that a data class, or a map of types, has a field for, of its type."""
    hints = kind if isinstance(kind, dict) else _hints(kind)
    for name in _plain(dict, values, where):
        if name not in hints and Allow.UNKNOWN not in allow:
            raise UnknownNameError(f"{noun} of {where}" if where else noun, str(name), hints)
    return {
        name: read(hints[name], value, _join(where, name), allow)
        for name, value in values.items()
        if name in hints
    }


def types_of(names: Mapping[Any, str], or_none: Mapping[Any, str]) -> dict[str, Any]:
    """The type of each name, by the names of each type; what may also be None stands apart.

    Example:
        >>> types_of({str: "model method"}, {int: "step"})
        {'model': <class 'str'>, 'method': <class 'str'>, 'step': int | None}
    """
    types = {name: kind for kind, known in names.items() for name in known.split()}
    return types | {name: kind | None for kind, known in or_none.items() for name in known.split()}


@contextmanager
def damaged(
    path: Path | str, remedy: str = "", but: type[Exception] | tuple[()] = ()
) -> Iterator[None]:
    """Turns whatever a damaged file raises, `but` these, into a line with its name and a remedy."""
    try:
        yield
    except but:
        raise
    except NewerFileError as error:
        told = str(error)
        raise NewerFileError(told if str(path) in told else f"{path} {told}") from error
    except (FreeTicketsError, OSError, *DAMAGE) as error:
        if is_out_of_memory(error):
            raise  # nothing is wrong with the file
        reason = f"no {error}" if isinstance(error, KeyError) else error_line(error)
        if str(path) in reason and (not remedy or reason.endswith(remedy)):
            raise  # it is said already
        told = reason if str(path) in reason else f"{path} is damaged ({reason})"
        raise DamagedFileError(f"{told}: {remedy}" if remedy else told) from error


def error_line(error: Exception) -> str:
    """What an error says, in one line."""
    said = error.strerror if isinstance(error, OSError) else None
    return " ".join((said or str(error) or type(error).__name__).split())


def read_file(path: Path, most: float = math.inf) -> bytes:
    """What a file holds, if it has no more than so many bytes."""
    try:
        if (size := path.stat().st_size) > most:
            raise FreeTicketsError(f"{path} has {size:,} bytes, too many for a file of its kind")
        return path.read_bytes()
    except OSError as error:
        raise FreeTicketsError(f"can't read {path}: {error_line(error)}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads what `storage.write_json` wrote, and checks its seal."""
    data = read_file(path)
    with damaged(path):
        return open_values(data.decode())


def parse_yaml(text: str, source: str | Path, aliases: bool = False) -> Any:
    """What a YAML text says: plain values, and only in files of our own with aliases.

    By these a small file says more than memory holds.
    """

    class Loader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if not aliases and self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases (*) have no place in settings")
            if self.depth > _DEEPEST:
                raise yaml.YAMLError("it is nested too deeply")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: no such date
        raise FreeTicketsError(f"{source} is not valid YAML: {error_line(error)}") from error


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {each.name: hints[each.name] for each in fields(kind) if each.init}


def _plain(kind: Any, value: Any, where: str) -> Any:
    """A value that is of a plain type already; NumPy's numbers are numbers, and tuples lists."""
    words, accepted = _KINDS[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(where, words, value)
    if kind is int:
        if abs(int(value)) >= 2**63:
            raise _wrong(where, "a number of fewer digits", value)
        return int(value)
    if kind is float:
        with suppress(OverflowError):  # an integer of hundreds of digits
            if math.isfinite(number := float(value)):
                return number
        raise _wrong(where, "a finite number", value)
    return value


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Puts the place before what a check says."""
    try:
        yield
    except (FreeTicketsError, ValueError) as error:
        raise FreeTicketsError(f"{where}{error}") from error


def _wrong(where: str, wanted: str, value: Any) -> FreeTicketsError:
    return FreeTicketsError(f"{where or 'it'} must be {wanted}, not {reprlib.repr(value)}")


def _join(where: str, name: Any) -> str:
    return f"{where}.{name}" if where else str(name)
