"""Folders that can't be written to, also for root."""

import os
import shutil
import subprocess
import sys
from functools import partial

import fault_child
import pytest

REPRODUCE = "fgsm --only dense --scale smoke --quiet"
OBEY = (fault_child.obey_permissions,)


@pytest.fixture
def read_only(tmp_path, finished):
    """A folder with a finished run that its permission bits protect; made writable at the end."""
    if os.geteuid() == 0 and sys.platform != "linux":
        pytest.skip("root can give up its right to ignore permission bits on Linux only")
    folder = tmp_path / "protected"
    shutil.copytree(finished(), folder / "run")
    folders = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
    for each in folders:
        each.chmod(0o555)
    yield folder
    for each in folders:
        each.chmod(0o755)


def assert_nothing_is_written(child, command, folder, digests, reason, faults=()):
    """Tries commands that would write to a folder, or to the run in it."""
    before, new, run = digests(folder), folder / "new", folder / "run"
    for arguments in (
        [*command(), "-o", new],
        [*command(), "-o", run],
        [*command("dst"), "-o", new, "--jobs", 2],
        ["evaluate", run],
        ["evaluate", run, "--saved"],
        ["report", run, "-o", folder / "report.html"],
        ["reproduce", *REPRODUCE.split(), "-o", folder / "reproduce"],
    ):
        line = child(*arguments, faults=faults).line
        assert "can't write " in line, arguments
        assert reason in line, arguments
        assert digests(folder) == before, arguments


def test_a_folder_without_the_right_to_write_is_one_line(child, command, read_only, digests):
    assert_nothing_is_written(child, command, read_only, digests, "Permission denied", OBEY)


def test_a_disk_that_is_mounted_read_only_is_one_line(child, command, finished, mounted, digests):
    disk = mounted("size=4m")
    shutil.copytree(finished(), disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert_nothing_is_written(child, command, disk, digests, "Read-only file system")


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
