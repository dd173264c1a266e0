import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

import freetickets as ft
from freetickets import metrics
from freetickets.calibration import Temperature
from freetickets.evaluation import Predictions, summarise

SHIFT = {"kind": "shift", "source": "folder", "parts": ["1", "2", "3", "4", "5"]}


def mean_probs(predictions):
    return np.exp(predictions.outputs.astype(float)).mean(0)


@pytest.fixture
def toy(invent, tmp_path):
    test = invent(0, split="test")
    test.save(tmp_path / "predictions" / "toy.npz")
    return tmp_path, test


def test_the_test_set_alone_has_its_scores_more_of_them_and_the_diversity(toy):
    folder, test = toy
    scores = summarise(folder)
    assert set(scores) == {*test.scores(), "more", "diversity"}
    assert scores.items() >= test.scores().items()
    probs = mean_probs(test)
    per_class = brier_score_loss(np.eye(4)[test.labels].ravel(), probs.ravel())
    assert scores["more"]["brier"] == pytest.approx(4 * per_class)
    votes = test.outputs.argmax(-1)
    pairs = [(votes[i] != votes[j]).mean() for i in range(3) for j in range(i)]
    assert scores["diversity"]["disagreement"] == pytest.approx(np.mean(pairs))
    assert np.shape(scores["diversity"]["kl_matrix"]) == (3, 3)
    assert scores["more"]["member_nll"] == pytest.approx(scores["member_mean"]["nll"])


def test_one_member_has_no_diversity_and_what_is_not_finite_is_null(invent, tmp_path):
    test = invent(0, labels=np.zeros(40, int))  # classes 1 to 3 are absent
    test.save(tmp_path / "predictions" / "toy.npz")
    scores = summarise(tmp_path)
    assert scores["diversity"]["disagreement_by_class"][1:] == [None] * 3
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores
    test.adjusted([0], None).save(tmp_path / "predictions" / "toy.npz")
    strange = invent(1, labels=np.full(9, -1), count=9, kind="ood").adjusted([0], None)
    strange.save(tmp_path / "predictions" / "ood" / "noise.npz")
    scores = summarise(tmp_path)
    assert "diversity" not in scores
    assert set(scores["ood"]["noise"]) == {"samples", "max_probability", "entropy"}


@pytest.mark.parametrize("first", [None, 15])  # of a set's first samples, as many are compared
def test_ood_scores_are_those_of_scikit_learn_with_ood_positive(toy, invent, first):
    folder, test = toy
    count = first or 25
    strange = invent(1, count=count, labels=np.full(count, -1), kind="ood", samples=first)
    strange.save(folder / "predictions" / "ood" / "noise.npz")
    found = summarise(folder)["ood"]["noise"]
    assert found["samples"] == count
    truth = np.repeat([0, 1], [first or 40, count])
    both = np.concatenate([mean_probs(test)[:first], mean_probs(strange)])
    for score, value in (
        ("max_probability", 1 - both.max(-1)),
        ("entropy", -(both * np.log(both)).sum(-1)),
    ):
        assert found[score]["auroc"] == pytest.approx(roc_auc_score(truth, value))
        assert found[score]["aupr"] == pytest.approx(average_precision_score(truth, value))
    assert 0 <= found["mutual_information"]["fpr95"] <= 1


def test_shift_scores_are_those_of_each_severity_and_their_means(toy, invent):
    folder, _ = toy
    kept = {}
    for seed, name in enumerate(("fog", "snow")):
        kept[name] = invent(10 + seed, count=50, corruption=name, **SHIFT)
        kept[name].save(folder / "predictions" / "toy-c" / f"{name}.npz")
    found = summarise(folder)["shift"]["toy-c"]
    assert found["types"] == ["snow", "fog"]  # in the order of the published sets
    assert (found["source"], found["samples"]) == ("folder", 10)
    assert found["severities"] == [1, 2, 3, 4, 5]
    for row, name in enumerate(found["types"]):
        for column, part in enumerate(kept[name].parts):
            joint = np.log(mean_probs(part))[None]
            assert found["accuracy"][row][column] == metrics.accuracy(joint, part.labels)
            assert found["nll"][row][column] == pytest.approx(metrics.nll(joint, part.labels))
            assert found["ece"][row][column] == pytest.approx(metrics.ece(joint, part.labels))
    assert set(found["means"]) == {"given"}
    assert found["means"]["given"]["accuracy"] == pytest.approx(np.mean(found["accuracy"]))
    pooled = np.concatenate([mean_probs(each) for each in kept.values()])
    labels = np.concatenate([each.labels for each in kept.values()])
    expected = metrics.ece(np.log(pooled)[None], labels)
    assert found["means"]["given"]["ece_pooled"] == pytest.approx(expected)


def test_only_complete_sets_of_the_same_samples_and_sources_are_averaged(toy, invent, refused):
    folder, _ = toy
    for name in metrics.CORRUPTION_SETS["common15"]:
        invent(3, count=10, **SHIFT).save(folder / "predictions" / "toy-c" / f"{name}.npz")
    means = summarise(folder)["shift"]["toy-c"]["means"]
    assert set(means) == {"common15"}
    invent(4, count=10, **SHIFT).save(folder / "predictions" / "toy-c" / "saturate.npz")
    means = summarise(folder)["shift"]["toy-c"]["means"]
    assert set(means) == {"common15", "given"}
    assert means["given"] != means["common15"]
    folder, _ = toy
    for name, count, source in (("fog", 10, "folder"), ("snow", 15, "generated")):
        told = {**SHIFT, "source": source, "samples": count // 5}
        invent(3, count=count, **told).save(folder / "predictions" / "toy-c" / f"{name}.npz")
    refused("toy-c holds types of different samples or sources", summarise, folder)
    said = []
    assert "shift" not in summarise(folder, tell=said.append)
    assert len(said) == 1


def test_attacks_are_scored_by_source_and_target_beside_the_clean_accuracy(refused, toy, invent):
    folder, test = toy
    info = {"kind": "attack", "epsilon": 8 / 255, "steps": 1, "parts": ["1", "2", "3"]}
    attacked = invent(5, count=60, labels=np.tile(test.labels[:20], 3), **info)
    attacked.save(folder / "predictions" / "attacks" / "fgsm.npz")
    found = summarise(folder)["attacks"]["fgsm"]
    assert (found["samples"], found["steps"]) == (20, 1)
    right = mean_probs(test)[:20].argmax(-1) == test.labels[:20]
    assert found["clean"] == right.mean()
    for k, part in enumerate(attacked.parts):
        assert found["ensemble"][k] == (mean_probs(part).argmax(-1) == part.labels).mean()
        for m in range(3):
            hits = part.outputs[m].argmax(-1) == part.labels
            assert found["transfer"][k][m] == hits.mean()
    assert found["min"] == min(found["ensemble"])
    assert found["max"] == max(found["ensemble"])
    assert found["mean"] == pytest.approx(np.mean(found["ensemble"]))
    others = np.tile((test.labels + 1) % 4, 3)
    invent(5, count=120, labels=others, **info).save(folder / "predictions/attacks/fgsm.npz")
    refused(r"fgsm.npz is of other test samples", summarise, folder)


def test_natural_sets_are_scored_both_ways_two_test_sets_refused(toy, invent, refused, tmp_path):
    folder, _ = toy
    labels = np.random.default_rng(1).choice([1, 3], 30)
    saved = invent(6, count=30, labels=labels, kind="natural", classes_200=[1, 3])
    saved.save(folder / "predictions" / "imagenet-a.npz")
    found = summarise(folder)["natural"]["imagenet-a"]
    assert found["1000-way"]["accuracy"] == (mean_probs(saved).argmax(-1) == labels).mean()
    few = np.exp(saved.outputs.astype(float))[..., [1, 3]]
    few = (few / few.sum(-1, keepdims=True)).mean(0)  # each member for itself, then the mean
    assert found["200-way"]["accuracy"] == (few.argmax(-1) == (labels == 3)).mean()
    expected = -np.log(few[np.arange(30), (labels == 3).astype(int)]).mean()
    assert found["200-way"]["nll"] == pytest.approx(expected, rel=1e-5)
    folder, test = toy
    refused("no predictions of a test set in", summarise, tmp_path / "nowhere")
    test.save(folder / "predictions" / "toy2.npz")
    refused("two test sets of one run", summarise, folder)


def test_temperature_and_rule_to_combine_hold_for_every_set(toy, invent):
    folder, test = toy
    warm = {"temperature": Temperature((3.0,)).as_dict()}
    for extra in ({}, warm):
        invent(7, count=10, **SHIFT, **extra).save(folder / "predictions/toy-c/fog.npz")
        scores = summarise(folder)["shift"]["toy-c"]["nll"]
        saved = Predictions.load(folder / "predictions/toy-c/fog.npz").parts
        assert scores == [[metrics.nll(each.ensemble(), each.labels) for each in saved]]
    assert test.scores()["ensemble"]["nll"] == summarise(folder)["ensemble"]["nll"]


# ---- what made the predictions


def test_predictions_of_other_tickets_are_never_mixed_in(refused, run_folder, invent):
    scores = ft.evaluation.evaluate_run(run_folder, ft.load(run_folder))
    assert summarise(run_folder) == scores
    old = run_folder / "predictions" / "ood" / "old.npz"
    invent(1, labels=np.full(40, -1), kind="ood", tickets="another").save(old)
    refused(r"old.npz was made by other tickets: remove it", summarise, run_folder)
    said = []
    assert summarise(run_folder, tell=said.append) == scores
    (line,) = said
    assert str(old) in line
    assert "left out" in line
    old.write_bytes(old.read_bytes()[:99])
    refused(r"old.npz is damaged", summarise, run_folder)
    (run_folder / "tickets" / "02.safetensors").unlink()  # the test set too is of other tickets
    refused(r"bars.npz was made by other tickets", summarise, run_folder)
