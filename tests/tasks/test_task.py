import math
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import freetickets as ft
from freetickets.data.samples import as_array
from freetickets.errors import FreeTicketsError
from freetickets.tasks import TASKS, Classification, Score, make_task, stored_task, task_name
from freetickets.tasks.task import Classes
from freetickets.tasks.task import as_labels as labels_of

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
def own(tmp_path, monkeypatch):
    """The name of a task that only the current directory has."""
    (tmp_path / "own_task.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_task", raising=False)
    monkeypatch.setattr(TASKS, "_known", dict(TASKS))
    return "own_task:Mine"


def test_a_score_knows_which_way_is_better_and_can_be_shown(refused):
    up, down = Score("r2", "R²", higher_is_better=True), Score("rmse", "RMSE")
    assert up.is_better(0.5, 0.4)
    assert down.is_better(0.4, 0.5)
    assert not down.is_better(0.4, 0.4)  # the first of equals stays
    assert down.is_better(1e9, None)
    assert not down.is_better(math.nan, None)
    for key, form, message in (
        *[("rmse", form, "the form of rmse must be") for form in (".99999f", "s", "{}", "")],
        *[(key, ".1%", "can't have the key .* give a plain word") for key in ('"><i>', "loss")],
    ):
        refused(message, Score, key, "RMSE", form)


@pytest.mark.usefixtures("own")
def test_what_makes_no_task_is_one_line(refused):
    for name, options, message in (
        ("clasification", {}, "unknown task 'clasification': did you mean 'classification'?"),
        ("classification", {"weights": 1}, "unknown option of classification 'weights'"),
        ("math:prod", {}, "a task must be a data class derived from Task"),
        ("nowhere:Task", {}, "task 'nowhere:Task': cannot import nowhere"),
        ("own_task:Min", {}, "unknown name in own_task 'Min'"),
    ):
        refused(message, make_task, name, options)


def test_what_a_file_says_imports_nothing_and_what_the_user_names_makes_a_task(refused, own):
    refused(f"the task '{own}' is not known here", stored_task, {"task": own})
    told = {"task": "classification", "task_options": {"loss": "own_task:half"}}
    assert stored_task(told) == stored_task({}) == stored_task({"task": None}) == Classification()
    assert "own_task" not in sys.modules
    found = stored_task({"task": own, "task_options": {"strength": 3.0}}, own)
    assert found.options == {"strength": 3.0}
    assert make_task("classification") == Classification()
    made = make_task(own, {"strength": 2.0})
    assert (task_name(made), made.options) == (own, {"strength": 2.0})
    loss = {"loss": "own_task:half"}
    assert make_task("classification", loss).options == loss


def test_targets_and_saved_arrays_are_numbers_unless_a_task_says_otherwise(refused, own):
    task, ones = make_task(own), np.ones((2, 3, 1), np.float32)
    found = task.targets(np.array([[1, 2], [3, 4]]), Classes(()))
    assert (found.dtype, found.tolist()) == (np.float32, [[1.0, 2.0], [3.0, 4.0]])
    assert task.predictions(torch.tensor([1.5])).tolist() == [1.5]
    for y, message in (
        (["a"], "labels of this task are numbers"),
        *[([1.0, value], "not finite numbers") for value in (np.nan, 1e300)],
    ):
        refused(message, task.targets, np.array(y), Classes(()))
    task.check_saved(ones, np.ones(3))
    for outputs, targets in (
        *[(ones, np.ones(4)), (ones, np.array(["a", "b", "c"]))],
        *[(wrong, np.ones(3)) for wrong in (ones * np.nan, ones.astype(int))],
    ):
        with pytest.raises(ValueError, match="predictions"):
            task.check_saved(outputs, targets)


OUTPUTS = torch.tensor([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0], [0.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 0, 1, 1])
PROBABILITIES = OUTPUTS.double().softmax(-1).numpy()


def weighted(weights):
    weights = np.array(weights)[LABELS]
    return float(log_loss(LABELS, PROBABILITIES, sample_weight=weights, labels=[0, 1, 2]))


UNWEIGHTED = pytest.approx(weighted([1, 1, 1]))


def focal(outputs, labels):
    right = outputs.softmax(-1).gather(1, labels[:, None])
    return (-((1 - right) ** 2) * right.log()).mean()


def test_weights_and_smoothing_are_for_training_only_and_a_loss_of_ones_own_takes_its_place():
    mixed = 0.7 * np.eye(3)[LABELS] + 0.3 / 3
    smoothed = -(mixed * np.log(PROBABILITIES)).sum(-1).mean()
    for options, expected in (
        ({}, UNWEIGHTED),
        ({"class_weights": (1, 5, 2)}, pytest.approx(weighted([1, 5, 2]))),
        ({"label_smoothing": 0.3}, pytest.approx(smoothed)),
    ):
        task = Classification(**options)
        assert float(task.batch_loss(OUTPUTS, LABELS)) == expected
        assert float(task.batch_loss(OUTPUTS, LABELS, training=False)) == UNWEIGHTED
    task = Classification(loss=focal)
    right = PROBABILITIES[np.arange(4), LABELS]
    expected = (-((1 - right) ** 2) * np.log(right)).mean()
    assert float(task.batch_loss(OUTPUTS, LABELS)) == pytest.approx(expected)
    assert task.guess(LABELS, 3) == math.inf  # nobody knows what it would be
    assert task.options["loss"].endswith(":focal")


def test_options_and_outputs_that_do_not_fit_are_refused():
    for options, shift, message in (
        *[({"class_weights": w}, 0, "must be numbers from 0 up") for w in ((1, -1), (0, 0))],
        ({"class_weights": (1, 2), "loss": focal}, 0, "let it weigh the classes"),
        ({"loss": "focal"}, 0, "loss must be a function, not 'focal'"),
        ({"class_weights": (1, 2)}, 0, "2 class weights, and 3 classes: give one for each"),
        ({}, 6, r"the shape \(4, 3\), for 4 labels up to 7"),
    ):
        with pytest.raises(FreeTicketsError, match=message):
            Classification(**options).batch_loss(OUTPUTS, LABELS + shift)


def test_answers_are_in_the_words_of_labels_and_the_running_score_is_accuracy():
    classes = Classes(("1", "2"), (1, 2))
    # The third output has no class, whatever it says.
    answers = Classification().answers(np.log([[0.1, 0.3, 0.6], [0.4, 0.3, 0.3]]), classes)
    assert answers.tolist() == [2, 1]
    columns = Classification().columns(np.log([[0.1, 0.3, 0.6]]), classes)
    assert columns["class"].tolist() == ["2"]
    assert columns["probability"].tolist() == pytest.approx([0.3])
    right = Classification().sample_scores(OUTPUTS, LABELS)
    assert right.tolist() == [True, False, True, False]
    assert Classification().logged(float(right.double().mean())) == 0.5
    assert Classification().guess(LABELS, 4) == pytest.approx(math.log(4))
    found = Classification().measure(Classification().predictions(OUTPUTS)[None], LABELS.numpy())
    assert list(found) == ["accuracy", "nll", "ece"]
    assert (found["accuracy"], found["nll"]) == (0.5, UNWEIGHTED)


def test_weights_help_their_class_and_members_are_combined_as_asked(features, refused, tmp_path):
    x, y = features
    settings = {"epochs": 2, "batch_size": 16, "lr": 0.01, "quiet": True}
    tasks = Classification(), Classification(class_weights=(1, 1, 50)), Classification(loss=focal)
    fitted = [ft.Dense().fit("mlp-8", (x, y), task=task, **settings) for task in tasks]
    plain, weighted, _ = (int((ensemble.predict(x) == 2).sum()) for ensemble in fitted)
    assert weighted > plain
    assert all(isinstance(ensemble.task, Classification) for ensemble in fitted)
    x, y = features
    method = ft.DenseEnsemble(tickets=2)
    fitted = method.fit("mlp-8", (x, y), epochs=1, combine="logits", quiet=True, output=tmp_path)
    mean = fitted.member_log_proba(x).mean(0)
    expected = np.exp(mean) / np.exp(mean).sum(-1, keepdims=True)
    np.testing.assert_allclose(ft.load(tmp_path).predict_proba(x), expected)
    words = "unknown rule to combine members 'median'"
    refused(words, method.fit, "mlp-8", (x, y), epochs=1, combine="median", quiet=True)


def as_labels(y):
    return labels_of(as_array(y, "y"))


class Column:
    """A column of a data frame, as far as anyone can tell."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return np.array(self._values, dtype=object)


def test_labels_become_outputs_and_keep_their_names():
    for labels, names, outputs in (
        ([1, 2, 3, 2], ("1", "2", "3"), [0, 1, 2, 1]),
        ([10, 30, 10, 20], ("10", "20", "30"), [0, 2, 0, 1]),
        ([1.0, 2.0, 2.0], ("1", "2"), [0, 1, 1]),
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        (torch.tensor([True, False]), ("False", "True"), [1, 0]),
        (Column(["b", "a"]), ("a", "b"), [1, 0]),
        (Column([2, 1]), ("1", "2"), [1, 0]),
        (Column([["b"], ["a"]]), ("a", "b"), [1, 0]),
        ([0, 2, 1], ("0", "1", "2"), [0, 2, 1]),
        (np.array([0, 3], np.uint8), ("0", "1", "2", "3"), [0, 3]),  # as PyTorch numbers classes
    ):
        read = as_labels(labels)
        classes = Classes.of(read)
        assert classes.names == names
        assert classes.encode(read).tolist() == outputs
        if classes.values:
            assert [classes.values[output] for output in outputs] == read.tolist()


NAMED, NUMBERED = Classes(("cat", "dog"), ("cat", "dog")), Classes(("cat", "dog"))
NONE = "labels are integers, booleans or strings"


def test_what_is_no_label_and_classes_that_can_not_be_meant_are_refused(refused):
    for read, labels, message in (
        (as_labels, [0.5, 1.0], "the value 0.5, which is not a class"),
        (as_labels, [1.0, np.nan], "the value nan"),
        (as_labels, [1.0, np.inf], "the value inf"),
        (as_labels, [[0, 1], [1, 0]], rf"int64 of shape \(2, 2\): {NONE}"),
        *((as_labels, labels, NONE) for labels in (Column(["a", None]), Column(["a", 1]), [b"a"])),
        (Classes.of, np.array([-1, 1]), r"label -1: labels count from 0; .* give strings"),
        (Classes.of, np.array(["a", "a"]), "all labels are 'a': give samples of two"),
        (NAMED.encode, np.array(["dog", "cow"]), "label 'cow', which is not a class of the train"),
        (NUMBERED.encode, np.array([True, False]), "from 0"),
        (NUMBERED.encode, np.array([-1, 0]), "from 0"),
    ):
        refused(message, read, labels)
    assert NUMBERED.encode(as_labels([1, 0])).tolist() == [1, 0]
    assert NUMBERED.encode(as_labels(["dog", "cat"])).tolist() == [1, 0]
