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
    child = os.fork()  # as data loaders do
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
HERE = socket.gethostname()


@pytest.fixture
def holding(tmp_path):
    """A process that holds the folder, and the number of its child."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        yield process
        process.kill()
        os.kill(child, signal.SIGKILL)


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that has no locks to give."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "lockf", refuse)


def write_holder(folder, **values):
    (folder / NAME).write_text(json.dumps({"start": "", "host": HERE, **values}))


def refused(folder, words):
    with pytest.raises(FolderInUseError, match=words), hold(folder):
        pass


def taken_over(folder, words, **options):
    told: list[str] = []
    with hold(folder, told.append, **options):
        (line,) = told
        assert words in line
        assert json.loads((folder / NAME).read_text())["process"] == os.getpid()


def test_a_second_process_is_refused_and_the_folder_of_a_killed_one_free_at_once(tmp_path, holding):
    who = f"process {holding.pid} on {HERE}"
    refused(tmp_path, f"{tmp_path} is in use by {who}: wait until it ends, or stop it")
    holding.kill()
    holding.wait()  # its child lives on
    taken_over(tmp_path, f"{who} died")
    assert not list(tmp_path.iterdir())
    with hold(tmp_path):  # nor is the same process let in twice
        refused(tmp_path, f"in use by process {os.getpid()} ")


@pytest.mark.usefixtures("no_locks")  # so that its number is looked at
def test_a_dead_process_that_its_parent_has_not_noticed_is_dead(tmp_path, holding):
    assert process_start(holding.pid)
    holding.kill()  # and not waited for: a zombie
    taken_over(tmp_path, f"process {holding.pid} on", wait=60)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_live_process_still_counts_unless_it_has_begun_since(tmp_path):
    parent = os.getppid()
    write_holder(tmp_path, process=parent, start=process_start(parent))
    refused(tmp_path, f"process {parent} ")
    write_holder(tmp_path, process=parent, start="boot 1")
    taken_over(tmp_path, f"process {parent} on")


def test_on_another_machine_signs_of_life_decide(tmp_path):
    write_holder(tmp_path, process=7, host="else\x1b\nwhere")  # as a terminal can bear
    refused(tmp_path, r"7 on else��where.*try again")
    old = time.time() - STALE - 5
    os.utime(tmp_path / NAME, (old, old))
    taken_over(tmp_path, "process 7 on else��where died")


def test_the_holder_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_BEAT", 0.01)
    with hold(tmp_path):
        os.utime(tmp_path / NAME, (1, 1))
        deadline = time.monotonic() + 10
        while (tmp_path / NAME).stat().st_mtime == 1:
            assert time.monotonic() < deadline, "no sign of life"
            time.sleep(0.01)


def test_processes_that_wait_never_meet(tmp_path):
    (tmp_path / "count").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "75"
    assert [file.name for file in tmp_path.iterdir()] == ["count"]


def test_what_is_not_written_to_leaves_nothing_and_damaged_records_lock_nothing(tmp_path):
    for text in (
        '{"process": 1',
        '{"process": -1, "host": "a", "start": ""}',
        '{"process": 7, "host": ["elsewhere"], "start": ""}',
        '{"process": 7, "host": "elsewhere"}',
        '[7, "elsewhere", ""]',
    ):
        (tmp_path / NAME).write_text(text)
        with hold(tmp_path):
            assert json.loads((tmp_path / NAME).read_text())["process"] == os.getpid()
    with hold(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b" / NAME).exists()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(FreeTicketsError, match="can't write"), hold(tmp_path / "file" / "run"):
        pass
