from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.errors import FreeTicketsError
from freetickets.evaluation import (
    Predictions,
    describe_run,
    evaluate_run,
    predict_dataset,
    summarise,
)

SMALL = {"batch_size": 16, "epochs": 3, "quiet": True}


@pytest.fixture
def predictions() -> Predictions:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(4), size=(3, 25))
    info = {"dataset": "toy", "split": "test", "method": "edst", "combine": "probabilities"}
    return Predictions(np.log(probs).astype(np.float32), rng.integers(0, 4, 25), info)


def test_saved_predictions_come_back_exactly(predictions: Predictions, tmp_path: Path) -> None:
    predictions.save(tmp_path / "new" / "p.npz")
    loaded = Predictions.load(tmp_path / "new" / "p.npz")
    assert np.array_equal(loaded.outputs, predictions.outputs)
    assert loaded.outputs.dtype == np.float32
    assert np.array_equal(loaded.labels, predictions.labels)
    assert loaded.info == predictions.info
    assert loaded.scores() == predictions.scores()


def test_scores_are_those_of_the_metrics(predictions: Predictions) -> None:
    scores = predictions.scores()
    logs, labels = predictions.outputs, predictions.labels
    assert list(scores) == ["dataset", "samples", "members", "member_mean", "ensemble"]
    assert (scores["dataset"], scores["samples"]) == ("toy", 25)
    for name in ("accuracy", "nll", "ece"):
        score = getattr(ft.metrics, name)
        members = [score(member[None], labels) for member in logs]
        assert [row[name] for row in scores["members"]] == members
        assert scores["member_mean"][name] == pytest.approx(np.mean(members))
        assert scores["ensemble"][name] == pytest.approx(score(logs, labels), rel=1e-9)


def test_the_ensembles_scores_follow_the_rule_to_combine(predictions: Predictions) -> None:
    by_logits = Predictions(
        predictions.outputs, predictions.labels, {**predictions.info, "combine": "logits"}
    )
    mean = ft.metrics.ensemble_log_probs(predictions.outputs, "logits")[None]
    expected = ft.metrics.nll(mean, predictions.labels)
    assert by_logits.scores()["ensemble"]["nll"] == pytest.approx(expected)
    assert by_logits.scores()["ensemble"]["nll"] != predictions.scores()["ensemble"]["nll"]
    assert by_logits.scores()["members"] == predictions.scores()["members"]


@pytest.mark.parametrize(
    "temperature", [Temperature((2.0,)), Temperature((0.5, 2.0, 3.0), "members")], ids=str
)
def test_scores_are_those_at_the_temperature_that_was_saved(
    predictions: Predictions, temperature: Temperature, tmp_path: Path
) -> None:
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


def test_some_of_the_members_are_scored_as_if_there_were_no_others(
    predictions: Predictions,
) -> None:
    part = predictions.adjusted([2, 0], None).scores()
    every = predictions.scores()
    assert part["members"] == [every["members"][2], every["members"][0]]
    expected = ft.metrics.nll(predictions.outputs[[2, 0]], predictions.labels)
    assert part["ensemble"]["nll"] == pytest.approx(expected)


def test_damaged_predictions_are_named_and_never_read_as_others(
    predictions: Predictions, tmp_path: Path
) -> None:
    predictions.save(tmp_path / "p.npz")
    data = (tmp_path / "p.npz").read_bytes()
    draw = random.Random(0)
    for place in draw.sample(range(len(data)), 150):
        flipped = bytearray(data)
        flipped[place] ^= 1 << draw.randrange(8)
        for content in (bytes(flipped), data[:place]):
            (tmp_path / "bad.npz").write_bytes(content)
            try:
                found: Any = Predictions.load(tmp_path / "bad.npz")
            except FreeTicketsError:
                continue
            assert np.array_equal(found.outputs, predictions.outputs)  # a date in the zip, say
            assert np.array_equal(found.labels, predictions.labels)
            assert found.info == predictions.info


def test_predictions_that_are_not_there_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(FreeTicketsError, match="run evaluate first"):
        Predictions.load(tmp_path / "none.npz")


def test_a_run_is_evaluated_on_its_own_test_set(images_npz: Path, tmp_path: Path) -> None:
    ensemble = ft.DST(tickets=2, interval=3).fit("mlp-8", str(images_npz), **SMALL)
    scores = evaluate_run(tmp_path, ensemble)
    saved = Predictions.load(tmp_path / "predictions" / "bars.npz")
    test = np.load(images_npz)
    assert np.array_equal(saved.labels, test["y_test"])
    expected = ensemble.member_log_proba(test["x_test"][:, None])
    np.testing.assert_allclose(saved.outputs, expected, atol=1e-5)
    assert scores.items() >= saved.scores().items()
    assert summarise(tmp_path) == scores
    assert saved.info.items() >= {"split": "test", "method": "dst", "model": "mlp-8"}.items()
    assert saved.info["classes"] == ["top", "middle", "bottom"]


def test_saved_predictions_of_a_calibrated_ensemble_are_those_before_its_temperature(
    images_npz: Path, tmp_path: Path
) -> None:
    ensemble = ft.Dense().fit("mlp-8", str(images_npz), **SMALL)
    warm = ensemble.with_temperature(Temperature((3.0,), "members"))
    raw, scaled = (predict_dataset(each, str(images_npz)) for each in (ensemble, warm))
    assert np.array_equal(raw.outputs, scaled.outputs)
    assert evaluate_run(tmp_path, warm).items() >= scaled.scores().items()
    test = np.load(images_npz)
    expected = ft.metrics.nll(warm.member_log_proba(test["x_test"][:, None]), test["y_test"])
    assert scaled.scores()["ensemble"]["nll"] == pytest.approx(expected, rel=1e-5)
    assert scaled.scores()["ensemble"]["nll"] != raw.scores()["ensemble"]["nll"]


def test_a_data_set_of_other_classes_is_refused(images_npz: Path) -> None:
    ensemble = ft.Dense().fit("mlp-8", str(images_npz), **SMALL)
    with pytest.raises(FreeTicketsError, match=r"other classes .* \(10 and 3\)"):
        predict_dataset(ensemble, "fashion-mini")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"method": "edst", "options": {"tickets": 3, "sparsity": 0.8}}, "edst (M=3, S=0.8)"),
        ({"method": "dense", "options": {"tickets": 1}}, "dense"),
        ({"method": "dense"}, "dense"),
    ],
)
def test_a_run_is_described_in_a_few_words(config: dict[str, Any], text: str) -> None:
    assert describe_run(config) == text
