"""The folder of a run: checkpoints, tickets and log, each tied to the run that wrote it."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import DamagedFileError, FreeTicketsError
from ..methods.events import Event
from ..methods.plan import Plan
from ..reading import damaged, read, read_fields, read_json
from ..seal import seal_text
from ..storage import load_tree, save_tree, write_atomic, write_json
from ..ticket import Ticket, ticket_path
from .state import State, log_text

_CHOICES = "choices.json"
_START_AGAIN = "delete that folder to start again"
_KIND = "freetickets-checkpoint"
_KEEP = 2

# What checkpoints and tickets say of the run that they are of, and what to call it if it differs.
IDENTITY = {
    "settings": "other settings",
    "data": "other training data",
    "validation_data": "other validation data",
    "network": "another network",
}


# The types of what a checkpoint holds; older ones don't say whose they are.
_CHECKPOINT = {"plan": str, "state": dict[str, Any], "session": dict[str, Any] | None}
_CHECKPOINT |= dict.fromkeys(IDENTITY, str | None)


def pack_checkpoint(
    plan: Plan, says: Mapping[str, str | None], state: State, live: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A checkpoint of a run that `says` who it is; between two runs no session is live."""
    own = {key: says.get(key) for key in IDENTITY}
    session = None if live is None else dict(live)
    return {"plan": _fingerprint(plan), **own, "state": state.pack(), "session": session}


def _fingerprint(plan: Plan) -> str:
    def plain(part: Any) -> dict[str, Any]:
        told = {each.name: getattr(part, each.name) for each in fields(part)}
        return {**told, "event": part.event} if isinstance(part, Event) else told

    return json.dumps(plan, default=plain, sort_keys=True)


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
            raise DamagedFileError(f"no checkpoint in {self._folder} can be read: {_START_AGAIN}")
        return None

    def _files(self) -> list[Path]:
        return sorted(f for f in self._folder.glob("*.safetensors") if f.stem.isdecimal())


class RunFolder:
    """What a trainer writes, and reads to go on.

    `says` is what tickets say of their run, of which `IDENTITY` tells runs apart; without it the
    run is whichever is there. `warn` is told when a damaged checkpoint is passed over.
    """

    def __init__(
        self, path: Path, plan: Plan, says: Mapping[str, Any] | None, warn: Callable[[str], None]
    ) -> None:
        self.path, self._plan, self._any = path, plan, says is None
        self.identity = {key: (says or {}).get(key) for key in IDENTITY}
        self._checkpoints = Checkpoints(path / "checkpoint", warn)
        self._choices: Mapping[str, Any] | None = None  # as they are written

    def save(self, state: State, session: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint."""
        self._checkpoints.save(pack_checkpoint(self._plan, self.identity, state, session))
        self.write_choices(state.choices)

    def load(self) -> tuple[State, Mapping[str, Any] | None] | None:
        """The newest whole checkpoint of this run: its state, and its session if in the midst."""
        tree = self._checkpoints.load()
        if tree is None:
            return None
        with damaged(self.path / "checkpoint", _START_AGAIN):
            saved = read_fields(_CHECKPOINT, tree)
            plan, state, session = saved["plan"], State.unpack(saved["state"]), saved["session"]
        if plan != _fingerprint(self._plan):
            raise FreeTicketsError(
                f"{self.path} was started with another plan: use its settings or another --output"
            )
        found = {key: saved.get(key) for key in IDENTITY}
        if self._any:
            self.identity = found
        for key, what in IDENTITY.items():
            if found[key] not in (None, self.identity[key]):
                raise FreeTicketsError(
                    f"{self.path} was started with {what}: restore what was there then to "
                    "continue, or use another --output to start again"
                )
        return state, session

    def restoring(self) -> AbstractContextManager[None]:
        """Turns what a checkpoint that can't be meant raises into one line."""
        return damaged(self.path / "checkpoint", _START_AGAIN, but=FreeTicketsError)

    def load_ticket(self, number: int) -> Ticket:
        """Reads a ticket; raises if it is another one, or of another run."""
        path = ticket_path(self.path, number)
        ticket = Ticket.load(path)
        expected = {"number": number, **self.identity}
        if any(ticket.info.get(key) not in (None, value) for key, value in expected.items()):
            raise FreeTicketsError(
                f"{path} belongs to another run, or another ticket of this one: put the run's own "
                "back, or use another --output to start again"
            )
        return ticket

    def write_log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Writes the whole log again."""
        text = log_text(rows, self.identity["settings"] or "")
        write_atomic(self.path / "log.csv", text.encode())

    def write_choices(self, choices: Mapping[str, Any]) -> None:
        """Writes which ways layers took, if that has changed."""
        if choices != self._choices:
            own = {"settings": self.identity["settings"]}
            write_json(self.path / _CHOICES, {"kernels": [], "ways": {}, **choices, **own})
            self._choices = choices


def write_settings(config: Config, folder: Path) -> None:
    """Writes all settings of a run, with a seal."""
    write_atomic(folder / "config.yaml", seal_text(config.as_yaml()).encode())


def read_choices(folder: Path) -> dict[str, Any]:
    """Which ways the layers of a run took, and what that rests on: see `Choices.state_dict`.

    Empty if the folder does not say; "kernels" is empty if PyTorch's were the only ones.
    """
    path = folder / _CHOICES
    found = read_json(path) if path.exists() else {}
    with damaged(path):
        read(tuple[str, ...], found.get("kernels", ()), "kernels")
        read(dict[str, str], found.get("ways", {}), "ways")
    return found
