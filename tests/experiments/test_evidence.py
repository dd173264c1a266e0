"""Evidence of test images: what other images would change, beside what other trainings would."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from freetickets import metrics
from freetickets.experiments.answers import TEST, Answers, Shifted
from freetickets.experiments.evidence import Evidence
from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, save
from freetickets.experiments.timing import LATER, OURS, PYTORCH, StepTime, StepTimes

from .invented import invent

IMAGES, SEEDS = 600, (0, 1, 2)
ROWS = {row.cell: row for stage in find_grid("medium").experiments for row in stage.rows}
DENSE, EDST = ROWS["few-cifar10-dense"], ROWS["few-cifar10-edst"]
JOINED, STATIC = ROWS["few-cifar10-dense-ensemble"], ROWS["few-cifar10-static"]


def answers(rng, skill, members):
    """Of mostly right networks of ten classes, about images that are hard for all alike."""
    labels = np.random.default_rng(9).integers(0, 10, IMAGES)
    hard = np.random.default_rng(8).uniform(size=IMAGES)
    rows = members + 1
    right = rng.uniform(size=(rows, IMAGES)) < skill - 0.3 * hard
    predicted = np.where(right, labels, (labels + 1) % 10)
    sure = rng.uniform(0.4, 1.0, (rows, IMAGES))
    logs = np.log(np.where(right, sure, 0.1))
    versions = rng.binomial(4, 0.5, (rows, 50))
    unknown = {
        name: {"max_probability": rng.normal(at, 1, count).astype(np.float16).astype(float)}
        for name, at, count in ((TEST, 0.0, IMAGES), ("svhn", skill, 400))
    }
    shifted = {name: Shifted(4, versions, -1.0 * versions) for name in ("corruptions", "fgsm")}
    return Answers(labels, predicted, sure, logs, unknown, shifted)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Records with answers, of three methods with three seeds and an ensemble of one's seeds."""
    folder, kept = tmp_path_factory.mktemp("medium"), {}
    for place, (row, members) in enumerate(((DENSE, 1), (EDST, 3), (STATIC, 3), (JOINED, 3))):
        for seed in SEEDS[:1] if row is JOINED else SEEDS:
            found = answers(np.random.default_rng([place, seed]), 0.9 + 0.02 * place, members)
            scores = found.scores()
            area = metrics.auroc(*(found.unknown[of]["max_probability"] for of in (TEST, "svhn")))
            record = invent(row.cells[0], seed, **scores[-1], ood__svhn__auroc=area)
            save(folder, {**record, "scale": "medium"}, found)
            kept[row.cell, seed] = found
    return Results.load(folder, find_grid("medium").timing), kept


def pairs(kept, seeds=SEEDS):
    return [(kept[EDST.cell, seed], kept[DENSE.cell, seed]) for seed in seeds]


@pytest.mark.parametrize(
    ("column", "each"),
    [
        ("accuracy", lambda of: of.correct[-1].astype(float)),
        ("nll", lambda of: -of.log_likelihood[-1]),
        ("member_accuracy", lambda of: of.correct[:-1].mean(0)),
        ("c_accuracy", lambda of: of.shifted["corruptions"].correct[-1] / 4),
        ("c_nll", lambda of: -of.shifted["corruptions"].log_likelihood[-1] / 4),
        ("attacks.fgsm.mean", lambda of: of.shifted["fgsm"].correct[-1] / 4),
    ],
)
def test_images_are_paired_and_averaged_over_seeds(world, column, each):
    results, kept = world
    found = Evidence(results).compare(EDST, DENSE, (column,)).estimate
    gaps = np.mean([each(mine) - each(theirs) for mine, theirs in pairs(kept)], axis=0)
    assert found.sampling == pytest.approx(stats.sem(gaps) ** 2, rel=1e-4)
    assert found.samples == len(gaps)
    assert found.freedom == 4  # three methods with three seeds; the ensemble is none of them


def test_disagreement_is_of_pairs_on_each_image(world):
    results, kept = world
    found = Evidence(results).compare(EDST, STATIC, ("diversity.disagreement",)).estimate

    def apart(of):
        a, b, c = of.predicted[:-1]
        return ((a != b) + 0.0 + (a != c) + (b != c)) / 3

    gaps = [apart(kept[EDST.cell, seed]) - apart(kept[STATIC.cell, seed]) for seed in SEEDS]
    assert found.sampling == pytest.approx(stats.sem(np.mean(gaps, axis=0)) ** 2)


def test_scores_that_are_no_means_are_bootstrapped_with_the_same_images(world):
    results, kept = world
    rng = np.random.default_rng(3)
    eces, areas = [], []
    for _ in range(600):
        at, other = rng.integers(0, IMAGES, IMAGES), rng.integers(0, 400, 400)
        ece, area = [], []
        for sides in pairs(kept):
            told = []
            for of in sides:
                sure, right = of.confidence[-1, at], of.correct[-1, at]
                bins = np.ceil(sure * 15)
                told.append(sum(abs((right - sure)[bins == b].sum()) for b in set(bins)) / IMAGES)
                known, unknown = (of.unknown[name]["max_probability"] for name in (TEST, "svhn"))
                told.append(metrics.auroc(known[at], unknown[other]))
            ece.append(told[0] - told[2])
            area.append(told[1] - told[3])
        eces.append(np.mean(ece))
        areas.append(np.mean(area))
    for column, draws in (("ece", eces), ("ood.svhn.auroc", areas)):
        found = Evidence(results).compare(EDST, DENSE, (column,)).estimate
        assert found.sampling == pytest.approx(np.var(draws, ddof=1), rel=0.2)
        assert found.samples == IMAGES


def test_an_ensemble_of_all_seeds_has_noise_of_images_only_and_says_so(world):
    results, _ = world
    found = Evidence(results).compare(EDST, JOINED, ("accuracy",))
    assert found.estimate.training == 0.0
    assert found.estimate.sampling > 0.0
    assert found.estimate.degrees == pytest.approx(IMAGES - 1)
    assert "without noise of training" in found.noise
    assert found.decides
    # Nothing at all is known of what has no images, either.
    assert not Evidence(results).compare(EDST, JOINED, ("c_ece",)).decides


def test_what_records_do_not_hold_is_left_out_and_said(world):
    results, _ = world
    for column in ("c_ece", "diversity.kl"):
        found = Evidence(results).compare(EDST, STATIC, (column,))
        assert found.estimate.sampling == 0.0
        assert found.noise == "3 seeds; without noise of images"
    alone = Results({key: results.records[key] for key in results.records if key[1] == 0})
    found = Evidence(alone).compare(EDST, STATIC, ("nll",))
    assert not found.decides
    assert "not known" in found.noise


def test_seconds_are_steps_times_what_a_step_was_measured_to_take():
    phases = [{"epochs": 115.2, "sparsity": 0.8}]
    ledger = {"ledger": {"phases": phases, "dense_epochs": 64.0}, "model": "fast-64-128-128"}
    timing = find_grid("medium").timing
    assert timing.seconds({**ledger, "method": "edst"}, OURS) == pytest.approx(1.8 * 0.480)
    assert timing.seconds({**ledger, "method": "edst"}, PYTORCH) is None
    assert timing.seconds({**ledger, "method": "mimo"}, OURS) is None
    phases[0] = {"epochs": 64.0, "sparsity": 0.0}
    dense = {**ledger, "method": "dense"}
    assert timing.seconds(dense, PYTORCH) == pytest.approx(1.0)
    assert timing.seconds(dense, OURS) == pytest.approx(0.562)
    assert timing.seconds({**dense, "model": "fast-96-192-192"}, PYTORCH) is None


def test_seconds_are_as_sure_as_the_rounds_of_their_timings_are_alike(world):
    """By the rule: the logarithm of the ratio, paired by rounds, which are those of all seeds."""
    results, records = world[0], {}
    for key, record in results.records.items():
        sparsity = 0.0 if record["method"] == "dense" else 0.8
        phases = [{"epochs": 10.0, "sparsity": sparsity}, {"epochs": 8.0, "sparsity": sparsity}]
        ledger = {**record["ledger"], "phases": phases, "dense_epochs": 10.0}
        records[key] = {**record, "ledger": ledger}
    sparse, dense = (0.40, 0.44, 0.39, 0.41), (0.50, 0.53, 0.50, 0.49)
    model = next(iter(records.values()))["model"]
    steps = (StepTime(model, 0.8, 0.5, sparse), StepTime(model, 0.0, 0.6, dense))
    timed = replace(results, records=records, timing=StepTimes(model, ("dense", "edst"), steps))
    logs = np.log(np.array(sparse) / dense)
    for versus, wanted in (("", logs), (PYTORCH, np.log(1.8 * np.array(sparse) / 1.8))):
        found = Evidence(timed).compare(EDST, DENSE, (LATER,), versus)
        assert found.decides
        assert found.estimate.value == pytest.approx(wanted.mean())
        assert found.estimate.error == pytest.approx(stats.sem(wanted))
        assert found.estimate.degrees == pytest.approx(3)
    found = Evidence(timed).compare(EDST, DENSE, (OURS,))
    assert not found.decides
    assert found.noise == "timed without a spread"
    assert timed.value(EDST, LATER, 0) == pytest.approx(1.8 * np.median(sparse))
    assert Evidence(timed).compare(STATIC, DENSE, (LATER,)) is None
