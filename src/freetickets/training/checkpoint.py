"""Checkpoints: what one holds, and the files: the newest two, each checked when it is read."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from ..errors import DamagedFileError
from ..methods.events import Event
from ..methods.plan import Plan
from ..storage import load_tree, save_tree
from .state import State

_KIND = "freetickets-checkpoint"
_KEEP = 2

# What checkpoints and tickets say of the run that they are of, and what to call it if it differs.
IDENTITY = {
    "settings": "other settings",
    "data": "other training data",
    "validation_data": "other validation data",
    "network": "another network",
}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a checkpoint holds; older ones don't say of which settings and data they are."""

    plan: str
    settings: str | None = None
    data: str | None = None
    validation_data: str | None = None
    network: str | None = None
    state: dict[str, Any]
    session: dict[str, Any] | None


def pack_checkpoint(
    plan: Plan,
    identity: Mapping[str, str | None],
    state: State,
    session: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A checkpoint as tensors and plain values; between two runs it has no session.

    `identity` is what the run says for the keys of `IDENTITY`; it may say more.
    """
    own = {key: identity.get(key) for key in IDENTITY}
    live = None if session is None else dict(session)
    return {"plan": plan_fingerprint(plan), **own, "state": state.pack(), "session": live}


def plan_fingerprint(plan: Plan) -> str:
    """What a checkpoint says of its plan."""
    return json.dumps(_plain(plan), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if not is_dataclass(value):
        return value
    plain = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return {**plain, "event": value.event} if isinstance(value, Event) else plain


class Checkpoints:
    """The checkpoints of one run folder; `warn` is told when a damaged one is passed over."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn

    def save(self, tree: Any) -> None:
        """Writes a new checkpoint, then removes all but the newest two."""
        files = self._files()
        number = int(files[-1].stem) + 1 if files else 1
        save_tree(self._folder / f"{number:06d}.safetensors", tree, _KIND)
        for old in files[: 1 - _KEEP]:
            with contextlib.suppress(OSError):  # one too many does no harm
                old.unlink(missing_ok=True)

    def load(self) -> Any | None:
        """The newest checkpoint that is whole; None if there is none, but raises if all are bad."""
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
