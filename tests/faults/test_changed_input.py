"""Inputs that are not what they were, or no numbers: refused in one line."""

import shutil
from functools import partial

import fault_child
import numpy as np
import pytest

from freetickets.predictions import Predictions
from freetickets.seal import open_values

TRAIN = "--model mlp-8 --epochs 2 --batch-size 16 --backend masked --quiet"


@pytest.fixture
def data(tmp_path):
    """Features of three classes, in a file that a test may change."""
    rng = np.random.default_rng(0)
    names = ("x_train", "y_train", "x_test", "y_test")
    x, y = rng.normal(size=(72, 6)), np.arange(72) % 3
    arrays = (x[:48], y[:48], x[48:], y[48:])
    np.savez(tmp_path / "data.npz", **dict(zip(names, arrays, strict=True)))
    return tmp_path / "data.npz"


def change(data, name, value):
    content = dict(np.load(data))
    content[name].reshape(-1)[5] = value
    np.savez(data, **content)


def train(data, method, *more):
    output = data.with_name("run")
    return ["train", method, "--dataset", data, *TRAIN.split(), "-o", output, *more]


@pytest.mark.parametrize("more", [(), pytest.param(("--jobs", 2), marks=pytest.mark.slow)], ids=len)
def test_data_that_changes_between_a_kill_and_the_next_start_is_refused(child, data, digests, more):
    command = train(data, "dense-ensemble", "--tickets", 2, "--checkpoint-seconds", 0)
    fault = partial(fault_child.at_step, 4, fault_child.die)
    assert child(*command, faults=(fault,)).code == -9
    kept = digests(data.with_name("run") / "checkpoint")
    change(data, "x_train", 1)
    answer = child(*command, *more)
    assert "was started with other training data: restore what was there then" in answer.line
    assert digests(data.with_name("run") / "checkpoint") == kept


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e39], ids=str)
@pytest.mark.parametrize("name", ["x_train", "x_test"])
def test_features_that_are_no_numbers_are_refused_before_a_training(child, data, name, value):
    change(data, name, value)
    answer = child(*train(data, "dense"))
    assert f"{name} has 1 value that is not a finite number: remove or replace it" in answer.line
    assert not data.with_name("run").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_predictions_that_are_no_numbers_are_refused(child, finished, tmp_path, value):
    run, page = tmp_path / "run", tmp_path / "report.html"
    shutil.copytree(finished(), run)
    found = Predictions.load(run / "predictions" / "bars.npz")
    found.outputs[0, 3, 1] = value
    found.save(run / "predictions" / "bars.npz")
    others = ("compare", run, finished()), ("evaluate", run, "--saved")
    for reader in (("report", run, "-o", page), *others):
        assert "log-probabilities that are not numbers" in child(*reader).line
    assert not page.exists()


@pytest.fixture
def runs(child, command, tmp_path, finished):
    """A run that was killed after its first ticket, a finished one of another seed, a command."""
    train = [*command(), "-o", str(tmp_path / "run")]
    fault = partial(fault_child.killed_in_write, "tickets/02.safetensors", "opened")
    assert child(*train, "--seed", 5, faults=(fault,)).code == -9
    return tmp_path / "run", finished(), [*train, "--seed", "5"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tickets/01.safetensors", "01.safetensors belongs to another run"),
        ("checkpoint", "another plan"),
        ("config.yaml", "seed: 0 -> 5"),
    ],
)
def test_files_of_another_run_are_refused_when_a_run_goes_on(child, runs, digests, name, words):
    run, other, command = runs
    if name == "checkpoint":
        shutil.rmtree(run / name)
        shutil.copytree(other / name, run / name)
    else:
        shutil.copy(other / name, run / name)
    kept = digests(run / "checkpoint")
    assert words in child(*command).line
    assert digests(run / "checkpoint") == kept


def test_predictions_of_another_run_are_refused(child, runs, tmp_path):
    run, other, command = runs
    assert child(*command).code == 0
    shutil.copy(other / "predictions" / "bars.npz", run / "predictions" / "bars.npz")
    answer = child("report", run, "-o", tmp_path / "report.html")
    assert "bars.npz" in answer.line
    assert open_values((run / "metrics.json").read_text())["dataset"]
