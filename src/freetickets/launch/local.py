"""Assignments as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path

from ..training.interrupt import StopRequest
from .assignment import COMMAND, RETRIES, Assignment, Log, News, stopped

_POLL = 0.05
_GRACE = 60.0  # seconds for a process to save and end


def launch(
    assignments: Sequence[Assignment], jobs: int, retries: int = RETRIES
) -> Generator[News, None, None]:
    """Does assignments, so many at a time, each in a process; tells of them until all have ended.

    If it is left before the end, the processes save and stop; so do they on Ctrl-C or SIGTERM
    (StoppedError). They share the cores unless `OMP_NUM_THREADS` is set.
    """
    waiting = deque(Log(assignment) for assignment in assignments)
    running: list[_Process] = []
    environment = _environment(min(jobs, len(assignments)))
    try:
        with StopRequest() as stop:
            while running or (waiting and not stop.made):
                while waiting and len(running) < jobs and not stop.made:
                    running.append(_Process(waiting.popleft(), environment))
                time.sleep(_POLL)
                for process in list(running):
                    if stop.made:
                        process.ask_to_stop()
                    code = process.poll()
                    yield from process.log.news()
                    if code is None:
                        continue
                    running.remove(process)
                    process.end()
                    if stop.made and code != 0:
                        continue  # it has saved
                    news = process.log.end(code, retries)
                    if news.kind == "again":
                        waiting.appendleft(Log(news.assignment, process.log.lost + 1))
                    yield news
            if stop.made:
                raise stopped()
    except KeyboardInterrupt:  # the second one
        for process in running:
            process.kill()
        raise
    finally:
        for process in running:
            process.ask_to_stop()  # all, before the first is waited for
        for process in running:
            process.end()


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
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()  # nothing breaks: it goes on from its last checkpoint
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
