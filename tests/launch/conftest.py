"""Runs side by side, beside the same runs one after the other."""

import contextlib
import csv
import io
import json
import time
from pathlib import Path

import pytest

from freetickets.cli import main
from freetickets.kernels.library import available
from freetickets.launch.assignment import Log
from freetickets.lock import NAME

FLAGS = "--model mlp-8 --epochs 4 --tickets 2 --batch-size 16 --quiet --validation 0.1"
FLAGS += " --trajectory 2"
# Not "auto": what is faster may differ from one run to the next, and so the bits.
FLAGS += f" --backend {'sparse' if available() else 'masked'}"
# Many epochs: long enough to be met while it works.
LONG = f"{FLAGS} --epochs 60 --checkpoint-seconds 0.05"


@pytest.fixture(scope="session")
def long():
    """Flags of a run that takes a while."""
    return LONG


@pytest.fixture(autouse=True)
def _one_thread_each(monkeypatch):
    """Bits depend on the number of threads, so all have as many as this process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def command(images_npz):
    """The arguments that train a method."""

    def make(method, flags=FLAGS):
        return ["train", method, "--dataset", str(images_npz), *flags.split()]

    return make


@pytest.fixture(scope="session")
def serial(command, tmp_path_factory):
    """The folder of a run that was trained by one process; made once."""
    made: dict[tuple[str, str], Path] = {}

    def train(method, flags=FLAGS):
        key = (method, flags)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("serial") / method
            with contextlib.redirect_stdout(io.StringIO()):
                assert main([*command(method, flags), "--output", str(made[key])]) == 0
        return made[key]

    return train


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
