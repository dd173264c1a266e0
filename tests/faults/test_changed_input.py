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


@pytest.mark.parametrize(
    "more",
    [(), pytest.param(("--jobs", 2), marks=pytest.mark.slow)],
    ids=["serial", "side-by-side"],
)
@pytest.mark.parametrize("name", ["x_train", "y_train"])
def test_data_that_changes_between_a_kill_and_the_next_start_is_refused(
    child, data, digests, name, more
):
    command = train(data, "dense-ensemble", "--tickets", 2, "--checkpoint-seconds", 0)
    fault = partial(fault_child.at_step, 4, fault_child.die)
    assert child(*command, faults=(fault,)).code == -9
    kept = digests(data.with_name("run") / "checkpoint")
    change(data, name, 1)
    answer = child(*command, *more)
    assert "was started with other training data: restore what was there then" in answer.line
    assert digests(data.with_name("run") / "checkpoint") == kept


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39], ids=str)
@pytest.mark.parametrize("name", ["x_train", "x_test"])
def test_features_that_are_no_numbers_are_refused_before_anything_is_trained(
    child, data, name, value
):
    change(data, name, value)
    answer = child(*train(data, "dense"))
    assert f"{name} has 1 value that is not a finite number: remove or replace it" in answer.line
    assert not data.with_name("run").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("reader", ["report", "compare", "evaluate"])
def test_predictions_that_are_no_numbers_are_refused(child, peaceful, tmp_path, reader, value):
    run = tmp_path / "run"
    shutil.copytree(peaceful(), run)
    path = run / "predictions" / "bars.npz"
    found = Predictions.load(path)
    found.outputs[0, 3, 1] = value
    found.save(path)
    more = {
        "report": ["-o", tmp_path / "report.html"],
        "compare": [peaceful()],
        "evaluate": ["--saved"],
    }
    answer = child(reader, run, *more[reader])
    assert "log-probabilities that are not numbers" in answer.line
    assert not (tmp_path / "report.html").exists()


@pytest.fixture
def runs(child, command, tmp_path, peaceful):
    """A run that was killed after its first ticket, a finished one of another seed, a command."""
    train = [*command(), "-o", str(tmp_path / "run")]
    fault = partial(fault_child.killed_in_write, "tickets/02.safetensors", "opened")
    assert child(*train, "--seed", 5, faults=(fault,)).code == -9
    return tmp_path / "run", peaceful(), [*train, "--seed", "5"]


def test_a_ticket_of_another_run_is_refused_when_a_run_goes_on(child, runs, digests):
    run, other, command = runs
    shutil.copy(other / "tickets" / "01.safetensors", run / "tickets" / "01.safetensors")
    kept = digests(run / "checkpoint")
    answer = child(*command)
    assert "01.safetensors" in answer.line
    assert "another run" in answer.line
    assert digests(run / "checkpoint") == kept


@pytest.mark.parametrize("name", ["checkpoint", "config.yaml"])
def test_a_checkpoint_or_settings_of_another_run_are_refused_when_a_run_goes_on(child, runs, name):
    run, other, command = runs
    if name == "checkpoint":
        shutil.rmtree(run / name)
        shutil.copytree(other / name, run / name)
    else:
        shutil.copy(other / name, run / name)
    words = {"checkpoint": "another plan", "config.yaml": "seed: 0 -> 5"}[name]
    assert words in child(*command).line


def test_predictions_of_another_run_are_refused(child, runs, tmp_path):
    run, other, command = runs
    assert child(*command).code == 0
    shutil.copy(other / "predictions" / "bars.npz", run / "predictions" / "bars.npz")
    answer = child("report", run, "-o", tmp_path / "report.html")
    assert "bars.npz" in answer.line
    assert open_values((run / "metrics.json").read_text())["dataset"]
