from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, rel_entr

from freetickets.metrics import (
    disagreement,
    disagreement_by_class,
    disagreement_matrix,
    feature_kl,
    kl,
    kl_matrix,
)

from .drawn import draw

SHAPES = [(2, 1, 2), (3, 50, 10), (7, 300, 100), (4, 2000, 100), (5, 20, 1)]


def kl_by_hand(logs):
    probs = np.exp(logs)
    return [[rel_entr(p, q).sum(-1).mean() for q in probs] for p in probs]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matrices_hold_each_pair_and_scores_their_mean(shape):
    logs, _ = draw(*shape)
    choices, pairs = logs.argmax(-1), list(combinations(range(shape[0]), 2))
    found, matrix = disagreement_matrix(logs), kl_matrix(logs)
    np.testing.assert_allclose(found, [[np.mean(a != b) for b in choices] for a in choices])
    assert disagreement(logs) == pytest.approx(np.mean([found[pair] for pair in pairs]), abs=1e-12)
    np.testing.assert_allclose(matrix, kl_by_hand(logs), atol=1e-9)
    assert not matrix.diagonal().any()
    both = [matrix[pair] for pair in permutations(range(shape[0]), 2)]
    assert kl(logs) == pytest.approx(np.mean(both), rel=1e-12)
    forward = [matrix[pair] for pair in pairs]
    assert kl(logs, ordered=False) == pytest.approx(np.mean(forward), rel=1e-12)


def test_disagreement_is_that_of_a_classs_samples_and_none_of_the_same_members():
    logs, labels = draw(3, 200, 7)[0], np.arange(200) % 6  # no sample of the last class
    found = disagreement_by_class(logs, labels)
    expected = [disagreement(logs[:, labels == label]) for label in range(6)]
    np.testing.assert_allclose(found, [*expected, np.nan])
    logs = np.repeat(draw(1, 400, 10)[0], 3, axis=0)
    assert disagreement(logs) == 0
    np.testing.assert_allclose(kl_matrix(logs), 0, atol=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 30), st.integers(1, 8), st.randoms())
def test_the_order_of_members_samples_and_classes_is_free(members, samples, classes, random):
    logs, _ = draw(members, samples, classes)
    mixed = logs[np.ix_(*(random.sample(range(size), size) for size in logs.shape))]
    assert disagreement(mixed) == pytest.approx(disagreement(logs), abs=1e-12)
    assert kl(mixed) == pytest.approx(kl(logs), abs=1e-10)
    assert kl(logs) >= 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_kl_is_infinite_just_where_a_class_is_ruled_out_and_never_nan(seed, share):
    logs, _ = draw(3, 4, 3)
    out = np.random.default_rng(seed).random(logs.shape) < share
    out &= logs < logs.max(-1, keepdims=True)
    logs = log_softmax(np.where(out, -np.inf, logs), axis=-1)
    np.testing.assert_allclose(kl_matrix(logs), kl_by_hand(logs), atol=1e-12)
    assert not np.isnan(kl(logs))


def test_a_probability_too_small_for_a_float_is_not_impossible():
    found = kl_matrix([[[0.0, -1000.0]], [[0.0, -np.inf]]])
    assert found.tolist() == [[0, np.inf], [0, 0]]
    found = kl_matrix([[[0.0, -1000.0]], [[-1000.0, 0.0]]])
    np.testing.assert_allclose(found, [[0.0, 1000.0], [1000.0, 0.0]])


def of_classes(logs):
    return disagreement_by_class(logs, [0, 1, 2])


@pytest.mark.parametrize("score", [disagreement, disagreement_matrix, kl, kl_matrix, of_classes])
def test_one_member_has_no_pair(refused, score):
    refused("at least 2 members", score, draw(1, 3, 3)[0])
    refused("must have the shape", score, np.zeros((2, 0, 3)))
    refused("labels must lie in 0 to 1", of_classes, draw(2, 3, 2)[0])


@pytest.mark.parametrize("shape", [(5, 4), (3, 8, 2), (2, 16, 5, 3)], ids=str)
def test_feature_kl_is_pytorchs_with_channels_as_classes(shape):
    a, b = 5 * np.random.default_rng(0).normal(size=(2, *shape))
    # KL(a || b), summed over channels and places and divided by the samples.
    expected = torch.nn.functional.kl_div(
        torch.tensor(b).log_softmax(1), torch.tensor(a).softmax(1), reduction="batchmean"
    )
    assert feature_kl(a, b) == pytest.approx(float(expected), rel=1e-12)
    places = int(np.prod(shape[2:]))
    assert feature_kl(a, b, "mean") == pytest.approx(float(expected) / places, rel=1e-12)
    assert feature_kl(a, a) == 0
    assert feature_kl(a, a + 1e6) == pytest.approx(0, abs=1e-9)


A = np.zeros((2, 3, 4))


def test_feature_maps_that_do_not_fit_are_refused(refused):
    for maps, message in (
        ((A, np.zeros((2, 4, 4))), r"not \(2, 3, 4\) and \(2, 4, 4\)"),
        ((A[:0], A[:0]), "same shape"),
        ((A[0, 0], A[0, 0]), "same shape"),
        ((A, np.full_like(A, np.nan)), "finite"),
        ((A, A, "men"), "did you mean 'mean'"),
    ):
        refused(message, feature_kl, *maps)
