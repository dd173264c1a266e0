"""Claims: each is supported, undecided or contradicted by the numbers that say so."""

import math
from dataclasses import replace

import numpy as np
import pytest

from freetickets import metrics
from freetickets.evaluation import Predictions
from freetickets.experiments import CLAIMS, Results, experiment_names, load
from freetickets.experiments.claims import judge
from freetickets.experiments.evidence import MARGINS, compare, correlates, decide
from freetickets.experiments.results import run_folder, save

from .invented import invent, invent_results

WIGGLE = (-0.0002, 0.0, 0.0002)  # of the first, second and third seed


def wiggle(cell, seed):
    """Noise of a cell and a seed: differences of two cells have some, too."""
    return WIGGLE[(seed * (1 + len(cell.name) % 2)) % 3]


def rank(cell, *order):
    """How far in front a cell is, of methods from the best to the worst."""
    name = cell.method.name
    return len(order) - order.index(name) if name in order else 0


def sparsity_of(cell):
    return cell.options.get("sparsity", 0.0)


def without_exploration(cell):
    return cell.method.name == "static" or cell.options.get("escape_rate") == 0


def q_of(cell):
    return cell.options.get("escape_rate", 0.8)


# For each claim: a table that has it, and numbers with a gap g: 1 is as the paper says, -1 against.
WORLDS = {
    "ensembles-beat-dense": (
        "cifar10",
        lambda cell, g: {
            "accuracy": 0.9 + g * 0.01 * rank(cell, "dst", "edst"),
            "nll": 0.3 - g * 0.01 * rank(cell, "dst", "edst"),
        },
    ),
    "dst-matches-dense-ensemble": (
        "cifar10",
        lambda cell, g: {
            "accuracy": 0.9 + (g - 1) * 0.01 * rank(cell, "dst"),
            "nll": 0.3 - (g - 1) * 0.05 * rank(cell, "dst"),
        },
    ),
    "dst-beats-static": (
        "cifar10",
        lambda cell, g: {
            "accuracy": 0.9 + g * 0.01 * rank(cell, "dst"),
            "member_accuracy": 0.8 + g * 0.01 * rank(cell, "dst"),
        },
    ),
    "diversity-order": (
        "diversity",
        lambda cell, g: {
            "diversity__disagreement": 0.1 + g * 0.01 * rank(cell, "dst", "static", "edst", "ltr"),
            "diversity__kl": 0.2 + g * 0.01 * rank(cell, "dst", "static", "edst", "ltr"),
        },
    ),
    "exploration-raises-diversity": (
        "ablation",
        lambda cell, g: {
            "diversity__disagreement": 0.1 - g * 0.01 * without_exploration(cell),
            "diversity__kl": 0.2 - g * 0.01 * without_exploration(cell),
            "accuracy": 0.9 - g * 0.01 * without_exploration(cell),
        },
    ),
    "edst-costs-less": (
        "cifar10",
        lambda cell, g: {
            "train_flops": 1 - g * 0.4 * rank(cell, "edst"),
            "seconds": 100 - g * 30.0 * rank(cell, "edst"),
        },
    ),
    "ensembles-help-under-shift": (
        "cifar10",
        lambda cell, g: {
            "c_nll": 1 - g * 0.1 * rank(cell, "dst", "edst"),
            "c_ece": 0.2 - g * 0.01 * rank(cell, "dst", "edst"),
        },
    ),
    "ensembles-help-ood": (
        "ood-cifar10",
        lambda cell, g: {
            f"ood__{name}__auroc": 0.85 + g * 0.02 * (cell.method.name != "dense")
            for name in ("svhn", "cifar100", "gaussian-noise")
        },
    ),
    "ensembles-help-under-attack": (
        "fgsm",
        lambda cell, g: {"attacks__fgsm__mean": 0.35 + g * 0.02},
    ),
    "members-and-ensemble-correlate": (
        "correlation",
        lambda cell, g: {
            "accuracy": 0.9 + 0.1 * sparsity_of(cell) ** 2,
            "member_accuracy": 0.9 + g * 0.1 * sparsity_of(cell),
        },
    ),
    "size-helps-dst": (
        "ensemble-size",
        lambda cell, g: {
            **{f"first__{k}__accuracy": 0.9 + g * 0.01 * k for k in range(1, 7)},
            "accuracy": 0.9 + g * 0.07,
        },
    ),
    "size-costs-edst-members": (
        "ensemble-size",
        lambda cell, g: {
            "member_accuracy": 0.8 - g * 0.01 * cell.options.get("tickets", 1),
            "accuracy": 0.9 + g * 0.01 * rank(cell, "edst"),
        },
    ),
    "sparse-test-is-cheap": (
        "snapshot-fge",
        lambda cell, g: {
            "test_flops": 5 - g * 2.0 * rank(cell, "dst", "edst"),
            "accuracy": 0.9 + (g - 1) * 0.01 * rank(cell, "dst", "edst"),
        },
    ),
    "escape-rate-raises-diversity": (
        "escape-rate",
        lambda cell, g: {
            "diversity__disagreement": 0.1 + g * 0.1 * q_of(cell),
            "diversity__kl": 0.2 + g * 0.1 * q_of(cell),
            "accuracy": 0.9 - g * 0.1 * (q_of(cell) - 0.5) ** 2,
        },
    ),
    "growth-matters-little": (
        "growth",
        lambda cell, g: {
            "accuracy": 0.9 + (0.002 if g > 0 else 0.02) * (cell.options["grow"] == "random"),
        },
    ),
}


def verdicts(claim, gap, seeds=(0, 1, 2), noise=1.0):
    """What is said of a claim in a world of some gap, on each data set of the table."""
    name, world = WORLDS[claim]
    experiment = load(name)

    def numbers(cell, seed):
        found = world(cell, gap)
        return {
            key: value + (0 if key.endswith("flops") else noise * wiggle(cell, seed))
            for key, value in found.items()
        }

    found = judge(experiment, invent_results([experiment], numbers, seeds))
    return [verdict for verdict in found if verdict.claim == claim]


def test_every_claim_is_checked_here():
    assert set(WORLDS) == set(CLAIMS)
    for claim, (name, _) in WORLDS.items():
        assert claim in load(name).claims


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_holds_is_supported(claim):
    for verdict in verdicts(claim, 1):
        assert verdict.outcome == "supported", verdict.text
        assert verdict.findings


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_fails_is_contradicted(claim):
    for verdict in verdicts(claim, -1):
        assert verdict.outcome == "contradicted", verdict.text


@pytest.mark.parametrize("claim", CLAIMS)
def test_noise_leaves_a_claim_undecided(claim):
    found = verdicts(claim, 1, seeds=(0,))  # one seed and no predictions: nothing tells the noise
    assert {verdict.outcome for verdict in found} == {"undecided"} or claim == (
        "members-and-ensemble-correlate"  # where six sparsities tell it
    )


@pytest.mark.parametrize("claim", CLAIMS)
def test_without_results_nothing_is_measured(claim):
    found = judge(load(WORLDS[claim][0]), Results())
    assert {verdict.outcome for verdict in found} == {"not measured"}


def test_all_tables_are_judged_from_nothing():
    for name in experiment_names():
        experiment = load(name)
        datasets = {row.dataset for row in experiment.rows}
        assert len(judge(experiment, Results())) == len(experiment.claims) * len(datasets)


def test_the_difference_and_its_error_are_those_over_seeds():
    table = load("cifar10")
    dense, edst = table.rows[0], table.rows[3]
    mine, theirs = [0.95, 0.96, 0.94], [0.93, 0.92, 0.93]
    records = {}
    for row, values in ((edst, mine), (dense, theirs)):
        for seed, value in enumerate(values):
            records[row.cells[0].name, seed] = invent(row.cells[0], seed, accuracy=value)
    records[edst.cells[0].name, 7] = invent(edst.cells[0], 7, accuracy=0.1)  # dense has no seed 7
    finding = compare(Results(records), edst, dense, "accuracy")
    differences = np.subtract(mine, theirs)
    assert finding.difference == pytest.approx(differences.mean())
    assert finding.error == pytest.approx(differences.std(ddof=1) / math.sqrt(3))
    assert finding.text.endswith("Acc higher by +2.33 ± 0.88 points (3 seeds)")
    assert finding.outcome == "supported"


def test_less_is_better_for_losses_and_costs():
    table = load("cifar10")
    dense, edst = table.rows[0], table.rows[3]
    for column in ("nll", "c_ece", "train_flops", "seconds"):
        records = [
            invent(row.cells[0], seed, **{column: value + seed / 1000})
            for row, value in ((edst, 0.2), (dense, 0.5))
            for seed in (1, 2)
        ]
        results = Results({(each["cell"], each["seed"]): each for each in records})
        finding = compare(results, edst, dense, column)
        assert finding.difference == pytest.approx(0.3)
        assert finding.outcome == "supported"


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


def test_alike_needs_both_ends_within_the_margin():
    margin = MARGINS["accuracy"]
    assert decide(0.001, 0.001, "alike", margin) == "supported"


@pytest.fixture
def two_runs(tmp_path):
    """One seed of two methods with saved predictions of the same 400 samples."""
    table = load("cifar10")
    rows = table.rows[10], table.rows[8]  # DST, static
    draw = np.random.default_rng(1)
    labels = draw.integers(5, size=400)
    saved = []
    for row, skill in zip(rows, (3.0, 1.5), strict=True):
        logits = draw.normal(size=(3, 400, 5))
        logits[:, np.arange(400), labels] += skill
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        info = {"dataset": "cifar10", "combine": "probabilities"}
        predictions = Predictions(logs.astype(np.float32), labels, info)
        folder = run_folder(tmp_path, row.cells[0], 1)
        predictions.save(folder / "predictions" / "cifar10.npz")
        (folder / "metrics.json").write_text("{}")
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
    sides = (mine.members(), theirs.members())
    draws = np.random.default_rng(0).integers(400, size=(300, 400))
    resampled = [
        metric(sides[0][:, draw], mine.labels[draw]) - metric(sides[1][:, draw], mine.labels[draw])
        for draw in draws
    ]
    assert finding.error == pytest.approx(np.std(resampled), rel=0.15)
    assert abs(finding.difference) == pytest.approx(abs(np.mean(resampled)), rel=0.1)
    assert finding.outcome in ("supported", "contradicted")
    assert "error over test samples" in finding.text


def test_predictions_of_other_tickets_decide_nothing(two_runs):
    folder, (one, other), (_, theirs) = two_runs
    theirs.save(run_folder(folder, one.cells[0], 1) / "predictions" / "cifar10.npz")
    finding = compare(Results.load(folder), one, other, "accuracy")
    assert (finding.error, finding.outcome) == (None, "undecided")


def test_a_calibration_error_of_one_seed_is_undecided(two_runs):
    folder, (one, other), _ = two_runs
    assert compare(Results.load(folder), one, other, "ece").outcome == "undecided"


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
    assert finding.difference == pytest.approx(np.corrcoef(members, ensembles)[0, 1])


def test_a_set_that_could_not_be_had_is_left_out():
    table = load("ood-cifar10")
    results = invent_results([table], lambda cell, seed: {}, (1, 2))
    for record in results.records.values():
        del record["metrics"]["ood"]["svhn"]
        for first in record["first"].values():
            del first["ood"]["svhn"]
    (verdict,) = judge(table, results)
    assert all("mean AUROC of 2 sets" in finding.text for finding in verdict.findings)
    assert "not measured" not in verdict.text
