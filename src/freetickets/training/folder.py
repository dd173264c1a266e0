"""The folder of a run: checkpoints, tickets and log, each tied to the run that wrote it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from ..methods.plan import Plan
from ..seal import seal_table
from ..storage import read_json, write_atomic, write_json
from ..ticket import Ticket, ticket_path
from .checkpoint import Checkpoints
from .state import State

LOG_COLUMNS = (
    "run", "phase", "epoch", "step", "lr", "train_loss", "train_accuracy", "validation_loss",
    "validation_accuracy", "itop_rate", "events", "seconds",
)  # fmt: skip

_CHOICES = "choices.json"

# What checkpoints and tickets say of the run that they are of, and what to call it if it differs.
_IDENTITY = {"settings": "other settings", "data": "other training data"}


class RunFolder:
    """What a trainer writes, and reads to go on.

    Args:
        path: The folder.
        plan: What is trained there.
        describe: What tickets say of their run; its settings and data tell runs apart.
        warn: Told, in one line, when a damaged checkpoint is passed over.
    """

    def __init__(
        self,
        path: Path,
        plan: Plan,
        describe: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self.path = path
        self._plan = plan_fingerprint(plan)
        self._identity = {key: describe.get(key) for key in _IDENTITY}
        self._checkpoints = Checkpoints(path / "checkpoint", warn)
        self._choices: Mapping[str, Any] | None = None  # as they are written

    def save(self, state: State, session: Mapping[str, Any] | None) -> None:
        """Writes a checkpoint."""
        self._checkpoints.save(
            {"plan": self._plan, **self._identity, "state": state.pack(), "session": session}
        )
        self.write_choices(state.choices)

    def load(self) -> tuple[State, Mapping[str, Any] | None] | None:
        """The newest checkpoint that is whole: the state, and the session in the midst of a run.

        Raises:
            FreeTicketsError: It is of another plan, other settings or other data.
        """
        saved = self._checkpoints.load()
        if saved is None:
            return None
        if saved["plan"] != self._plan:
            raise FreeTicketsError(
                f"{self.path} was started with another plan: use the same settings to go on, or "
                "another --output to start anew"
            )
        for key, what in _IDENTITY.items():
            if saved.get(key) not in (None, self._identity[key]):
                raise FreeTicketsError(
                    f"{self.path} was started with {what}: restore what was there then to go "
                    "on, or use another --output to start anew"
                )
        return State.unpack(saved["state"]), saved["session"]

    def save_ticket(self, ticket: Ticket) -> None:
        """Writes a ticket under its number."""
        ticket.save(ticket_path(self.path, ticket.info["number"]))

    def load_ticket(self, number: int) -> Ticket:
        """Reads a ticket.

        Raises:
            FreeTicketsError: It is another one, or of another run.
        """
        path = ticket_path(self.path, number)
        ticket = Ticket.load(path)
        expected = {"number": number, **self._identity}
        if any(ticket.info.get(key) not in (None, value) for key, value in expected.items()):
            raise FreeTicketsError(
                f"{path} is of another run, or another ticket of this one: put the run's own back, "
                "or use another --output to start anew"
            )
        return ticket

    def write_log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes the log anew, whole."""
        text = io.StringIO()
        writer = csv.DictWriter(text, LOG_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        sealed = seal_table(text.getvalue(), self._identity["settings"] or "")
        write_atomic(self.path / "log.csv", sealed.encode())

    def write_choices(self, choices: Mapping[str, Any]) -> None:
        """Writes which ways layers took, if that has changed."""
        if choices != self._choices:
            settings = self._identity["settings"]
            values = {"kernels": [], "ways": {}, **choices, "settings": settings}
            write_json(self.path / _CHOICES, values)
            self._choices = choices


def read_choices(folder: Path) -> dict[str, Any]:
    """Which ways the layers of a run took, and what that rests on: see `Choices.state_dict`.

    Empty if the folder does not say; "kernels" is empty if PyTorch's were the only ones.
    """
    path = folder / _CHOICES
    return read_json(path) if path.exists() else {}


def plan_fingerprint(plan: Plan) -> str:
    """What a checkpoint says of its plan."""
    return json.dumps(asdict(plan), sort_keys=True)
