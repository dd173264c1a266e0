"""Assignments as processes of this machine."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

from .assignment import COMMAND, GRACE, RETRIES, Assignment, Log, News, follow


def launch(
    assignments: Sequence[Assignment], jobs: int, retries: int = RETRIES
) -> Generator[News, None, None]:
    """Does assignments, so many at a time, each in a process: see `follow`.

    They share the cores unless `OMP_NUM_THREADS` is set.
    """
    environment = _environment(min(jobs, len(assignments)))
    yield from follow(assignments, lambda log: _Process(log, environment), jobs, retries)


class _Process:
    def __init__(self, log: Log, environment: dict[str, str]) -> None:
        self.log = log
        with log.assignment.log.open("ab") as file:
            self._process = subprocess.Popen(
                python(COMMAND, log.assignment.arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the launcher, which asks all to stop
            )
        self.poll = self._process.poll
        self.kill = self._process.kill

    def ask_to_stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        self.ask_to_stop()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _environment(jobs: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(max(1, cores() // max(1, jobs))), **os.environ}


def python(module: str, arguments: Sequence[str]) -> list[str]:
    """The command that runs a module as `python -m` does, but with the `sys.path` of this process.

    So it finds the same code as this one, and nothing in the current folder that this one does not.
    """
    start = str(Path(__file__).with_name("start.py"))
    return [sys.executable, start, module, str(len(sys.path)), *sys.path, *arguments]
