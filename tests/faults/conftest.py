"""Commands in processes of their own, to which something really happens."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from freetickets.ticket import Ticket
from freetickets.training.folder import Checkpoints

sys.path.insert(0, str(Path(__file__).parent))

import fault_child

from ..conftest import Answer

_PATIENCE = 120  # seconds until a command that hangs is given up


@pytest.fixture(scope="session")
def _context():
    """Processes that have torch already: one server loads it, and is copied for each."""
    context = multiprocessing.get_context("forkserver")
    modules = ("cli.train", "training.trainer", "evaluation", "launch.parts", "report")
    # Optimizers load the compiler of torch when the first is made.
    preload = ["torch", "torch._dynamo", *(f"freetickets.{name}" for name in modules)]
    context.set_forkserver_preload(preload)
    return context


@pytest.fixture
def child(_context, monkeypatch):
    """Runs a command of freetickets in a process of its own, to which faults happen."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # The server loads torch and freetickets before it is given the path of this process.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))

    def run(*arguments, faults=()):
        pipes = [_context.Pipe(duplex=False) for _ in range(2)]
        process = _context.Process(
            target=fault_child.run,
            args=([str(each) for each in arguments], pipes[0][1], pipes[1][1], faults),
        )
        process.start()
        said = []
        for _, writing in pipes:
            writing.close()
        for reading, _ in pipes:
            said.append(_read(reading))
            reading.close()
        process.join(_PATIENCE)
        if process.exitcode is None:
            process.kill()
            pytest.fail("the command hangs")
        return Answer(process.exitcode, *said)

    return run


def _read(connection):
    parts = []
    while connection.poll(_PATIENCE) and (part := os.read(connection.fileno(), 1 << 16)):
        parts.append(part)
    return b"".join(parts).decode()


@pytest.fixture
def assert_same_tickets(digests):
    """Fails unless two runs have the same tickets, byte for byte, and no file that is hidden."""

    def check(folder, expected):
        assert digests(folder / "tickets") == digests(expected / "tickets")
        assert digests(folder / "trajectory") == digests(expected / "trajectory")
        assert digests(folder / "tickets")
        assert not hidden(folder)

    return check


@pytest.fixture
def assert_goes_on(child, command, finished, assert_same_tickets):
    """Runs the same command again, and fails unless it ends as if nothing had happened."""

    def check(run, method="edst"):
        assert child(*command(method), "-o", run).code == 0
        assert_same_tickets(run, finished(method))

    return check


def hidden(folder):
    """What is there that should not be: temporary files and locks."""
    return [file for file in folder.rglob(".*") if file.is_file()]


@pytest.fixture
def assert_whole():
    """Fails if a file of a run is damaged, or one is left that is none of a run."""

    def check(folder):
        def fail(line):
            raise AssertionError(line)

        Checkpoints(folder / "checkpoint", fail).load()
        for file in folder.glob("tickets/*"):
            Ticket.load(file)
        assert not hidden(folder)

    return check


@pytest.fixture
def mounted(tmp_path):
    """Mounts a disk of its own, where that is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    disks: list[Path] = []

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if sys.platform != "linux" or os.geteuid() != 0:
            pytest.skip("only root may mount a disk")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        disks.append(folder)
        return folder

    yield mount
    for disk in disks:
        subprocess.run(["umount", "-l", str(disk)], check=True)
