"""Results: what is saved is read back, and each column is the number that it says."""

from dataclasses import replace

import numpy as np
import pytest

from freetickets import metrics
from freetickets.experiments import Results, Row, experiment_names, load, needed
from freetickets.experiments.answers import measure
from freetickets.experiments.results import read_record, record_path, save
from freetickets.methods import DST, EDST

from .invented import invent, invent_predictions, invent_results, of_cells, results_of


def edst(**options):
    return Row(label="EDST", dataset="cifar10", model="wrn-28-10", method=EDST(), **options)


def dst7(members):
    return replace(edst(), label="DST", method=DST(tickets=7), members=members)


def of_row(row, **numbers):
    return results_of({(row.cells[0], 1): numbers})


def test_what_is_saved_is_loaded(tmp_path):
    row = edst()
    record = invent(row.cells[0], 2, accuracy=1 / 3)
    assert save(tmp_path, record) == record_path(tmp_path, row.cells[0], 2)
    results = Results.load(tmp_path)
    assert results.seeds(row.cells[0]) == [2]
    assert results.value(row, "accuracy", 2) == pytest.approx(1 / 3, abs=1e-8)
    assert results.get(row.cells[0], 1) is None
    before = record_path(tmp_path, row.cells[0], 2).read_bytes()
    assert save(tmp_path, results.get(row.cells[0], 2)).read_bytes() == before


def test_a_number_that_json_has_no_word_for_is_not_measured_and_damage_is_named(tmp_path, refused):
    assert Results.load(tmp_path).records == {}
    path = save(tmp_path, invent(edst().cells[0], 1, nll=float("inf")))
    assert Results.load(tmp_path).values(edst(), "nll") == []
    other = path.rename(path.with_name("2.json"))
    refused(r"2\.json is of another cell or seed", Results.load, tmp_path)
    other.write_text(other.read_text()[:50])
    assert read_record(other) is None
    refused(r"2\.json is damaged: remove it", Results.load, tmp_path)


def test_a_column_is_its_number():
    given = {"accuracy": 0.91, "member_nll": 0.5, "c_nll": 1.5, "diversity.kl": 0.123}
    given |= {"ood.svhn.auroc": 0.77, "attacks.fgsm.min": 0.31, "train_flops": 0.61}
    results = of_row(edst(), c_ece=0.2, **{k.replace(".", "__"): v for k, v in given.items()})
    expected = {
        **given, "tickets": 3.0, "sparsity": 0.8, "c_ece_pooled": 0.1, "a_nll": None,
        "diversity.disagreement_by_class.apple": 0.03,
        "diversity.disagreement_by_class.bottle": pytest.approx(0.03 + 0.09),
        "ood.gaussian-noise.fpr95": 0.4, "training_runs": 1.0, "seconds": 10.0, "ticket_mb": None,
    }  # fmt: skip
    assert {column: results.value(edst(), column, 1) for column in expected} == expected


def test_first_members_have_their_own_numbers_and_share_of_the_cost():
    results = of_row(dst7(None), train_flops=2.1, first__2__accuracy=0.7, first__1__auroc=0.6)
    expected = {
        (2, "accuracy"): 0.7, (2, "tickets"): 2, (2, "train_flops"): pytest.approx(0.6),
        (7, "train_flops"): pytest.approx(2.1), (1, "ood.svhn.auroc"): 0.6,
        (1, "diversity.kl"): None, (1, "c_nll"): None,
    }  # fmt: skip
    found = {(members, key): results.value(dst7(members), key, 1) for members, key in expected}
    assert found == expected
    # Of the first tickets of one training it is unknown.
    assert of_row(edst()).value(edst(members=1), "train_flops", 1) is None


def test_correlations_are_over_all_cells_of_a_seed():
    row = edst(over={"sparsity": (0.5, 0.6, 0.8, 0.9)})
    members, ensembles = (0.9, 0.91, 0.89, 0.8), (0.93, 0.92, 0.91, 0.85)
    records = dict(of_cells(row.cells, member_accuracy=members, accuracy=ensembles).records)
    pearson, spearman = np.corrcoef(members, ensembles)[0, 1], 0.8
    for name, value in (("pearson", pearson), ("spearman", spearman)):
        assert Results(records).values(row, f"correlation.{name}") == [pytest.approx(value)]
    records.popitem()
    assert Results(records).values(row, "correlation.pearson") == []


def test_every_column_of_the_paper_is_found_but_imagenet_a():
    experiments = [load(name) for name in experiment_names()]
    results = invent_results(
        experiments, lambda cell, _: {"accuracy": 0.9 + cell.options.get("sparsity", 0) / 100}
    )
    missing = {
        column
        for experiment in experiments
        for row in experiment.rows
        for column in row.paper
        if not results.values(row, column)
    }
    assert missing == {"a_accuracy", "a_nll", "a_ece"}
    assert len(results.records) == len(needed(experiments))


@pytest.fixture
def run(tmp_path):
    """A run of three members with an OoD set and an attack."""
    draw = np.random.default_rng(0)

    def predictions(samples, labels, **info):
        info |= {"dataset": "some/folder/cifar10.npz"}
        return invent_predictions(draw.normal(size=(3, samples, 4)), labels, **info)

    labels = draw.integers(4, size=50)
    attack = {"kind": "attack", "parts": ["1", "2", "3"], "epsilon": 0.1}
    saved = {
        "cifar10": predictions(50, labels),
        "ood/svhn": predictions(40, np.full(40, -1), kind="ood"),
        "attacks/fgsm": predictions(150, np.tile(labels, 3), **attack),
    }
    for name, each in saved.items():
        each.save(tmp_path / "predictions" / f"{name}.npz")
    return tmp_path, saved


def test_measure_scores_the_first_members_by_brute_force(run):
    folder, saved = run
    found = measure(folder, [1, None])
    test, outside, attack = saved.values()
    members, labels = test.members(), test.labels
    assert list(found["first"]) == ["1", "2", "3"]
    two = found["first"]["2"]
    assert two["accuracy"] == metrics.accuracy(members[:2], labels)
    assert two["kl"] == pytest.approx(metrics.kl(members[:2]))
    assert two["member_accuracy"] == np.mean(
        [metrics.accuracy(member[None], labels) for member in members[:2]]
    )
    assert "ood" not in two
    one = found["first"]["1"]
    assert "kl" not in one
    novelty = [1 - np.exp(each.outputs[0].astype(float)).max(-1) for each in (test, outside)]
    auroc = np.mean(novelty[1][:, None] > novelty[0])
    assert one["ood"]["svhn"]["max_probability"]["auroc"] == pytest.approx(auroc)
    right = [np.mean(part.outputs[0].argmax(-1) == labels) for part in attack.parts]
    assert one["attacks"]["fgsm"]["min"] == pytest.approx(min(right))
    assert one["attacks"]["fgsm"]["ensemble"] == pytest.approx(right)
    assert found["metrics"]["dataset"] == "cifar10.npz"
    assert found["metrics"]["ensemble"]["accuracy"] == found["first"]["3"]["accuracy"]
