"""Evidence: differences and ratios with their noise, and what they decide."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax

from freetickets import metrics
from freetickets.evaluation import Predictions
from freetickets.experiments import Results, load
from freetickets.experiments.evidence import MARGINS, compare, correlates, decide, marked, tally
from freetickets.experiments.results import run_folder, save
from freetickets.metrics.score import column_of
from freetickets.storage import write_json

from .invented import invent

DENSE, EDST = load("cifar10").rows[0], load("cifar10").rows[3]


def compared(column, mine, theirs):
    """EDST against dense, of which each has these numbers of its first seeds."""
    records = {
        (row.cells[0].name, seed): invent(row.cells[0], seed, **{column: value})
        for row, values in ((EDST, mine), (DENSE, theirs))
        for seed, value in enumerate(values)
    }
    return compare(Results(records), EDST, DENSE, column)


def test_the_difference_and_its_error_are_those_over_shared_seeds():
    mine, theirs = [0.95, 0.96, 0.94, 0.1], [0.93, 0.92, 0.93]
    finding = compared("accuracy", mine, theirs)
    differences = np.subtract(mine[:3], theirs)
    assert finding.value == pytest.approx(differences.mean())
    assert finding.error == pytest.approx(differences.std(ddof=1) / math.sqrt(3))
    assert finding.text == (
        "EDST Ensemble (M=3) (S=0.8) against Single Dense Model: Acc +2.33 ± 0.88 points (3 seeds)"
    )
    assert finding.outcome == "supported"


@pytest.mark.parametrize("column", ["nll", "c_ece"])
def test_a_lower_loss_is_below_zero_and_supports(column):
    finding = compared(column, [0.2, 0.201], [0.5, 0.501])
    assert finding.value == pytest.approx(-0.3)
    assert finding.outcome == "supported"
    assert f"{column_of(column).title} -0.3000 ± 0.0000 (2 seeds)" in finding.text
    assert compared(column, [0.5, 0.501], [0.2, 0.201]).outcome == "contradicted"


def test_costs_are_compared_by_their_ratio_and_those_that_are_counted_have_no_error():
    mine, theirs = [30.0, 45.0, 80.0], [20.0, 30.0, 50.0]  # a slow machine is slow for both
    ratios = np.divide(mine, theirs)
    error = pytest.approx(ratios.std(ddof=1) / math.sqrt(3))
    for column, expected, end in (
        ("seconds", error, "seconds 1.53 ± 0.03x (3 seeds)"),
        ("train_flops", None, "training FLOPs 1.53x (counted)"),
    ):
        finding = compared(column, mine, theirs)
        assert (finding.value, finding.error) == (pytest.approx(ratios.mean()), expected)
        assert finding.text.endswith(end)
        assert finding.outcome == "contradicted"
        assert compared(column, theirs, mine).outcome == "supported"


def test_a_cost_of_nothing_has_no_ratio():
    assert compared("train_flops", [0.5], [0.0]).outcome == "not measured"


def test_the_tally_counts_every_outcome_and_names_none_that_is_not_there():
    outcomes = ["undecided", "contradicted", "undecided", "not measured", "supported"]
    assert tally(outcomes) == "1 supported, 2 undecided, 1 contradicted, 1 not measured"
    assert tally(["undecided"]) == "1 undecided"
    assert len({marked(outcome)[0] for outcome in outcomes}) == 4


@pytest.mark.parametrize(
    ("difference", "claimed", "outcome"),
    [
        (0.021, "more", "supported"),
        (0.019, "more", "undecided"),
        (-0.021, "more", "contradicted"),
        (0.016, "not less", "supported"),
        (0.014, "not less", "undecided"),
        (-0.026, "not less", "contradicted"),
        (0.0, "alike", "undecided"),
        (0.026, "alike", "contradicted"),
        (-0.026, "alike", "contradicted"),
    ],
)
def test_two_standard_errors_decide(difference, claimed, outcome):
    assert decide(difference, 0.01, claimed, margin=0.005) == outcome
    assert decide(0.001, 0.001, "alike", MARGINS["accuracy"]) == "supported"


@pytest.fixture
def two_runs(tmp_path):
    """One seed of two methods with saved predictions of the same 400 samples."""
    rows = load("cifar10").rows[10], load("cifar10").rows[8]  # DST, static
    draw = np.random.default_rng(1)
    labels = draw.integers(5, size=400)
    saved = []
    for row, skill in zip(rows, (3.0, 1.5), strict=True):
        logs = log_softmax(draw.normal(size=(3, 400, 5)) + skill * np.eye(5)[labels], axis=-1)
        info = {"dataset": "cifar10", "combine": "probabilities"}
        predictions = Predictions(logs.astype(np.float32), labels, info)
        folder = run_folder(tmp_path, row.cells[0], 1)
        predictions.save(folder / "predictions" / "cifar10.npz")
        write_json(folder / "metrics.json", {})
        scores = predictions.scores()
        members = predictions.members()
        numbers = {
            **scores["ensemble"],
            "member_accuracy": scores["member_mean"]["accuracy"],
            "diversity__kl": metrics.kl(members),
            "diversity__disagreement": metrics.disagreement(members),
        }
        save(tmp_path, invent(row.cells[0], 1, **numbers))
        saved.append(predictions)
    return tmp_path, rows, saved


@pytest.mark.parametrize(
    ("column", "metric"),
    [
        ("accuracy", metrics.accuracy),
        ("nll", metrics.nll),
        ("diversity.kl", lambda logs, labels: metrics.kl(logs)),
        ("diversity.disagreement", lambda logs, labels: metrics.disagreement(logs)),
    ],
)
def test_one_seed_is_decided_over_test_samples_as_the_bootstrap_does(two_runs, column, metric):
    folder, (one, other), (mine, theirs) = two_runs
    finding = compare(Results.load(folder), one, other, column)
    draws = np.random.default_rng(0).integers(400, size=(300, 400))
    one, other = (
        [metric(saved.members()[:, draw], saved.labels[draw]) for draw in draws]
        for saved in (mine, theirs)
    )
    resampled = np.subtract(one, other)
    assert finding.error == pytest.approx(np.std(resampled), rel=0.15)
    assert abs(finding.value) == pytest.approx(abs(np.mean(resampled)), rel=0.1)
    assert finding.outcome in ("supported", "contradicted")
    assert "error over test samples" in finding.text


def test_calibration_errors_and_predictions_of_other_tickets_decide_nothing(two_runs):
    folder, (one, other), (_, theirs) = two_runs
    assert compare(Results.load(folder), one, other, "ece").outcome == "undecided"
    theirs.save(run_folder(folder, one.cells[0], 1) / "predictions" / "cifar10.npz")
    finding = compare(Results.load(folder), one, other, "accuracy")
    assert (finding.error, finding.outcome) == (None, "undecided")


def test_a_weak_correlation_of_six_runs_is_undecided():
    row = load("correlation").rows[0]
    members = (0.9, 0.91, 0.89, 0.9, 0.92, 0.88)
    ensembles = (0.95, 0.94, 0.945, 0.96, 0.95, 0.94)
    records = [
        invent(cell, 1, member_accuracy=member, accuracy=ensemble)
        for cell, member, ensemble in zip(row.cells, members, ensembles, strict=True)
    ]
    results = Results({(each["cell"], 1): each for each in records})
    finding = correlates(results, replace(row, label="EDST"))
    assert finding.outcome == "undecided"
    assert finding.value == pytest.approx(np.corrcoef(members, ensembles)[0, 1])
