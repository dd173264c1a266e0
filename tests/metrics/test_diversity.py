from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, rel_entr
from torchmetrics.functional import kl_divergence

from freetickets.errors import FreeTicketsError
from freetickets.metrics import (
    disagreement,
    disagreement_by_class,
    disagreement_matrix,
    feature_kl,
    kl,
    kl_matrix,
)

Array = Any
SHAPES = [(2, 1, 2), (3, 50, 10), (7, 300, 100), (4, 2000, 100), (5, 20, 1)]


def draw(members, samples, classes, spread=3.0):
    rng = np.random.default_rng([members, samples, classes])
    return log_softmax(spread * rng.normal(size=(members, samples, classes)), axis=-1)


def impossible(logs, share, seed=0):
    """The same members, who rule some classes out."""
    rng = np.random.default_rng(seed)
    out = (rng.random(logs.shape) < share) & (logs < logs.max(-1, keepdims=True))
    with np.errstate(divide="ignore"):
        return log_softmax(np.where(out, -np.inf, logs), axis=-1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_disagreement_is_the_mean_over_all_pairs_and_the_matrix_holds_each(shape):
    logs = draw(*shape)
    found = disagreement_matrix(logs)
    choices = logs.argmax(-1)
    expected = [[np.mean(a != b) for b in choices] for a in choices]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    pairs = [np.mean(a != b) for a, b in combinations(choices, 2)]
    assert disagreement(logs) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_disagreement_of_a_class_is_that_of_its_samples():
    logs = draw(3, 200, 7)
    labels = np.arange(200) % 6  # no sample of the last class
    found = disagreement_by_class(logs, labels)
    for label in range(6):
        assert found[label] == pytest.approx(disagreement(logs[:, labels == label]))
    assert np.isnan(found[6])
    # With 100 images a class and 3 members it is a multiple of 1/300, as the paper's table shows.
    hundred = disagreement_by_class(draw(3, 200, 2), np.arange(200) % 2) * 300
    np.testing.assert_allclose(hundred, hundred.round(), atol=1e-9)


def test_members_that_are_the_same_do_not_differ():
    logs = np.repeat(draw(1, 400, 10), 3, axis=0)
    assert disagreement(logs) == 0
    np.testing.assert_allclose(kl_matrix(logs), 0, atol=1e-14)
    assert not kl_matrix(draw(3, 400, 10)).diagonal().any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_kl_is_that_of_torchmetrics_and_scipy(shape):
    logs = draw(*shape)
    found, probs = kl_matrix(logs), np.exp(logs)
    for i, j in permutations(range(shape[0]), 2):
        ours = torch.tensor(logs[i]), torch.tensor(logs[j])
        assert found[i, j] == pytest.approx(float(kl_divergence(*ours, log_prob=True)), abs=1e-9)
        expected = rel_entr(probs[i], probs[j]).sum(-1).mean()
        assert found[i, j] == pytest.approx(expected, abs=1e-9)


def test_kl_is_the_mean_over_ordered_pairs_or_over_those_in_order():
    logs = draw(4, 30, 5)
    matrix = kl_matrix(logs)
    both = [matrix[pair] for pair in permutations(range(4), 2)]
    assert kl(logs) == pytest.approx(np.mean(both), rel=1e-12)
    forward = [matrix[pair] for pair in combinations(range(4), 2)]
    assert kl(logs, ordered=False) == pytest.approx(np.mean(forward), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 30), st.integers(1, 8), st.randoms())
def test_the_order_of_members_samples_and_classes_does_not_matter(
    members, samples, classes, random
):
    logs = draw(members, samples, classes)
    order = [random.sample(range(size), size) for size in logs.shape]
    mixed = logs[np.ix_(*order)]
    assert disagreement(mixed) == pytest.approx(disagreement(logs), abs=1e-12)
    assert kl(mixed) == pytest.approx(kl(logs), abs=1e-10)
    assert kl(logs) >= 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_kl_is_infinite_just_where_a_class_is_ruled_out_and_never_nan(seed, share):
    logs = impossible(draw(3, 4, 3), share, seed)
    probs = np.exp(logs)
    expected = [[rel_entr(p, q).sum(-1).mean() for q in probs] for p in probs]
    np.testing.assert_allclose(kl_matrix(logs), expected, atol=1e-12)
    assert not np.isnan(kl(logs))


def test_a_probability_too_small_for_a_float_is_not_impossible():
    logs = np.array([[[0.0, -1000.0]], [[0.0, -np.inf]]])
    found = kl_matrix(logs)
    assert found[0, 1] == np.inf
    assert found[1, 0] == 0
    assert kl_matrix([[[0.0, -1000.0]], [[-1000.0, 0.0]]]) == pytest.approx(
        np.array([[0.0, 1000.0], [1000.0, 0.0]])
    )


@pytest.mark.parametrize("score", [disagreement, disagreement_matrix, kl, kl_matrix])
def test_one_member_has_no_pair(score):
    with pytest.raises(FreeTicketsError, match="at least 2 members"):
        score(draw(1, 3, 2))
    with pytest.raises(FreeTicketsError, match="must have the shape"):
        score(np.zeros((2, 0, 3)))
    with pytest.raises(FreeTicketsError, match="at least 2 members"):
        disagreement_by_class(draw(1, 2, 2), [0, 1])
    with pytest.raises(FreeTicketsError, match="labels must lie in 0 to 1"):
        disagreement_by_class(draw(2, 2, 2), [0, 2])


@pytest.mark.parametrize("shape", [(5, 4), (3, 8, 2), (2, 16, 5, 3)], ids=str)
def test_feature_kl_is_pytorchs_with_channels_as_classes(shape):
    rng = np.random.default_rng(0)
    a, b = 5 * rng.normal(size=(2, *shape))
    # KL(a || b), summed over channels and places and divided by the samples.
    expected = torch.nn.functional.kl_div(
        torch.tensor(b).log_softmax(1), torch.tensor(a).softmax(1), reduction="batchmean"
    )
    assert feature_kl(a, b) == pytest.approx(float(expected), rel=1e-12)
    places = int(np.prod(shape[2:]))
    assert feature_kl(a, b, "mean") == pytest.approx(float(expected) / places, rel=1e-12)
    assert feature_kl(a, a) == 0
    assert feature_kl(a, a + 1e6) == pytest.approx(0, abs=1e-9)


def test_feature_maps_that_do_not_fit_are_refused():
    a = np.zeros((2, 3, 4))
    with pytest.raises(FreeTicketsError, match=r"not \(2, 3, 4\) and \(2, 4, 4\)"):
        feature_kl(a, np.zeros((2, 4, 4)))
    with pytest.raises(FreeTicketsError, match="same shape"):
        feature_kl(a[:0], a[:0])
    with pytest.raises(FreeTicketsError, match="finite"):
        feature_kl(a, np.full_like(a, np.nan))
    with pytest.raises(FreeTicketsError, match="did you mean 'mean'"):
        feature_kl(a, a, "men")
