"""The folder of a run: checkpoints, tickets and log, each tied to the run that wrote it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import FreeTicketsError
from ..methods.plan import Plan
from ..reading import Allow, damaged, read, read_json
from ..seal import seal_text
from ..storage import write_atomic, write_json
from ..ticket import Ticket, ticket_path
from .checkpoint import IDENTITY, Checkpoint, Checkpoints, pack_checkpoint, plan_fingerprint
from .log import log_text
from .state import State

_CHOICES = "choices.json"
_START_AGAIN = "delete that folder to start again"


@dataclass(frozen=True)
class _ChoicesFile:
    """The types of what choices.json says; it may say more."""

    kernels: tuple[str, ...] = ()
    ways: dict[str, str] = field(default_factory=dict)


class RunFolder:
    """What a trainer writes, and reads to go on.

    `describe` is what tickets say of their run, of which `IDENTITY` tells runs apart; without it
    the run is whichever is there. `warn` is told when a damaged checkpoint is passed over.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        describe: Mapping[str, Any] | None,
        warn: Callable[[str], None],
    ) -> None:
        self.path, self._plan, self._any = path, plan, describe is None
        self.identity = {key: (describe or {}).get(key) for key in IDENTITY}
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
            saved: Checkpoint = read(Checkpoint, tree)
            state = State.unpack(saved.state)
        if saved.plan != plan_fingerprint(self._plan):
            raise FreeTicketsError(
                f"{self.path} was started with another plan: use the same settings to continue, "
                "or another --output to start again"
            )
        found = {key: getattr(saved, key) for key in IDENTITY}
        if self._any:
            self.identity = found
        for key, what in IDENTITY.items():
            if found[key] not in (None, self.identity[key]):
                raise FreeTicketsError(
                    f"{self.path} was started with {what}: restore what was there then to "
                    "continue, or use another --output to start again"
                )
        return state, saved.session

    def restoring(self) -> AbstractContextManager[None]:
        """Turns what a checkpoint that can't be meant raises into one line."""
        return damaged(self.path / "checkpoint", _START_AGAIN, but=FreeTicketsError)

    def save_ticket(self, ticket: Ticket) -> None:
        """Writes a ticket under its number."""
        ticket.save(ticket_path(self.path, ticket.info["number"]))

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
        write_atomic(
            self.path / "log.csv", log_text(rows, self.identity["settings"] or "").encode()
        )

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
        read(_ChoicesFile, found, allow=Allow.UNKNOWN)
    return found
