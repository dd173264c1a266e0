from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from freetickets.metrics import (
    NOVELTY_SCORES,
    accuracy,
    aupr,
    auroc,
    fpr95,
    novelty,
    risk_coverage,
    roc_curve,
)
from freetickets.metrics.uncertainty import Uncertainty

from .drawn import draw


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 9), st.floats(0, 50))
def test_scores_are_their_definitions(seed, members, classes, spread):
    logs, _ = draw(members, 20, classes, spread, seed=seed)
    probs = np.exp(logs)
    mean = probs.mean(0)
    total, own = entropy(mean, axis=-1), entropy(probs, axis=-1).mean(0)
    close = {"atol": 1e-9, "rtol": 0}
    np.testing.assert_allclose(novelty(logs), 1 - mean.max(-1), **close)
    np.testing.assert_allclose(novelty(logs, "entropy"), total, **close)
    np.testing.assert_allclose(novelty(logs, "mutual_information"), total - own, **close)
    found = Uncertainty.of(logs)
    np.testing.assert_allclose(found.total, total, **close)
    np.testing.assert_allclose(found.epistemic, total - own, **close)
    np.testing.assert_allclose(found.aleatoric, own, **close)


def test_many_samples_and_certain_or_impossible_classes_are_scored(refused):
    logs, _ = draw(3, 1000, 100)  # in several blocks
    expected = Uncertainty.of(logs)
    np.testing.assert_allclose(novelty(logs, "entropy"), expected.total, atol=1e-12)
    np.testing.assert_allclose(novelty(logs, "mutual_information"), expected.epistemic, atol=1e-12)
    logs = np.array([[[0.0, -np.inf, -np.inf]], [[-np.inf, 0.0, -np.inf]]])
    assert novelty(logs).tolist() == [0.5]
    assert novelty(logs, "entropy") == pytest.approx(np.log(2))
    assert novelty(logs, "mutual_information") == pytest.approx(np.log(2))
    assert [novelty(logs[:1], score).tolist() for score in NOVELTY_SCORES] == [[0.0]] * 3
    logs = np.full((3, 4, 2), [1e-7, -16.0], dtype=np.float32)  # rounded to below zero
    assert (novelty(logs, "entropy") >= 0).all()
    assert (novelty(logs, "mutual_information") >= 0).all()
    inside, outside = [0.5] * 30, [0.5] * 10
    assert (auroc(inside, outside), aupr(inside, outside), fpr95(inside, outside)) == (0.5, 0.25, 1)
    assert roc_curve(inside, outside).false_positive.tolist() == [0, 1]
    refused("did you mean 'entropy'", novelty, np.zeros((1, 1, 1)), "entrpy")
    refused("must have the shape", novelty, np.zeros((3, 2)))


@pytest.mark.parametrize("score", NOVELTY_SCORES)
def test_risk_is_the_error_of_the_most_certain(score):
    logs, labels = draw(3, 60, 4, 2.0)
    found = risk_coverage(logs, labels, score)
    order = np.argsort(novelty(logs, score))
    kept = [order[:k] for k in range(1, 61)]
    risks = [1 - accuracy(logs[:, each], labels[each]) for each in kept]
    np.testing.assert_allclose(found.coverage, np.arange(1, 61) / 60)
    np.testing.assert_allclose(found.risk, risks, atol=1e-12)
    assert found.area == pytest.approx(np.mean(risks))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(5, 7), st.booleans()), min_size=1, max_size=5))
def test_ties_count_as_the_mean_over_all_orders(samples):
    logs = np.log([[[top / 10, 1 - top / 10] for top, _ in samples]])
    labels = [int(not right) for _, right in samples]
    curves = []
    for order in permutations(samples):
        kept = sorted(order, key=lambda sample: -sample[0])  # stable: ties as they come
        errors = np.cumsum([not right for _, right in kept])
        curves.append(errors / np.arange(1, len(samples) + 1))
    found = risk_coverage(logs, labels)
    np.testing.assert_allclose(found.risk, np.mean(curves, axis=0), atol=1e-12)


# Few different values, so that there are many ties; and many.
scores = st.one_of(
    st.lists(st.integers(0, 4).map(float), min_size=1, max_size=40),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
)


def together(inside, outside):
    """As scikit-learn takes them: whether a sample is from outside, and its score."""
    return np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside])


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_areas_are_those_of_scikit_learn_and_fpr95_the_least_over_all_thresholds(inside, outside):
    pair = together(inside, outside)
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(*pair), abs=1e-12)
    assert aupr(inside, outside) == pytest.approx(average_precision_score(*pair), abs=1e-12)
    found = [
        np.mean(np.array(inside) >= threshold)
        for threshold in [*inside, *outside]
        if 100 * np.sum(np.array(outside) >= threshold) >= 95 * len(outside)
    ]
    assert fpr95(inside, outside) == pytest.approx(min(found))


@pytest.mark.parametrize("outside", [1, 19, 20, 21, 40, 100, 10_000, 26_032])
def test_95_percent_is_counted_in_whole_samples(outside):
    missed = outside * 5 // 100  # the threshold is the sample after those that may be missed
    assert [fpr95([x], np.arange(outside)) for x in (missed - 0.5, missed)] == [0, 1]


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_the_curve_is_that_of_scikit_learn_without_points_on_lines(inside, outside):
    found = roc_curve(inside, outside)
    false, true, _ = sklearn_roc_curve(*together(inside, outside), drop_intermediate=False)
    at = np.column_stack([false, true])
    corners = np.column_stack([found.false_positive, found.true_positive])
    assert corners[0].tolist() == [0, 0]
    assert corners[-1].tolist() == [1, 1]
    assert all(np.abs(at - corner).sum(1).min() < 1e-12 for corner in corners)
    # Every point of theirs lies on our line: as far along it (both grow) as the interpolation says.
    along = corners.sum(1)
    for axis in (0, 1):
        np.testing.assert_allclose(np.interp(at.sum(1), along, corners[:, axis]), at[:, axis])
    assert found.area == pytest.approx(auroc(inside, outside), abs=1e-12)
    first, second = np.diff(corners, axis=0)[:-1], np.diff(corners, axis=0)[1:]
    turns = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    assert (np.abs(turns) > 1e-9).all()


@pytest.mark.parametrize("score", [auroc, aupr, fpr95, roc_curve])
def test_what_does_not_tell_samples_apart_is_refused(refused, score):
    for inside, outside, message in (
        ([0.0, np.nan], [1.0], "of samples inside must be finite"),
        ([0.0], [1.0, -np.inf], "of samples outside must be finite"),
        ([0.0], [], r"of samples outside must be a list .* not \(0,\)"),
        ([[0.0]], [1.0], "of samples inside must be a list"),
    ):
        refused(message, score, inside, outside)
