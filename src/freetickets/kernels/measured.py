"""What `freetickets bench choose` has measured on this machine, in the user's cache folder."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from ..reading import damaged, read_json
from ..reading import read as read_values
from ..storage import write_json


def path() -> Path:
    """Where it lies: `$XDG_CACHE_HOME`, else `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "freetickets" / "costs.json"


def read(instructions: str) -> dict[str, Any]:
    """The constants of this processor and an instruction set, by name.

    Raises:
        FreeTicketsError: Nothing was measured here, or the file is damaged.
    """
    with damaged(path(), "run freetickets bench choose"):
        values = read_json(path()) if path().exists() else {}
        found = read_values(dict[str, dict[str, Any]], values)
    constants = found.get(_key(instructions))
    if constants is None:
        raise FreeTicketsError(
            "FREETICKETS_COSTS is 'measured', but nothing was measured on this processor "
            f"({instructions}): run freetickets bench choose"
        )
    return dict(constants)


def write(instructions: str, constants: Mapping[str, Any]) -> None:
    """Keeps constants, beside those of other processors and instruction sets."""
    found = read_json(path()) if path().exists() else {}
    write_json(path(), {**found, _key(instructions): dict(constants)})


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _key(instructions: str) -> str:
    return f"{processor()}, {instructions}"
