"""An assignment: work that one process does, and the news of it."""

import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ..errors import StoppedError
from ..lock import STALE
from ..training.interrupt import StopRequest

RETRIES = 3  # of an assignment whose process or machine is lost
WAIT = 1.5 * STALE  # seconds for its folder: what it follows may have died on another machine
# What does an assignment: the command line, by its name, since it imports launchers.
COMMAND = "freetickets.cli.worker"
GRACE = 60.0  # seconds for a process to save and end
MISTAKE = 2  # the exit code of what would only fail again
_ERROR = "freetickets: "
_POLL = 0.05


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
        """What an exit code means; that of a signal is negative."""
        if code == 0:
            return News(self.assignment, "done")
        if code == MISTAKE:
            reason = self.error or f"no reason given: see {self._file}"
            return News(self.assignment, "failed", reason)
        by = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        what = f"its process was lost ({by})"
        if self.lost < retries:
            what += ": it starts again from its last checkpoint"
            return News(self.assignment, "again", what)
        what += f" {self.lost + 1} times"
        if code == -signal.SIGKILL:  # nobody else kills the same work again and again
            what += ", perhaps because the machine ran out of memory"
        return News(self.assignment, "failed", f"{what}: see {self._file}")


class _Work(Protocol):
    """The process that does an assignment; `poll` gives its exit code, or None while it works."""

    log: Log

    def poll(self) -> int | None: ...
    def ask_to_stop(self) -> None: ...
    def kill(self) -> None: ...
    def end(self) -> None: ...  # asks it, waits up to `GRACE`, and kills it


def follow(
    assignments: Sequence[Assignment], start: Callable[[Log], _Work], jobs: int, retries: int
) -> Generator[News, None, None]:
    """Does assignments, so many at a time; tells of them until all have ended.

    If it is left before the end, they save and stop; so do they on Ctrl-C or SIGTERM
    (StoppedError), and end at once on a second Ctrl-C.
    """
    waiting = deque(Log(assignment) for assignment in assignments)
    running: list[_Work] = []
    try:
        with StopRequest() as stop:
            while running or (waiting and not stop.made):
                while waiting and len(running) < jobs and not stop.made:
                    running.append(start(waiting.popleft()))
                time.sleep(_POLL)
                for work in list(running):
                    if stop.made:
                        work.ask_to_stop()
                    code = work.poll()
                    yield from work.log.news()
                    if code is None:
                        continue
                    running.remove(work)
                    work.end()
                    if stop.made and code != 0:
                        continue  # it has saved
                    news = work.log.end(code, retries)
                    if news.kind == "again":
                        waiting.appendleft(Log(news.assignment, work.log.lost + 1))
                    yield news
            if stop.made:
                raise StoppedError(
                    "stopped; everything is saved: run the same command again to continue"
                )
    except KeyboardInterrupt:  # the second one
        for work in running:
            work.kill()
        raise
    finally:
        for work in running:
            work.ask_to_stop()  # all, before the first is waited for
        for work in running:
            work.end()
