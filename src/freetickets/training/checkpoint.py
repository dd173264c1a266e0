"""Checkpoints: the newest two, each checked when it is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import DamagedFileError
from ..storage import load_tree, save_tree

_KIND = "freetickets-checkpoint"
_KEEP = 2


class Checkpoints:
    """The checkpoints of one run folder.

    Args:
        folder: Where they lie; made when the first is saved.
        warn: Told, in one line, when a damaged checkpoint is passed over.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn

    def save(self, tree: Any) -> None:
        """Writes a new checkpoint, then removes all but the newest two."""
        files = self._files()
        number = int(files[-1].stem) + 1 if files else 1
        save_tree(self._folder / f"{number:06d}.safetensors", tree, _KIND)
        for old in files[: 1 - _KEEP]:
            with contextlib.suppress(OSError):  # one too many does no harm
                old.unlink(missing_ok=True)

    def load(self) -> Any | None:
        """Returns the newest checkpoint that is whole; None if there is none at all.

        Raises:
            DamagedFileError: There are checkpoints, but all are damaged.
        """
        files = self._files()
        for file in reversed(files):
            try:
                return load_tree(file, _KIND)
            except DamagedFileError as error:
                self._warn(f"{error}; going back to the checkpoint before it")
        if files:
            raise DamagedFileError(
                f"no checkpoint in {self._folder} can be read: delete that folder to start again"
            )
        return None

    def _files(self) -> list[Path]:
        return sorted(f for f in self._folder.glob("*.safetensors") if f.stem.isdecimal())
