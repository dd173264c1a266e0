"""Files of predictions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import freetickets as ft
from freetickets import seal
from freetickets.calibration import Temperature
from freetickets.errors import DamagedFileError, NewerFileError
from freetickets.predictions import Predictions, read_info

LOGS = np.log(np.full((2, 6, 4), 0.25, dtype=np.float32))
LABELS = np.zeros(6, dtype=np.int64)
INFO = {"dataset": "toy", "combine": "probabilities"}


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=(3, 25))
    info = {"dataset": "toy", "split": "test", "method": "edst", "combine": "probabilities"}
    return Predictions(np.log(probs).astype(np.float32), rng.integers(0, 4, 25), info)


def test_saved_predictions_come_back_exactly(refused, predictions, tmp_path):
    predictions.save(tmp_path / "new" / "p.npz")
    loaded = Predictions.load(tmp_path / "new" / "p.npz")
    assert np.array_equal(loaded.outputs, predictions.outputs)
    assert np.array_equal(loaded.labels, predictions.labels)
    assert loaded.outputs.dtype == np.float32
    assert loaded.info == predictions.info
    assert loaded.scores() == predictions.scores()
    Predictions(LOGS, LABELS, {**INFO, "parts": ["1", "2"]}).save(tmp_path / "toy.npz")
    one, two = Predictions.load(tmp_path / "toy.npz").parts
    assert np.array_equal(np.concatenate([one.outputs, two.outputs], axis=1), LOGS)
    assert (one.info, two.labels.tolist()) == ({**INFO, "part": "1"}, [0, 0, 0])
    refused("run evaluate first", Predictions.load, tmp_path / "none.npz")


def test_scores_are_those_of_the_metrics_by_the_rule_to_combine(predictions):
    scores = predictions.scores()
    logs, labels = predictions.outputs, predictions.labels
    assert list(scores) == ["dataset", "samples", "members", "member_mean", "ensemble"]
    assert (scores["dataset"], scores["samples"]) == ("toy", 25)
    by_logits = replace(predictions, info={**predictions.info, "combine": "logits"}).scores()
    assert by_logits["members"] == scores["members"]
    mean = ft.metrics.ensemble_log_probs(logs, "logits")[None]
    for name in ("accuracy", "nll", "ece"):
        score = getattr(ft.metrics, name)
        members = [score(member[None], labels) for member in logs]
        assert [row[name] for row in scores["members"]] == members
        assert scores["member_mean"][name] == pytest.approx(np.mean(members))
        assert scores["ensemble"][name] == pytest.approx(score(logs, labels), rel=1e-9)
        assert by_logits["ensemble"][name] == pytest.approx(score(mean, labels))


@pytest.mark.parametrize(
    "temperature", [Temperature((2.0,)), Temperature((0.5, 2.0, 3.0), "members")], ids=str
)
def test_scores_are_those_at_the_temperature_that_was_saved(predictions, temperature, tmp_path):
    scaled = predictions.adjusted(range(3), temperature)
    scaled.save(tmp_path / "p.npz")
    scores = Predictions.load(tmp_path / "p.npz").scores()
    assert scores["temperature"] == temperature.as_dict()
    expected = ft.metrics.nll(temperature.apply(predictions.outputs), predictions.labels)
    assert scores["ensemble"]["nll"] == pytest.approx(expected)
    assert scores["ensemble"]["nll"] != predictions.scores()["ensemble"]["nll"]
    members_are_the_same = scores["members"] == predictions.scores()["members"]
    assert members_are_the_same == (temperature.scope == "ensemble")
    assert scaled.adjusted(range(3), None).scores() == predictions.scores()
    part, every = predictions.adjusted([2, 0], None).scores(), predictions.scores()
    assert part["members"] == [every["members"][2], every["members"][0]]
    expected = ft.metrics.nll(predictions.outputs[[2, 0]], predictions.labels)
    assert part["ensemble"]["nll"] == pytest.approx(expected)


def test_a_file_that_does_not_fit_together_or_of_a_later_format_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "toy.npz"
    changes: tuple[dict[str, Any], ...] = (
        *({"parts": ["1", "2", "3", "4"]}, {"parts": []}, {"combine": 3}, {"combine": None}),
        *({"samples": [3]}, {"kind": "attack", "parts": ["1"]}),
        {"kind": "shift", "parts": ["much"]},
    )
    for logs, labels, more in (
        *((LOGS[0], LABELS, {}), (LOGS, LABELS[1:], {}), (LOGS, LABELS + 5, {})),
        *((LOGS, LABELS, more) for more in changes),
    ):
        Predictions(logs, labels, {**INFO, **more}).save(path)
        with pytest.raises(DamagedFileError, match=r"toy.npz is damaged .*: remove it"):
            Predictions.load(path)
    with monkeypatch.context() as patch:
        patch.setattr(seal, "FORMAT", 2)
        Predictions(LOGS, LABELS, INFO).save(path)
    for load in (Predictions.load, read_info):
        with pytest.raises(NewerFileError, match=r"toy\.npz is of format 2, .* wrote it"):
            load(path)
