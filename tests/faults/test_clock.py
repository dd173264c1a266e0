"""A clock that goes backwards: nothing is measured with it, and nothing waits for it."""

import csv
import json
import os
import time
from functools import partial

import fault_child
import pytest

from freetickets.lock import NAME, STALE, FolderInUseError, hold

YEAR = 365 * 24 * 3600.0


def test_a_run_whose_clock_goes_back_ends_the_same_and_counts_no_negative_time(
    child, command, finished, assert_same_tickets, tmp_path
):
    run = tmp_path / "run"
    flags = [each for each in command() if each != "--quiet"]
    fault = partial(fault_child.clock_goes_back, 3, YEAR)
    answer = child(*flags, "-o", run, faults=(fault,))
    assert answer.code == 0
    assert_same_tickets(run, finished())
    with (run / "log.csv").open() as file:
        seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    ledger = json.loads((run / "ledger.json").read_text())
    assert all(phase["seconds"] > 0 for phase in ledger["phases"])
    left = [line for line in answer.err.splitlines() if line.endswith(" left")]
    assert len(left) > 4  # an estimate an epoch
    assert not [line for line in left if "-" in line.rpartition("%")[2]]


def test_a_checkpoint_is_due_whatever_the_time_of_day_is(child, command, tmp_path):
    faults = (
        partial(fault_child.clock_goes_back, 2, YEAR),
        partial(fault_child.at_step, 6, fault_child.die),
    )
    # Nothing is collected or closed in these steps: what is saved is saved by its interval.
    assert child(*command(), "-o", tmp_path / "run", faults=faults).code == -9
    assert sorted(file.stem for file in (tmp_path / "run" / "checkpoint").iterdir())[-1] == "000005"


@pytest.fixture
def left_elsewhere(tmp_path):
    """A folder whose holder, on another machine, gave its last sign a year from now."""
    (tmp_path / NAME).write_text(json.dumps({"process": 7, "host": "elsewhere", "start": ""}))
    ahead = time.time() + YEAR
    os.utime(tmp_path / NAME, (ahead, ahead))
    return tmp_path


def try_to_hold(folder):
    with hold(folder):
        pass


def test_a_sign_of_life_from_the_future_keeps_a_folder_for_a_minute_not_a_year(left_elsewhere):
    with pytest.raises(FolderInUseError, match="try again in 60 s"):
        try_to_hold(left_elsewhere)
    assert (left_elsewhere / NAME).stat().st_mtime <= time.time()  # counted from that question on
    later = time.time() - STALE - 1  # as if that minute had gone by
    os.utime(left_elsewhere / NAME, (later, later))
    try_to_hold(left_elsewhere)
    assert not list(left_elsewhere.iterdir())
