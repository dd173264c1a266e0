"""One process an output folder."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from freetickets import lock
from freetickets.errors import FreeTicketsError
from freetickets.lock import NAME, STALE, FolderInUseError, hold, process_start

HOLD = """
import os, sys, time
from freetickets.lock import hold
with hold(sys.argv[1]):
    child = os.fork() if "fork" in sys.argv else 1  # as data loaders do
    if child:
        print(child, flush=True)
    time.sleep(60)
"""
COUNT = """
import sys
from pathlib import Path
from freetickets.lock import hold
path = Path(sys.argv[1]) / "count"
for _ in range(25):
    with hold(sys.argv[1], wait=60):
        path.write_text(str(int(path.read_text()) + 1))
"""


@pytest.fixture
def holding():
    """Starts a process that holds a folder, and returns it once it does."""
    started: list[subprocess.Popen[str]] = []

    def start(folder, *more):
        command = [sys.executable, "-c", HOLD, str(folder), *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that has no locks to give."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "lockf", refuse)


def write_holder(folder, **values):
    (folder / NAME).write_text(json.dumps(values))


def test_a_second_process_is_refused_and_told_who_is_there(tmp_path, holding):
    process, _ = holding(tmp_path)
    words = f"{tmp_path} is in use by process {process.pid} on {socket.gethostname()}"
    with pytest.raises(FolderInUseError, match=words), hold(tmp_path):
        pass


@pytest.mark.parametrize("more", [(), ("fork",)], ids=["alone", "its-child-lives"])
def test_the_folder_of_a_killed_process_is_free_at_once(tmp_path, holding, more):
    process, child = holding(tmp_path, *more)
    process.kill()
    process.wait()
    told: list[str] = []
    with hold(tmp_path, told.append):
        (line,) = told
        assert f"process {process.pid} on {socket.gethostname()} died" in line
    if more:
        os.kill(child, signal.SIGKILL)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_locks")  # so that its number is looked at
def test_a_dead_process_that_its_parent_has_not_noticed_is_dead(tmp_path, holding):
    process, _ = holding(tmp_path)
    assert process_start(process.pid)
    process.kill()  # and not waited for: a zombie
    told: list[str] = []
    with hold(tmp_path, told.append, wait=60):
        assert f"process {process.pid} on" in told[0]


def test_a_number_that_is_now_another_programs_is_no_holder(tmp_path):
    write_holder(tmp_path, process=os.getppid(), host=socket.gethostname(), start="boot 1")
    told: list[str] = []
    with hold(tmp_path, told.append):
        assert len(told) == 1


@pytest.mark.usefixtures("no_locks")
def test_without_locks_of_the_file_system_a_live_process_still_counts(tmp_path):
    parent = os.getppid()
    start = process_start(parent)
    write_holder(tmp_path, process=parent, host=socket.gethostname(), start=start)
    with pytest.raises(FolderInUseError, match=f"process {parent} "), hold(tmp_path):
        pass


def test_on_another_machine_signs_of_life_decide(tmp_path):
    write_holder(tmp_path, process=7, host="else\x1b\nwhere", start="")  # as a terminal can bear
    with pytest.raises(FolderInUseError, match=r"7 on else��where.*try again"), hold(tmp_path):
        pass
    old = time.time() - STALE - 5
    os.utime(tmp_path / NAME, (old, old))
    told: list[str] = []
    with hold(tmp_path, told.append):
        assert "process 7 on else��where died" in told[0]


def test_the_holder_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 0.01)
    with hold(tmp_path):
        os.utime(tmp_path / NAME, (1, 1))
        for _ in range(1000):
            if (tmp_path / NAME).stat().st_mtime > 1:
                return
            time.sleep(0.01)
    raise AssertionError("no sign of life")


def test_processes_that_wait_never_meet(tmp_path):
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "75"
    assert [file.name for file in tmp_path.iterdir()] == ["count"]


def test_what_was_not_written_to_leaves_nothing(tmp_path):
    with hold(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / NAME).exists()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FreeTicketsError, match="can't write"), hold(tmp_path / "file" / "run"):
        pass


@pytest.mark.parametrize(
    "text",
    [
        '{"process": 1',
        *(f'{{"process": {n}, "host": "a", "start": ""}}' for n in ('"7"', 7.5, -1, 10**20)),
        '{"process": 7, "host": ["elsewhere"], "start": ""}',
        '{"process": 7, "host": "elsewhere"}',
        '{"process": 7, "host": "elsewhere", "start": "", "more": 1}',
        '[7, "elsewhere", ""]',
    ],
)
def test_a_record_that_is_damaged_or_of_another_type_does_not_lock_a_folder(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    with hold(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["process"] == os.getpid()
