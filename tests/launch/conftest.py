"""Runs side by side, beside the same runs one after the other."""

import contextlib
import csv
import json
import time

import pytest

from freetickets.cli import main
from freetickets.launch.assignment import Log
from freetickets.lock import NAME


@pytest.fixture(scope="session")
def long():
    """Flags of a run of many epochs: long enough to be met while it works."""
    return "--epochs 60 --checkpoint-seconds 0.05"


@pytest.fixture(autouse=True)
def _one_thread_each(monkeypatch):
    """Bits depend on the number of threads, so all have as many as this process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# What the time enters: seconds, and the seals of the files that have them.
TIMES = ("seconds", "sha256")


def _without_times(value):
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in TIMES}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def _content(folder):
    """What a run has left, but for times; no parts, no lock, no log of a worker."""
    found = {n: json.loads((folder / n).read_text()) for n in ("ledger.json", "metrics.json")}
    found["log"] = list(csv.DictReader((folder / "log.csv").read_text().splitlines()))
    found["names"] = sorted(file.name for file in folder.iterdir() if file.name != "checkpoint")
    return found


@pytest.fixture
def assert_same(digests):
    """Fails if two runs differ in more than the time that they took."""

    def check(folder, expected):
        for part in ("tickets", "trajectory"):
            assert digests(folder / part) == digests(expected / part) != {}
        ours, theirs = _content(folder), _content(expected)
        assert _without_times(ours) == _without_times(theirs)
        seconds = [float(row["seconds"]) for row in ours["log"]]
        assert seconds == sorted(seconds)

    return check


def here(assignments):
    """Does assignments in this process, the last first: quick, and no order is safe."""
    for assignment in reversed(assignments):
        log = Log(assignment)
        with assignment.log.open("a") as file, contextlib.redirect_stderr(file):
            code = main(assignment.arguments)
        yield from log.news()
        yield log.end(code, 0)


@pytest.fixture
def in_this_process(monkeypatch):
    """Lets --jobs do its assignments one after the other, in this process."""
    from freetickets.launch import local

    monkeypatch.setattr(local, "launch", lambda assignments, *_: here(assignments))


class Part:
    """A part of a run that trains in another process."""

    def __init__(self, folder):
        self.folder = folder

    @property
    def holder(self):
        """The process that works in it."""
        try:
            return int(json.loads((self.folder / NAME).read_text())["process"])
        except (OSError, ValueError):
            return None

    @property
    def epochs(self):
        """How many have been trained."""
        try:
            return len((self.folder / "log.csv").read_text().splitlines()) - 1
        except FileNotFoundError:
            return 0

    def wait(self, fact, seconds=120):
        """Waits for something that must happen."""
        end = time.monotonic() + seconds
        while not fact(self):
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture
def part():
    """A part of a run, by its number from 1."""
    return lambda output, number: Part(output / "parts" / str(number))
