"""What is finished stays so when an option is added, and a record says what code made it."""

import subprocess
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from freetickets.config import Config
from freetickets.experiments import experiment_names, load, substitutes
from freetickets.experiments.grid import make_tasks
from freetickets.experiments.provenance import COMMIT_FILE, UNKNOWN, commit, fingerprint, origin
from freetickets.experiments.results import Results
from freetickets.experiments.runner import Runner
from freetickets.experiments.scales import SCALES
from freetickets.methods import EDST, recipe
from freetickets.storage import write_json

KEPT = Path(__file__).parents[2] / "results" / "small"


@pytest.fixture
def small(tmp_path, monkeypatch):
    monkeypatch.setattr(substitutes, "is_here", lambda *_: True)
    return Runner(SCALES["small"], tmp_path)


def all_tasks(runner):
    return make_tasks(map(load, experiment_names()), runner.scale, 3)


def test_all_committed_records_are_finished_cells(small):
    results = Results.load(KEPT)
    found = {
        (task.cell.name, task.seed): small.fingerprint(task)
        for task in all_tasks(small)
        if results.get(task.cell, task.seed)
    }
    assert found == {key: record["fingerprint"] for key, record in results.records.items()}
    assert len(found) == 128


def test_a_new_option_with_a_default_changes_no_fingerprint(small, monkeypatch):
    task = all_tasks(small)[0]
    before = small.fingerprint(task)
    known = {"__post_init__": lambda self: None}  # Config's knows no other fields
    new = [("new", bool, field(default=False))]
    longer: Any = make_dataclass("Longer", new, bases=(Config,), namespace=known, frozen=True)
    monkeypatch.setattr("freetickets.experiments.scales.Config", longer)
    assert isinstance(small.config(task), longer)
    assert small.fingerprint(task) == before
    given = Runner._given
    monkeypatch.setattr(Runner, "_given", lambda *of: replace(given(*of), new=True))
    assert small.fingerprint(task) != before


def test_a_new_option_of_recipes_changes_none_but_another_number_does(small, monkeypatch):
    task = all_tasks(small)[0]
    before = small.fingerprint(task)
    new = [("new", str, field(default="none"))]
    longer: Any = make_dataclass("Longer", new, bases=(recipe.Recipe,), frozen=True)
    for changed in ({}, {"momentum": 0.8}, {"new": "some"}, {"explore_epochs": 140}):
        monkeypatch.setitem(recipe.RECIPES, "cifar", longer("cifar", **changed))
        assert (small.fingerprint(task) == before) == (not changed), changed


def test_each_choice_of_a_task_counts(small):
    tasks = all_tasks(small)
    assert len({small.fingerprint(task) for task in tasks}) == len(tasks)
    substitute = small.scale.substitutes["cifar10"]
    data = replace(substitute.data, train=3999)
    for changed in ({"samples": 499}, {"data": data}, {"lr": 0.06}):
        substitutes = {**small.scale.substitutes, "cifar10": replace(substitute, **changed)}
        other = Runner(replace(small.scale, substitutes=substitutes), small.folder)
        assert other.fingerprint(tasks[0]) != small.fingerprint(tasks[0])
    # But where a run lies is no part of it.
    moved = Runner(SCALES["small"], small.folder / "other", "elsewhere", "cpu", 4)
    assert moved.fingerprint(tasks[0]) == small.fingerprint(tasks[0])


def test_only_what_is_not_default_is_told_at_every_depth():
    @dataclass(frozen=True)
    class Box:
        inside: EDST
        many: tuple[EDST, ...] = ()
        notes: dict[str, int] = field(default_factory=dict)

    for box, told in (
        (Box(EDST(rate=0.3)), {"inside": {"rate": 0.3}}),
        (Box(EDST(), (EDST(), EDST(tickets=2)), {}), {"inside": {}, "many": [{}, {"tickets": 2}]}),
    ):
        assert fingerprint({"a": box}) == fingerprint({"a": told})


def git(folder, *words):
    command = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.check_output(command, text=True).strip()


def test_a_checkout_knows_its_commit_and_whether_it_was_changed(tmp_path):
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    assert commit.__wrapped__(package) == UNKNOWN  # sources without a history
    (package / "code.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit.__wrapped__(package) == head
    (tmp_path / "notes").write_text("beside the code")
    assert commit.__wrapped__(package) == head
    (package / "code.py").write_text("2")
    assert commit.__wrapped__(package) == head + "+"
    # An installation says what was written into it.
    assert commit.__wrapped__(tmp_path) == UNKNOWN
    (tmp_path / COMMIT_FILE).write_text("abc\n")
    assert commit.__wrapped__(tmp_path) == "abc"


def test_the_machine_and_the_kernels_are_told(tmp_path):
    found = origin(tmp_path)
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert {"version", "commit", "cpu", "kernels"} <= set(found)
    assert found["choices"] == {}
    write_json(tmp_path / "choices.json", {"ways": {"conv": "sparse"}, "settings": "abc"})
    assert origin(tmp_path)["choices"] == {"ways": {"conv": "sparse"}}
