import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from freetickets.calibration import Temperature
from freetickets.metrics import (
    accuracy,
    adaptive_ece,
    brier,
    classwise_ece,
    ece,
    ensemble_log_probs,
    member_nll,
    nll,
    novelty,
    reliability,
    restrict_classes,
    risk_coverage,
)
from freetickets.metrics.arrays import normalise
from freetickets.metrics.predictive import RULES

from .drawn import draw

NEVER = -np.inf
SHAPES = [(1, 1, 2), (1, 50, 2), (3, 200, 10), (7, 40, 100), (2, 2000, 30)]
SCORES = (accuracy, nll, member_nll, brier, ece, adaptive_ece, classwise_ece)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scores_are_those_of_scikit_learn(shape):
    logs, labels = draw(*shape)
    mean = np.exp(logs).mean(0)
    assert accuracy(logs, labels) == accuracy_score(labels, mean.argmax(-1))
    expected = log_loss(labels, mean / mean.sum(-1, keepdims=True), labels=range(shape[2]))
    assert nll(logs, labels) == pytest.approx(expected, rel=1e-12)
    members = np.mean([nll(member[None], labels) for member in logs])
    assert member_nll(logs, labels) == pytest.approx(members, rel=1e-12)
    assert nll(logs, labels) <= member_nll(logs, labels) + 1e-12
    errors = mean - np.eye(shape[2])[labels]
    assert brier(logs, labels) == pytest.approx((errors**2).sum(-1).mean(), abs=1e-12)
    if shape[2] == 2 and shape[1] > 1:
        twice = 2 * brier_score_loss(labels, mean[:, 1])
        assert brier(logs, labels) == pytest.approx(twice, abs=1e-12)


TINY = np.log(1e-45)  # below what a float32 probability can hold


def test_probabilities_that_floats_hardly_hold_are_scored():
    for score, logs, label, expected in (
        (nll, [[TINY, 0.0]], 0, -TINY),
        (nll, [[TINY, 0.0], [np.log(0.5)] * 2], 0, -np.log(0.25)),
        (nll, [[-1000.0, 0.0], [-1001.0, 0.0]], 0, 1000 - np.log((1 + np.exp(-1.0)) / 2)),
        (nll, [[NEVER, 0.0], [NEVER, 0.0]], 0, np.inf),  # not NaN
        (nll, [[NEVER, 0.0], [NEVER, 0.0]], 1, 0),
        (brier, [[0.0, NEVER]], 0, 0),
        (brier, [[0.0, NEVER]], 1, 2),
        (accuracy, np.array([[1e-7, -20.0]], np.float32), 0, 1),  # rounding lifted it above 0
    ):
        assert score([[each] for each in logs], [label]) == pytest.approx(expected, rel=1e-9)


def test_logits_are_combined_by_their_mean_and_one_member_is_its_ensemble(refused):
    logs, _ = draw(3, 20, 5)
    found = ensemble_log_probs(logs, "logits")
    np.testing.assert_allclose(found, log_softmax(logs.mean(0), axis=-1), atol=1e-12)
    assert not np.allclose(ensemble_log_probs(logs), found)
    logs, _ = draw(1, 30, 4)
    for combine in RULES:
        np.testing.assert_allclose(ensemble_log_probs(logs, combine), logs[0], atol=1e-12)
        words = r"\(members, samples, classes\), not \(30, 4\)"
        refused(words, ensemble_log_probs, logs[0], combine)
    refused("did you mean 'logits'", ensemble_log_probs, [[[0.0]]], "logit")


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.floats(0, 1))
def test_ruled_out_classes_are_the_limit_of_ever_lower_logits(seed, members, classes, share):
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=(members, 10, classes))
    possible = rng.integers(0, classes, (members, 10, 1))  # at least one for each member
    out = (rng.random(logs.shape) < share) & (np.arange(classes) != possible)
    expected = np.exp(log_softmax(np.where(out, -1e6, logs).mean(0), axis=-1))
    found = np.exp(ensemble_log_probs(np.where(out, NEVER, logs), "logits"))
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("combine", RULES)
def test_members_that_rule_out_everything_or_some_make_no_nan(combine):
    opposed = np.array([[[NEVER, 0.0, NEVER]], [[0.0, NEVER, NEVER]]])
    assert np.exp(ensemble_log_probs(opposed, combine)).tolist() == [[0.5, 0.5, 0.0]]
    nothing = np.full((2, 1, 3), NEVER)
    assert np.exp(ensemble_log_probs(nothing[:1], combine)).sum() in (0, pytest.approx(1))
    for logs in (nothing, np.concatenate([nothing[:1], np.log([[[0.5, 0.5, 0.0001]]])])):
        found = ensemble_log_probs(logs, combine)
        temperate = Temperature((2.0,), combine=combine).apply(logs)
        assert not any(np.isnan(each).any() for each in (found, normalise(found), temperate))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 20), st.integers(2, 8), st.floats(0.1, 30), st.randoms())
def test_the_order_of_members_and_samples_is_free(members, samples, classes, spread, random):
    logs, labels = draw(members, samples, classes, spread)
    order, mixed = random.sample(range(samples), samples), random.sample(range(members), members)
    for score in SCORES:
        back = score(logs[mixed][:, order], labels[order])
        assert back == pytest.approx(score(logs, labels), rel=1e-9, abs=1e-12)


HALVES = np.full((1, 2, 2), -np.log(2))


@pytest.mark.parametrize("score", [*SCORES, reliability, risk_coverage])
def test_what_is_no_prediction_is_refused(refused, score):
    for logs, labels, message in (
        (np.zeros((3, 2)), [0, 1, 1], "must have the shape"),
        (np.zeros((0, 3, 2)), [0, 1, 1], "must have the shape"),
        (np.zeros((1, 0, 2)), np.zeros(0, int), "must have the shape"),
        (HALVES, [0], "2 predictions need 2 labels"),
        (HALVES, [[0], [1]], "2 predictions need 2 labels"),
        (HALVES, [0, 2], "labels must lie in 0 to 1; they go from 0 to 2"),
        (HALVES, [-1, 1], "they go from -1 to 1"),
        (HALVES, [0.7, 1.0], "labels must be integers"),
        (np.full((1, 2, 2), np.nan), [0, 1], "must be log-probabilities"),
        (np.full((1, 2, 2), 0.5), [0, 1], "must be log-probabilities"),
        (np.full((1, 2, 2), np.inf), [0, 1], "must be log-probabilities"),
        ([[["a"]]], [0], "must be an array of numbers"),
        ([[[0.0]], [[0.0, 0.0]]], [0], "must be an array of numbers"),
    ):
        refused(message, score, logs, labels)


@pytest.mark.parametrize("shift", [-0.5, -5.0, -0.02])
def test_logits_and_what_else_is_not_normalised_are_refused(refused, shift):
    logs = np.log(np.full((2, 5000, 4), 0.25)) + shift
    for metric in (*SCORES[:5], lambda logs, _: novelty(logs)):
        refused(r"add up to 0\..* subtract the log-sum-exp", metric, logs, np.zeros(5000, int))


def test_half_precision_is_normalised_enough():
    logs, labels = draw(1, 200, 1000, 1.0)
    assert 5 < nll(logs.astype(np.float16), labels) < 10


def test_restricted_classes_are_renormalised_for_each_member_and_others_refused(refused):
    logs, _ = draw(3, 40, 10)
    kept, before = [7, 0, 4], logs.copy()
    probs = np.exp(logs)[:, :, kept]
    expected = probs / probs.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(restrict_classes(logs, kept)), expected, atol=1e-12)
    np.testing.assert_allclose(restrict_classes(logs, range(10)), logs, atol=1e-12)
    np.testing.assert_array_equal(logs, before)
    # Probabilities that a float can't hold stay apart.
    logs = np.array([[[0.0, -1000.0, -1001.0], [0.0, NEVER, NEVER], [0.0, NEVER, -30.0]]])
    found, more = np.exp(restrict_classes(logs, [1, 2]))[0], 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(found, [[more, 1 - more], [0.5, 0.5], [0.0, 1.0]], atol=1e-12)
    for classes, message in (
        ([], "at least one integer"),
        ([0.5], "at least one integer"),
        ([[0]], "at least one integer"),
        ([0, 3], "must lie in 0 to 2"),
        ([-1], "must lie in 0 to 2"),
        ([1, 1], "must differ"),
    ):
        refused(message, restrict_classes, np.log(np.full((1, 2, 3), 1 / 3)), classes)
