"""Files of earlier versions are read by this one, and mean the same; `make.py` made them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import freetickets as ft
from freetickets.evaluation.trajectory import read_trajectory
from freetickets.experiments.results import Results, read_answers, value_of
from freetickets.report.run import read_run

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "expected.json").exists())


@pytest.fixture(params=VERSIONS)
def golden(request, tmp_path):
    """A copy of all that a version has written."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / request.param))


def samples(golden, split):
    with np.load(golden / "data.npz") as data:
        return data[f"x_{split}"][:, None], data[f"y_{split}"]


def same(found, stored):
    """Equal, but for what another machine's sums may make of the last digits."""
    if isinstance(stored, dict):
        assert stored.keys() <= found.keys()
        for key in stored:
            same(found[key], stored[key])
    elif isinstance(stored, list):
        assert len(found) == len(stored)
        for each, old in zip(found, stored, strict=True):
            same(each, old)
    else:
        assert found == (pytest.approx(stored, abs=1e-5) if isinstance(stored, float) else stored)


@pytest.mark.parametrize("name", ["run", "ensemble", "mimo"])
def test_old_tickets_predict_what_they_predicted(golden, name):
    expected = json.loads((golden / "expected.json").read_text())
    x, _ = samples(golden, "test")
    ensemble = ft.load(golden / name)
    np.testing.assert_allclose(ensemble.member_log_proba(x), expected["members"][name], atol=1e-4)
    if name == "ensemble":
        np.testing.assert_allclose(ensemble.predict_proba(x), expected["joint"], atol=1e-4)


def test_the_scores_of_old_predictions_are_what_they_were(cli, golden):
    before = json.loads((golden / "run" / "metrics.json").read_text())
    answer = cli("evaluate", golden / "run", "--saved", "--json")
    assert (answer.code, answer.err) == (0, "")
    del before["sha256"]
    same(json.loads(answer.out), before)


def test_an_old_run_is_reported(cli, golden, tmp_path):
    run = read_run(golden / "run")
    assert (run.config.method, len(run.results.members), len(run.log)) == ("edst", 2, 8)
    assert set(run.results.shift) == {"data-c"}
    assert set(run.results.attacks) == {"fgsm"}
    assert len(read_trajectory(golden / "run")) > 2
    answer = cli("report", golden / "run", "-o", tmp_path / "report.html")
    assert (answer.code, answer.err) == (0, "")


def test_an_old_run_that_was_stopped_goes_on(golden):
    from .make import train_on_arrays

    ticket = golden / "stopped" / "tickets" / "01.safetensors"
    collected = ticket.read_bytes()
    ensemble = train_on_arrays(*samples(golden, "train"), golden / "stopped")
    assert len(ensemble) == 2
    assert ticket.read_bytes() == collected


def test_an_old_record_is_read(golden):
    results = Results.load(golden / "record")
    ((key, record),) = results.records.items()
    assert key == ("cifar10-wrn-28-10-dense", 0)
    for column in ("accuracy", "nll", "c_nll", "train_flops", "seconds"):
        assert value_of(record, column) is not None
    if record.get("answers"):
        assert read_answers(golden / "record", record) is not None
