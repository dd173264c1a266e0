from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import entropy

from freetickets.errors import FreeTicketsError
from freetickets.metrics import NOVELTY_SCORES, novelty
from freetickets.metrics.uncertainty import Uncertainty


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 9), st.floats(0, 50))
def test_scores_are_their_definitions(seed: int, members: int, classes: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    logs = log_softmax(spread * rng.normal(size=(members, 20, classes)), axis=-1)
    probs = np.exp(logs)
    mean = probs.mean(0)
    total, own = entropy(mean, axis=-1), entropy(probs, axis=-1).mean(0)
    close = {"atol": 1e-9, "rtol": 0}
    np.testing.assert_allclose(novelty(logs), 1 - mean.max(-1), **close)
    np.testing.assert_allclose(novelty(logs, "entropy"), total, **close)
    np.testing.assert_allclose(novelty(logs, "mutual_information"), total - own, **close)


def test_they_are_those_of_the_ensembles_own_uncertainty() -> None:
    rng = np.random.default_rng(0)
    logs = log_softmax(3 * rng.normal(size=(3, 1000, 100)), axis=-1)
    expected = Uncertainty.of(logs)
    np.testing.assert_allclose(novelty(logs, "entropy"), expected.total, atol=1e-12)
    np.testing.assert_allclose(novelty(logs, "mutual_information"), expected.epistemic, atol=1e-12)


def test_classes_that_are_ruled_out_count_nothing() -> None:
    logs = np.array([[[0.0, -np.inf, -np.inf]], [[-np.inf, 0.0, -np.inf]]])
    assert novelty(logs).tolist() == [0.5]
    assert novelty(logs, "entropy") == pytest.approx(np.log(2))
    assert novelty(logs, "mutual_information") == pytest.approx(np.log(2))
    assert [novelty(logs[:1], score).tolist() for score in NOVELTY_SCORES] == [[0.0]] * 3


def test_nothing_is_below_zero_however_it_is_rounded() -> None:
    logs = np.full((3, 4, 2), [1e-7, -16.0], dtype=np.float32)
    assert (novelty(logs, "entropy") >= 0).all()
    assert (novelty(logs, "mutual_information") >= 0).all()


def test_one_member_has_no_mutual_information() -> None:
    logs = log_softmax(np.random.default_rng(0).normal(size=(1, 30, 5)), axis=-1)
    np.testing.assert_allclose(novelty(logs, "mutual_information"), 0, atol=1e-15)


def test_what_is_no_score_or_no_prediction_is_refused() -> None:
    with pytest.raises(FreeTicketsError, match="did you mean 'entropy'"):
        novelty(np.zeros((1, 1, 1)), "entrpy")
    with pytest.raises(FreeTicketsError, match="must have the shape"):
        novelty(np.zeros((3, 2)))
    with pytest.raises(FreeTicketsError, match="must be log-probabilities"):
        novelty(np.full((1, 3, 2), np.nan))
