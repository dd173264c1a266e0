"""Folders that can't be written to, also for root."""

import os
import shutil
import subprocess
import sys
from functools import partial

import fault_child
import pytest

REPRODUCE = ("reproduce", "fgsm", "--only", "dense", "--scale", "smoke", "--quiet")
OBEY = (fault_child.obey_permissions,)


@pytest.fixture
def read_only(tmp_path, peaceful):
    """A folder with a finished run that its permission bits protect; made writable at the end."""
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip("root can give up its right to ignore permission bits on Linux only")
    folder = tmp_path / "protected"
    shutil.copytree(peaceful(), folder / "run")
    folders = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
    for each in folders:
        each.chmod(0o555)
    yield folder
    for each in folders:
        each.chmod(0o755)


# Commands that would write to a folder, or to the run in it.
COMMANDS = {
    "train": lambda folder, command: [*command(), "-o", folder / "new"],
    "train a run that is there": lambda folder, command: [*command(), "-o", folder / "run"],
    "train side by side": lambda folder, command: [
        *command("dst"),
        "-o",
        folder / "new",
        "--jobs",
        2,
    ],
    "evaluate": lambda folder, _: ["evaluate", folder / "run"],
    "evaluate --saved": lambda folder, _: ["evaluate", folder / "run", "--saved"],
    "report": lambda folder, _: ["report", folder / "run", "-o", folder / "report.html"],
    "reproduce": lambda folder, _: [*REPRODUCE, "-o", folder / "reproduce"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_without_the_right_to_write_is_one_line(child, command, read_only, digests, name):
    before = digests(read_only)
    answer = child(*COMMANDS[name](read_only, command), faults=OBEY)
    assert "can't write " in answer.line
    assert "Permission denied" in answer.line
    assert digests(read_only) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_mounted_read_only_is_one_line(
    child, command, peaceful, mounted, digests, name
):
    disk = mounted("size=4m")
    shutil.copytree(peaceful(), disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = digests(disk)
    answer = child(*COMMANDS[name](disk, command))
    assert "can't write " in answer.line
    assert "Read-only file system" in answer.line
    assert digests(disk) == before


def test_a_run_that_is_protected_can_be_reported_and_compared(child, read_only, tmp_path):
    report = ("report", read_only / "run", "-o", tmp_path / "report.html")
    assert child(*report, faults=OBEY).code == 0
    answer = child("compare", read_only / "run", faults=OBEY)
    assert (answer.code, answer.err) == (0, "")


def test_a_folder_that_becomes_protected_while_a_run_writes_is_one_line(
    child, command, assert_whole, assert_goes_on, tmp_path
):
    run = tmp_path / "run"
    faults = (*OBEY, partial(fault_child.protect, str(run / "checkpoint"), 7))
    answer = child(*command(), "-o", run, faults=faults)
    (run / "checkpoint").chmod(0o755)
    assert "checkpoint/" in answer.line
    assert "Permission denied" in answer.line
    assert_whole(run)
    assert_goes_on(run)
