"""The queue copies whole records both ways, and goes on from the commit of its first start."""

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from freetickets.experiments.answers import Answers
from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, save

from .loading import load_script

TOOL = load_script("tools/medium_queue.py")
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it reads /proc")


@pytest.fixture
def queue(tmp_path):
    return TOOL.Queue(tmp_path / "home", "medium", tmp_path / "kept")


def write_record(folder, cell, seed=0, accuracy=0.5):
    record = {
        "cell": cell, "seed": seed, "method": "dense", "options": {}, "ledger": {"members": 2},
        "metrics": {"ensemble": {"accuracy": accuracy}}, "first": {},
    }  # fmt: skip
    rows, logs = np.zeros((2, 4), np.int64), np.full((2, 4), -0.5)
    return save(folder, record, Answers(rows[0], rows, np.full((2, 4), 0.5), logs))


def test_finished_records_are_copied_with_their_answers_and_back(queue):
    runs = queue.runs / "medium"
    write_record(runs, "few-cifar10-dense")
    damaged = write_record(runs, "few-cifar10-edst")
    damaged.with_suffix(".npz").write_bytes(b"")
    assert queue.collect() == 1
    assert list(Results.load(queue.kept).records) == [("few-cifar10-dense", 0)]
    assert queue.collect() == 0
    write_record(runs, "few-cifar10-dense", accuracy=0.6)  # made anew
    assert queue.collect() == 1
    (record,) = Results.load(queue.kept).records.values()
    assert record["metrics"]["ensemble"]["accuracy"] == 0.6
    kept = sorted(path.name for path in queue.kept.rglob("*") if path.is_file())
    assert kept == ["0.json", "0.npz"]
    shutil.rmtree(runs)  # what is kept is not trained again
    assert queue.bring_back() == 1
    assert list(Results.load(runs).records) == [("few-cifar10-dense", 0)]
    write_record(runs, "few-cifar10-dense", accuracy=0.9)
    assert queue.bring_back() == 0  # what was made since is the newer


def test_status_says_how_far_it_is_and_what_comes_next(queue):
    first, second = find_grid("medium").tasks(find_grid("medium").experiments)[:2]
    write_record(queue.kept, first.cell.name, first.seed)
    told = queue.status()
    assert told.startswith("1 of 61 cells are recorded")
    assert f"next: {second.name};" in told
    assert "nothing runs" in told
    with pytest.raises(SystemExit, match="nothing runs"):
        queue.signal("stop")


def test_later_starts_go_on_from_the_commit_of_the_first_alone(queue, monkeypatch, tmp_path):
    trained: list[str] = []
    monkeypatch.setattr(TOOL, "_git", lambda *words: words[1].removesuffix("^{commit}"))
    monkeypatch.setattr(TOOL, "install", lambda commit, folder: folder)
    monkeypatch.setattr(queue, "run", lambda commit, code, parsed: trained.append(commit))
    for commit in ("a1", None, "b2", None):
        queue.begin(argparse.Namespace(command="run", commit=commit))
    assert trained == ["a1", "a1", "b2", "b2"]
    with pytest.raises(SystemExit, match="not in"):
        TOOL._check_code(tmp_path, {**os.environ, "PYTHONPATH": str(tmp_path)})
