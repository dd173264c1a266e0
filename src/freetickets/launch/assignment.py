"""An assignment of work that one process does, and the news of it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..lock import STALE

# How often an assignment whose process or machine is lost starts again.
RETRIES = 3

# How long an assignment waits for its folder: what it follows may have died on another machine.
WAIT = 1.5 * STALE

# What a process that does an assignment runs: the command line, by its name, since it imports launchers.
COMMAND = "freetickets.cli.worker"

MISTAKE = 2  # the exit code of what would only fail again
_ERROR = "freetickets: "


@dataclass(frozen=True)
class Assignment:
    """Work for one process.

    Attributes:
        name: What people read.
        arguments: Of the command `freetickets`; the same again goes on where it was stopped.
        log: Where what it says is kept.
    """

    name: str
    arguments: tuple[str, ...]
    log: Path


@dataclass(frozen=True)
class News:
    """What happened to an assignment: it said a line, was lost and starts again, ended, or failed."""

    assignment: Assignment
    kind: Literal["line", "again", "done", "failed"]
    text: str = ""


# Does assignments side by side, and tells of them until all have ended or failed.
Launcher = Callable[[Sequence[Assignment]], Generator[News, None, None]]


class Log:
    """Follows what an assignment says, from now on."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self._place = assignment.log.stat().st_size if assignment.log.exists() else 0
        self.error = ""

    def news(self) -> Iterator[News]:
        """The lines since the last call; an error is kept for the end."""
        try:
            with self.assignment.log.open("rb") as file:
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

    def end(self, code: int, lost: int, retries: int) -> News:
        """What an exit code means for an assignment that was lost so many times before."""
        if code == 0:
            return News(self.assignment, "done")
        if code == MISTAKE:
            return News(
                self.assignment,
                "failed",
                self.error or f"no reason given: see {self.assignment.log}",
            )
        what = f"its process was lost ({describe_exit(code)})"
        if lost < retries:
            return News(
                self.assignment, "again", f"{what}: it starts again from its last checkpoint"
            )
        what += f" {lost + 1} times"
        if code == -signal.SIGKILL:  # nobody else kills the same work again and again
            what += ", perhaps because the machine ran out of memory"
        return News(self.assignment, "failed", f"{what}: see {self.assignment.log}")


def describe_exit(code: int) -> str:
    """An exit code in words.

    Example:
        >>> describe_exit(-9), describe_exit(1)
        ('SIGKILL', 'exit code 1')
    """
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
