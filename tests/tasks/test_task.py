from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freetickets.errors import FreeTicketsError
from freetickets.tasks import TASKS, Classification, Score, Task, make_task, stored_task, task_name
from freetickets.tasks.labels import Classes

OWN = """
from dataclasses import dataclass
from freetickets.tasks import Task

@dataclass(frozen=True)
class Mine(Task):
    strength: float = 1.0
    batch_loss = sample_scores = joined = uncertainty = scores = None

def half(outputs, labels): return outputs.mean() / 2
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a task that only the current directory has."""
    (tmp_path / "own_task.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_task", raising=False)
    monkeypatch.setattr(TASKS, "_known", dict(TASKS))
    return "own_task:Mine"


def test_a_score_knows_which_way_is_better() -> None:
    up, down = Score("r2", "R²", higher_is_better=True), Score("rmse", "RMSE")
    assert up.is_better(0.5, 0.4)
    assert down.is_better(0.4, 0.5)
    assert not down.is_better(0.4, 0.4)  # the first of equals stays
    assert down.is_better(1e9, None)
    assert not down.is_better(math.nan, None)


@pytest.mark.parametrize("form", [".99999f", "s", "{}", ""])
def test_a_score_that_can_not_be_shown_is_refused(form: str) -> None:
    with pytest.raises(FreeTicketsError, match="the form of rmse must be such as"):
        Score("rmse", "RMSE", form)
    for key in ('"><script>', "loss"):
        with pytest.raises(FreeTicketsError, match=r"can't have the key .* give a plain word"):
            Score(key, "RMSE")


def test_a_name_and_options_make_a_task(own: str) -> None:
    assert make_task("classification") == Classification()
    made = make_task(own, {"strength": 2.0})
    assert (task_name(made), made.options) == (own, {"strength": 2.0})
    assert make_task("classification", {"loss": "own_task:half"}).options == {
        "loss": "own_task:half"
    }


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("clasification", {}, "unknown task 'clasification': did you mean 'classification'?"),
        ("classification", {"weights": 1}, "unknown option of classification 'weights'"),
        ("math:prod", {}, "a task must be a data class derived from Task"),
        ("nowhere:Task", {}, "task 'nowhere:Task': cannot import nowhere"),
        ("own_task:Min", {}, "unknown name in own_task 'Min'"),
    ],
)
@pytest.mark.usefixtures("own")
def test_what_makes_no_task_is_one_line(name: str, options: Any, message: str) -> None:
    with pytest.raises(FreeTicketsError, match=message):
        make_task(name, options)


def test_what_a_file_says_imports_nothing(own: str) -> None:
    with pytest.raises(FreeTicketsError, match=f"the task '{own}' is not known here"):
        stored_task({"task": own})
    told = {"task": "classification", "task_options": {"loss": "own_task:half"}}
    assert stored_task(told) == Classification()
    assert "own_task" not in sys.modules
    found = stored_task({"task": own, "task_options": {"strength": 3.0}}, own)
    assert found.options == {"strength": 3.0}


def test_files_that_say_nothing_are_of_classification() -> None:
    assert stored_task({}) == stored_task({"task": None}) == Classification()


def test_targets_are_numbers_unless_a_task_says_otherwise(own: str) -> None:
    task = make_task(own)
    assert isinstance(task, Task)
    found = task.targets(np.array([[1, 2], [3, 4]]), Classes(()))
    assert (found.dtype, found.tolist()) == (np.float32, [[1.0, 2.0], [3.0, 4.0]])
    assert task.predictions(torch.tensor([1.5])).tolist() == [1.5]
    for y, message in (
        (np.array(["a"]), "labels of this task are numbers"),
        (np.array([1.0, np.nan]), "not finite numbers"),
        (np.array([1e300]), "not finite numbers"),
    ):
        with pytest.raises(FreeTicketsError, match=message):
            task.targets(y, Classes(()))


def test_saved_arrays_are_checked(own: str) -> None:
    task, ones = make_task(own), np.ones((2, 3, 1), np.float32)
    task.check_saved(ones, np.ones(3))
    for outputs, targets in (
        (ones, np.ones(4)),
        (ones, np.array(["a", "b", "c"])),
        (ones * np.nan, np.ones(3)),
        (ones.astype(int), np.ones(3)),
    ):
        with pytest.raises(ValueError, match="predictions"):
            task.check_saved(outputs, targets)
