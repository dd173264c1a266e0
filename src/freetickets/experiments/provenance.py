"""Provenance: the choices, the code, the machine and the kernels that made a record.

What equals its default is left out, so that a field that is added later changes no fingerprint.
"""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
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
    """Plain values that say the same; of a data class only what is not its default."""
    if is_dataclass(value):
        told = {}
        for each in fields(value):
            made = each.default_factory
            default, own = each.default if made is MISSING else made(), getattr(value, each.name)
            if own != default:
                told[each.name] = chosen(own)
        return told
    if isinstance(value, Mapping):
        return {str(key): chosen(each) for key, each in value.items()}
    return list(map(chosen, value)) if isinstance(value, (list, tuple)) else value


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
