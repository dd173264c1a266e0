"""An assignment: work that one process does, and the news of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import StoppedError
from ..lock import STALE

# How often an assignment whose process or machine is lost starts again.
RETRIES = 3

# How long an assignment waits for its folder: what it follows may have died on another machine.
WAIT = 1.5 * STALE

# What does an assignment: the command line, by its name, since it imports launchers.
COMMAND = "freetickets.cli.worker"

MISTAKE = 2  # the exit code of what would only fail again
_ERROR = "freetickets: "


@dataclass(frozen=True)
class Assignment:
    """Work for one process, under a name for people: arguments of the command `freetickets`.

    The same again goes on where it was stopped. What it says is kept in `log`.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path


@dataclass(frozen=True)
class News:
    """What an assignment did: it said a line, was lost and starts again, ended, or failed."""

    assignment: Assignment
    kind: Literal["line", "again", "done", "failed"]
    text: str = ""


# Does assignments side by side, and tells of them until all have ended or failed.
Launcher = Callable[[Sequence[Assignment]], Generator[News, None, None]]


class Log:
    """Follows what an assignment, which was lost so many times before, says from now on."""

    def __init__(self, assignment: Assignment, lost: int = 0) -> None:
        self.assignment, self.lost = assignment, lost
        self._file = assignment.log
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._place = self._file.stat().st_size if self._file.exists() else 0
        self.error = ""

    def news(self) -> Iterator[News]:
        """The lines since the last call; an error is kept for the end."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._place)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(_ERROR):
                self.error = line.removeprefix(_ERROR)
            elif line.strip():
                yield News(self.assignment, "line", line)

    def end(self, code: int, retries: int) -> News:
        """What an exit code means."""
        if code == 0:
            return News(self.assignment, "done")
        if code == MISTAKE:
            reason = self.error or f"no reason given: see {self._file}"
            return News(self.assignment, "failed", reason)
        what = f"its process was lost ({describe_exit(code)})"
        if self.lost < retries:
            what += ": it starts again from its last checkpoint"
            return News(self.assignment, "again", what)
        what += f" {self.lost + 1} times"
        if code == -signal.SIGKILL:  # nobody else kills the same work again and again
            what += ", perhaps because the machine ran out of memory"
        return News(self.assignment, "failed", f"{what}: see {self._file}")


def stopped() -> StoppedError:
    """What a launcher raises when it was asked to stop, and all have saved."""
    return StoppedError("stopped; everything is saved: run the same command again to continue")


def describe_exit(code: int) -> str:
    """An exit code in words.

    Example:
        >>> describe_exit(-9), describe_exit(1)
        ('SIGKILL', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
