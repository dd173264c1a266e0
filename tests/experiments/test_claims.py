"""Claims: each is supported, undecided or contradicted by the numbers that say so."""

import math
from dataclasses import replace

import numpy as np
import pytest

from freetickets import metrics
from freetickets.experiments import CLAIMS, Results, load
from freetickets.experiments.claims import (
    MARGINS,
    compare,
    correlates,
    decide,
    judge,
    marked,
    tally,
)
from freetickets.experiments.results import run_folder, save
from freetickets.metrics.score import column_of
from freetickets.storage import write_json

from .invented import invent, invent_predictions, invent_results, of_cells, results_of

WIGGLE = (-0.0002, 0.0, 0.0002)  # of the first, second and third seed


def wiggle(cell, seed):
    """Noise of a cell and a seed: differences of two cells have some, too."""
    return WIGGLE[(seed * (1 + len(cell.name) % 2)) % 3]


def step(cell, *order):
    """How far in front a cell is, of methods from the best to the worst."""
    name = cell.method.name
    return 0.01 * (len(order) - order.index(name)) if name in order else 0.0


def still(cell):
    """Whether a cell does not explore."""
    return 0.01 * (cell.method.name == "static" or cell.options.get("escape_rate") == 0)


def option(cell, name, default=0.0):
    return cell.options.get(name, default)


def diversity(gap):
    return {"diversity__disagreement": 0.1 + gap, "diversity__kl": 0.2 + gap}


def scores(better, loss=1.0):
    return {"accuracy": 0.9 + better, "nll": 0.3 - loss * better}


# For each claim: a table that has it, and numbers with a gap g: 1 is as the paper says, -1 against.
WORLDS = {
    "ensembles-beat-dense": ("cifar10", lambda cell, g: scores(g * step(cell, "dst", "edst"))),
    "dst-matches-dense-ensemble": (
        "cifar10", lambda cell, g: scores((g - 1) * step(cell, "dst"), 5)),
    "dst-beats-static": ("cifar10", lambda cell, g: dict.fromkeys(
        ("accuracy", "member_accuracy"), 0.8 + g * step(cell, "dst"))),
    "diversity-order": (
        "diversity", lambda cell, g: diversity(g * step(cell, "dst", "static", "edst", "ltr"))),
    "exploration-raises-diversity": ("ablation", lambda cell, g: {
        **diversity(-g * still(cell)), "accuracy": 0.9 - g * still(cell)}),
    "edst-costs-less": ("cifar10", lambda cell, g: {
        "train_flops": 1 - g * 40 * step(cell, "edst"),
        "seconds": 100 - g * 3000 * step(cell, "edst")}),
    "ensembles-help-under-shift": ("cifar10", lambda cell, g: {
        "c_nll": 1 - 10 * g * step(cell, "dst", "edst"),
        "c_ece": 0.2 - g * step(cell, "dst", "edst")}),
    "ensembles-help-ood": ("ood-cifar10", lambda cell, g: {
        f"ood__{name}__auroc": 0.85 + g * 0.02 * (cell.method.name != "dense")
        for name in ("svhn", "cifar100", "gaussian-noise")}),
    "ensembles-help-under-attack": (
        "fgsm", lambda cell, g: {"attacks__fgsm__mean": 0.35 + g * 0.02}),
    "members-and-ensemble-correlate": ("correlation", lambda cell, g: {
        "accuracy": 0.9 + 0.1 * option(cell, "sparsity") ** 2,
        "member_accuracy": 0.9 + g * 0.1 * option(cell, "sparsity")}),
    "size-helps-dst": ("ensemble-size", lambda cell, g: {
        **{f"first__{k}__accuracy": 0.9 + g * 0.01 * k for k in range(1, 7)},
        "accuracy": 0.9 + g * 0.07}),
    "size-costs-edst-members": ("ensemble-size", lambda cell, g: {
        "member_accuracy": 0.8 - g * 0.01 * option(cell, "tickets", 1),
        "accuracy": 0.9 + g * step(cell, "edst")}),
    "sparse-test-is-cheap": ("snapshot-fge", lambda cell, g: {
        "test_flops": 5 - g * 200 * step(cell, "dst", "edst"),
        "accuracy": 0.9 + (g - 1) * step(cell, "dst", "edst")}),
    "escape-rate-raises-diversity": ("escape-rate", lambda cell, g: {
        **diversity(g * 0.1 * option(cell, "escape_rate", 0.8)),
        "accuracy": 0.9 - g * 0.1 * (option(cell, "escape_rate", 0.8) - 0.5) ** 2}),
    "growth-matters-little": ("growth", lambda cell, g: {
        "accuracy": 0.9 + (0.002 if g > 0 else 0.02) * (cell.options["grow"] == "random")}),
}  # fmt: skip


def verdicts(claim, gap, seeds=(0, 1, 2)):
    """What is said of a claim in a world of some gap, on each data set of the table."""
    name, world = WORLDS[claim]
    experiment = load(name)

    def numbers(cell, seed):
        return {
            key: value + (0 if key.endswith("flops") else wiggle(cell, seed))
            for key, value in world(cell, gap).items()
        }

    found = judge(experiment, invent_results([experiment], numbers, seeds))
    return [verdict for verdict in found if verdict.claim == claim]


def test_every_claim_is_checked_here():
    assert set(WORLDS) == set(CLAIMS)
    for claim, (name, _) in WORLDS.items():
        assert claim in load(name).claims


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_decided_by_what_is_measured_and_its_noise(claim):
    holds = verdicts(claim, 1)
    assert {verdict.outcome for verdict in holds} == {"supported"}
    assert all(verdict.findings for verdict in holds)
    assert {verdict.outcome for verdict in verdicts(claim, -1)} == {"contradicted"}
    noisy = verdicts(claim, 1, seeds=(0,))  # one seed and no predictions: nothing tells the noise
    assert {verdict.outcome for verdict in noisy} == {"undecided"} or claim == (
        "members-and-ensemble-correlate"  # where six sparsities tell it
    )
    experiment = load(WORLDS[claim][0])
    nothing = judge(experiment, Results())
    assert {verdict.outcome for verdict in nothing} == {"not measured"}
    datasets = {row.dataset for row in experiment.rows}
    assert len(nothing) == len(experiment.claims) * len(datasets)


def test_a_set_that_could_not_be_had_is_left_out():
    table = load("ood-cifar10")
    results = invent_results([table], lambda cell, seed: {}, (1, 2))
    for record in results.records.values():
        del record["metrics"]["ood"]["svhn"]
        for first in record["first"].values():
            del first["ood"]["svhn"]
    (verdict,) = judge(table, results)
    assert all("mean AUROC of 2 sets" in finding.text for finding in verdict.findings)
    assert all(finding.outcome != "not measured" for finding in verdict.findings)


DENSE, EDST = load("cifar10").rows[0], load("cifar10").rows[3]


def compared(column, mine, theirs):
    """EDST against dense, of which each has these numbers of its first seeds."""
    given = {(EDST.cells[0], seed): {column: value} for seed, value in enumerate(mine)}
    given |= {(DENSE.cells[0], seed): {column: value} for seed, value in enumerate(theirs)}
    return compare(results_of(given), EDST, DENSE, column)


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
        logits = draw.normal(size=(3, 400, 5)) + skill * np.eye(5)[labels]
        predictions = invent_predictions(logits, labels)
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
    results = of_cells(row.cells, member_accuracy=members, accuracy=ensembles)
    finding = correlates(results, replace(row, label="EDST"))
    assert finding.outcome == "undecided"
    assert finding.value == pytest.approx(np.corrcoef(members, ensembles)[0, 1])
