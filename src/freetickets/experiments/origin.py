"""Where a record comes from: the code, the machine and the kernels that made it."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from .. import __version__

UNKNOWN = "unknown"
# Written beside the code by who installs it somewhere to stay: an installation has no history.
COMMIT_FILE = "COMMIT"

_PACKAGE = Path(__file__).parents[1]


def origin(folder: Path) -> dict[str, Any]:
    """All that tells how the numbers of a run were made.

    Args:
        folder: The run's.
    """
    from ..bench.timing import machine
    from ..training.folder import read_choices

    return {
        "version": __version__,
        "commit": commit(),
        **machine(),
        "choices": {k: v for k, v in read_choices(folder).items() if k != "settings"},
    }


@cache
def commit(package: Path = _PACKAGE) -> str:
    """The commit of the code, with a plus where it was changed since; "unknown" if none is told."""
    told = package / COMMIT_FILE
    if told.exists():
        return told.read_text().strip()
    if package.parent.name != "src":
        return UNKNOWN  # installed: the repository around it, if any, is another one
    try:
        head = _git(package, "rev-parse", "HEAD")
        return head + "+" if _git(package, "status", "--porcelain", "--", ".") else head
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()
