"""Seals: a digest inside a text file, which tells when the file was altered.

JSON has one more key, CSV one more column, YAML a comment at its top. A text without any is
refused: damage may have taken it. JSON, and the header of tensors, also have a `stamp`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import __version__
from .errors import NewerFileError

NAME = "sha256"

# Of all files of runs. It grows when a version before could not read, or would misread, what is
# written now; files that say none are of format 1.
FORMAT = 1


class BrokenSealError(ValueError):
    """A text is not as it was written."""

    def __init__(self, reason: str = "its content does not match its checksum") -> None:
        super().__init__(reason)


def stamp(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with their format and the version that writes them."""
    return {"version": FORMAT, "freetickets": __version__, **values}


def unstamp(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undoes `stamp`, unless the format is one that only a later version reads."""
    left = dict(values)
    found, writer = left.pop("version", 1), left.pop("freetickets", None)
    if type(found) is not int or found < 1:
        raise ValueError(f"its format is {found!r}")
    if found > FORMAT:
        named = writer if isinstance(writer, str) and writer.isprintable() else "a later version"
        raise NewerFileError(
            f"is of format {found}, and FreeTickets {__version__} reads formats up to {FORMAT}: "
            f"install the version that wrote it ({named}), or a later one"
        )
    return left


def seal_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a JSON file with their stamp and seal.

    Example:
        >>> list(seal_values({"accuracy": 0.5}))
        ['sha256', 'version', 'freetickets', 'accuracy']
    """
    stamped = stamp(values)
    return {NAME: _digest_of(stamped), **stamped}


def open_values(text: str) -> dict[str, Any]:
    """What a JSON text says, without its seal and stamp."""
    values = parse_json(text)
    if not isinstance(values, dict) or NAME not in values:
        raise BrokenSealError("it has no checksum of its content")
    if values.pop(NAME) != _digest_of(values):
        raise BrokenSealError
    return unstamp(values)


def parse_json(text: str) -> Any:
    """What a JSON text says; only numbers that 64 bits can hold, and NaN."""
    try:
        return json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:20]} is not a number")
    return number


def seal_text(text: str) -> str:
    """A text, such as YAML, with its seal as a comment above it."""
    return f"# {NAME} {_digest(text)} of what is below, as it was written\n{text}"


def open_text(text: str) -> str:
    """A text without its seal."""
    _, _, content = text.partition("\n")
    if text != seal_text(content):
        raise BrokenSealError
    return content


def seal_table(text: str, settings: str = "") -> str:
    r"""A CSV text with its seal for these settings: a column, which only the last row fills.

    No value may have a line break, and without rows there is no seal.

    Example:
        >>> seal_table("step,loss\n1,0.7\n2,0.5\n")[:38]
        'step,loss,sha256\n1,0.7,\n2,0.5,045074f8'
    """
    names, *rows = text.splitlines()
    if not rows:
        return text
    ends = [""] * (len(rows) - 1) + [_digest(settings + text)]
    return "\n".join([f"{names},{NAME}", *map(",".join, zip(rows, ends, strict=True)), ""])


def open_table(text: str, settings: str = "") -> str:
    """A CSV text without its seal."""
    lines = text.splitlines()
    content = "".join(f"{line.rpartition(',')[0]}\n" for line in lines)
    if len(lines) < 2 or text != seal_table(content, settings):
        raise BrokenSealError
    return content


def digest_file(path: Path) -> str:
    """The digest of a file, for the text beside it that says which file it should be."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest_of(values: Mapping[str, Any]) -> str:
    plain = json.loads(json.dumps(values))  # JSON knows no tuples, and only texts as keys
    return _digest(json.dumps(plain, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
