"""Where data sets lie on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def data_root(data_dir: str | Path | None = None) -> Path:
    """Return the folder of all data sets: the argument, else `$FREETICKETS_DATA`, else `./data`.

    Example:
        >>> data_root("/mnt/sets").as_posix()
        '/mnt/sets'
    """
    return Path(data_dir or os.environ.get("FREETICKETS_DATA") or "data").expanduser()


def first_existing(places: Iterable[Path]) -> Path | None:
    """Return the first of the places that exists, or None."""
    return next((place for place in places if place.exists()), None)
