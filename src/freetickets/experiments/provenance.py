"""Provenance: the choices, the code, the machine and the kernels that made a record.

Of choices, what equals its default is left out. So a field that is added later, with a default that
changes nothing, changes no fingerprint, and what was finished stays finished.
"""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .. import __version__

UNKNOWN = "unknown"
# Written beside the code by who installs it somewhere to stay: an installation has no history.
COMMIT_FILE = "COMMIT"

_PACKAGE = Path(__file__).parents[1]


def fingerprint(values: Mapping[str, Any]) -> str:
    """A digest of values; of data classes among them only what differs from their defaults."""
    text = json.dumps(chosen(values), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def chosen(value: Any) -> Any:
    """Plain values that say the same; of a data class only what is not its default.

    Example:
        >>> from freetickets.methods import EDST
        >>> chosen([EDST(tickets=7), EDST(tickets=3)])
        [{'tickets': 7}, {}]
    """
    if is_dataclass(value):
        told = {each: getattr(value, each.name) for each in fields(value)}
        return {each.name: chosen(own) for each, own in told.items() if own != _default(each)}
    if isinstance(value, Mapping):
        return {str(key): chosen(each) for key, each in value.items()}
    return list(map(chosen, value)) if isinstance(value, (list, tuple)) else value


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def origin(folder: Path) -> dict[str, Any]:
    """All that tells how the numbers of the run in a folder were made."""
    from ..bench.timing import machine
    from ..training.folder import read_choices

    choices = {k: v for k, v in read_choices(folder).items() if k != "settings"}
    return {"version": __version__, "commit": commit(), **machine(), "choices": choices}


@cache
def commit(package: Path = _PACKAGE) -> str:
    """The commit of the code, with a plus where it was changed since; "unknown" if none is told."""
    if (told := package / COMMIT_FILE).exists():
        return told.read_text().strip()
    if package.parent.name != "src":
        return UNKNOWN  # installed: the repository around it, if any, is another one

    def git(*words: str) -> str:
        return subprocess.check_output(
            ["git", "-C", package, *words], stderr=subprocess.DEVNULL, text=True
        ).strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
