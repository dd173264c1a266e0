"""Answers: what they say of each image is what the predictions say, in less than a megabyte."""

import re
from dataclasses import replace

import numpy as np
import pytest

from freetickets import metrics
from freetickets.evaluation import Predictions
from freetickets.evaluation.summary import summarise
from freetickets.experiments.answers import TEST, Answers, Shifted

from .invented import invent_predictions


def predictions(rng, members, samples, classes):
    """Such as trained networks make: mostly sure, mostly right, and some sure and wrong."""
    labels = rng.integers(0, classes, samples)
    logits = rng.normal(size=(members, samples, classes)) + rng.normal(size=(samples, classes))
    logits[:, np.arange(samples), labels] += rng.gamma(2.0, 3.0, samples)
    return invent_predictions(logits, labels, dataset="x")


def changed(saved, parts, **info):
    """The first 50 samples, changed in so many ways."""
    shape = saved.outputs.shape[0], parts * 50, saved.outputs.shape[2]
    logits = np.random.default_rng(len(str(info))).normal(size=shape) * 3
    told = {**saved.info, "parts": [str(part) for part in range(parts)], **info}
    return invent_predictions(logits, np.tile(saved.labels[:50], parts), **told)


@pytest.fixture
def run(tmp_path):
    """A run's folder with all kinds of predictions, of three members."""
    rng = np.random.default_rng(0)
    test = predictions(rng, 3, 400, 10)
    folder = tmp_path / "predictions"
    test.save(folder / "x.npz")
    for name in ("fog", "frost"):
        told = {"kind": "shift", "corruption": name, "source": "generated", "samples": 50}
        changed(test, 5, **told).save(folder / "x-c" / f"{name}.npz")
    outside = predictions(rng, 3, 120, 10)
    outside.info.update(kind="ood", samples=None)
    outside.save(folder / "ood" / "svhn.npz")
    changed(test, 3, kind="attack", epsilon=0.1).save(folder / "attacks" / "fgsm.npz")
    return tmp_path


def test_all_scores_can_be_computed_again(run, tmp_path):
    scores = summarise(run)
    digest = Answers.collect(run).save(tmp_path / "0.npz")
    read = Answers.load(tmp_path / "0.npz", digest)
    expected = [*scores["members"], scores["ensemble"]]
    for found, own in zip(read.scores(), expected, strict=True):
        assert found == pytest.approx({k: own[k] for k in ("accuracy", "nll", "ece")}, abs=1e-4)
    assert [each["accuracy"] for each in read.scores()] == [each["accuracy"] for each in expected]
    pairs = [(0, 1), (0, 2), (1, 2)]
    apart = np.mean([(read.predicted[a] != read.predicted[b]).mean() for a, b in pairs])
    assert apart == pytest.approx(scores["diversity"]["disagreement"], abs=1e-12)
    for score, inside in read.unknown[TEST].items():
        found = metrics.auroc(inside, read.unknown["svhn"][score])
        assert found == pytest.approx(scores["ood"]["svhn"][score]["auroc"], abs=1e-4)
    corrupted, attacked = read.shifted["corruptions"], read.shifted["fgsm"]
    assert (corrupted.versions, attacked.versions) == (2 * 5, 3)
    assert corrupted.correct.shape == corrupted.log_likelihood.shape == (4, 50)
    shift = scores["shift"]["x-c"]["means"]["given"]
    assert corrupted.correct[-1].mean() / 10 == pytest.approx(shift["accuracy"], abs=1e-9)
    assert -corrupted.log_likelihood[-1].mean() / 10 == pytest.approx(shift["nll"], abs=1e-5)
    mean = scores["attacks"]["fgsm"]["mean"]
    assert attacked.correct[-1].mean() / 3 == pytest.approx(mean, abs=1e-9)


def test_one_image_is_as_the_predictions_have_it(run):
    saved = Predictions.load(run / "predictions" / "x.npz")
    found = Answers.collect(run)
    member, image = 1, 17
    logs = saved.outputs[member, image].astype(np.float64)
    assert found.predicted[member, image] == logs.argmax()
    assert found.confidence[member, image] == pytest.approx(np.exp(logs.max()))
    assert found.log_likelihood[member, image] == pytest.approx(logs[saved.labels[image]])
    mean = np.exp(saved.outputs[:, image].astype(np.float64)).mean(axis=0)
    assert found.confidence[-1, image] == pytest.approx(mean.max())
    assert found.log_likelihood[-1, image] == pytest.approx(np.log(mean[saved.labels[image]]))


def test_the_largest_record_is_below_a_megabyte_and_precise(tmp_path):
    rng = np.random.default_rng(1)
    test = predictions(rng, 7, 10_000, 100)
    test.save(tmp_path / "predictions" / "x.npz")
    whole = Answers.collect(tmp_path)
    unknown = dict.fromkeys((TEST, "svhn", "cifar100"), whole.unknown[TEST])
    sums = Shifted(95, rng.integers(0, 96, (8, 1000)), -rng.gamma(1.0, 200.0, (8, 1000)))
    path = tmp_path / "0.npz"
    replace(whole, unknown=unknown, shifted={"corruptions": sums, "fgsm": sums}).save(path)
    assert path.stat().st_size < 950_000  # which leaves 50,000 bytes to the scores
    read = Answers.load(path)
    scores = test.scores()
    for found, own in zip(read.scores(), [*scores["members"], scores["ensemble"]], strict=True):
        assert found == pytest.approx(own, abs=1e-4)
    assert np.array_equal(read.predicted, whole.predicted)
    assert np.array_equal(read.labels, test.labels)
    assert np.array_equal(read.shifted["fgsm"].correct, sums.correct)


def test_what_is_certain_or_impossible_stays_so(tmp_path):
    labels, predicted = np.array([0, 300]), np.array([[0, 299], [0, 299]])
    confidence = np.array([[1.0, 1.0], [0.5, 1 / 3]])
    logs = np.array([[0.0, -np.inf], [-1e-9, -1e6]])
    Answers(labels, predicted, confidence, logs).save(tmp_path / "0.npz")
    read = Answers.load(tmp_path / "0.npz")
    assert np.array_equal(read.labels, labels)
    assert np.array_equal(read.predicted, predicted)
    assert read.confidence[0].tolist() == [1.0, 1.0]
    assert np.isfinite(read.log_likelihood).all()
    assert read.log_likelihood[0, 1] < -1e38  # as far below as the file can say
    assert read.log_likelihood[1] == pytest.approx([-1e-9, -1e6], rel=1e-5)


@pytest.mark.parametrize("damage", ["cut", "one byte", "gone", "another", "no zip", "no array"])
def test_damage_is_refused_in_one_line(run, tmp_path, damage, refused):
    path = tmp_path / "0.npz"
    digest = Answers.collect(run).save(path)
    data = path.read_bytes()
    middle = len(data) // 2
    if damage == "gone":
        path.unlink()
    elif damage in ("another", "no array"):
        np.savez(path, labels=np.zeros(3))
    else:
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes({"cut": data[:middle], "one byte": flipped, "no zip": b"nothing"}[damage])
    if damage in ("cut", "no zip", "no array"):  # without the digest, too
        digest = None
    refused(re.escape(str(path)), Answers.load, path, digest)


def test_a_run_that_was_not_evaluated_has_no_answers(tmp_path, refused):
    refused("no predictions of a test set", Answers.collect, tmp_path)
