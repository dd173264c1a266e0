from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc_curve

from freetickets.errors import FreeTicketsError
from freetickets.metrics import aupr, auroc, fpr95, roc_curve

Array = Any

# Few different values, so that there are many ties; and many.
scores = st.one_of(
    st.lists(st.integers(0, 4).map(float), min_size=1, max_size=40),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40),
)


def together(inside: Array, outside: Array) -> tuple[Array, Array]:
    """As scikit-learn takes them: whether a sample is from outside, and its score."""
    return np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside])


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_areas_are_those_of_scikit_learn(inside: list[float], outside: list[float]) -> None:
    pair = together(inside, outside)
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(*pair), abs=1e-12)
    assert aupr(inside, outside) == pytest.approx(average_precision_score(*pair), abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_auroc_counts_pairs(inside: list[float], outside: list[float]) -> None:
    wins = [(y > x) + (y == x) / 2 for x in inside for y in outside]
    assert auroc(inside, outside) == pytest.approx(np.mean(wins), abs=1e-12)
    # Swapped sides and swapped signs are the same question.
    assert auroc(inside, outside) == pytest.approx(auroc(np.negative(outside), np.negative(inside)))


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_fpr95_is_the_least_over_all_thresholds(inside: list[float], outside: list[float]) -> None:
    found = [
        np.mean(np.array(inside) >= threshold)
        for threshold in [*inside, *outside]
        if 100 * np.sum(np.array(outside) >= threshold) >= 95 * len(outside)
    ]
    assert fpr95(inside, outside) == pytest.approx(min(found))


@pytest.mark.parametrize("outside", [1, 19, 20, 21, 40, 100, 10_000, 26_032])
def test_95_percent_is_counted_in_whole_samples(outside: int) -> None:
    found = np.arange(outside, dtype=float)
    missed = outside * 5 // 100
    # The threshold is the sample after those that may be missed.
    assert fpr95([missed - 0.5], found) == 0
    assert fpr95([missed], found) == 1


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_the_curve_is_that_of_scikit_learn_without_points_on_lines(
    inside: list[float], outside: list[float]
) -> None:
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


def test_auroc_is_the_statistic_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=3000).round(1), rng.normal(1, 2, size=5000).round(1)
    expected = mannwhitneyu(outside, inside).statistic / (3000 * 5000)
    assert auroc(inside, outside) == pytest.approx(expected, abs=1e-12)


def test_equal_scores_tell_nothing() -> None:
    inside, outside = [0.5] * 30, [0.5] * 10
    assert auroc(inside, outside) == 0.5
    assert aupr(inside, outside) == 0.25
    assert fpr95(inside, outside) == 1
    assert roc_curve(inside, outside).false_positive.tolist() == [0, 1]


def test_one_sample_of_each_kind_is_enough() -> None:
    assert [auroc([x], [1.0]) for x in (0.0, 1.0, 2.0)] == [1, 0.5, 0]
    assert [aupr([x], [1.0]) for x in (0.0, 1.0, 2.0)] == [1, 0.5, 0.5]
    assert [fpr95([x], [1.0]) for x in (0.0, 1.0, 2.0)] == [0, 1, 1]


def test_perfect_separation_is_perfect() -> None:
    inside, outside = np.linspace(0, 1, 50), np.linspace(1.1, 2, 80)
    assert (auroc(inside, outside), aupr(inside, outside), fpr95(inside, outside)) == (1, 1, 0)
    assert auroc(outside, inside) == 0


@pytest.mark.parametrize("score", [auroc, aupr, fpr95, roc_curve])
def test_what_is_no_score_is_refused(score: Callable[..., Any]) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(FreeTicketsError, match="of samples inside must be finite"):
            score([0.0, bad], [1.0])
        with pytest.raises(FreeTicketsError, match="of samples outside must be finite"):
            score([0.0], [1.0, bad])
    with pytest.raises(FreeTicketsError, match=r"of samples outside must be a list .* not \(0,\)"):
        score([0.0], [])
    with pytest.raises(FreeTicketsError, match="of samples inside must be a list"):
        score([[0.0]], [1.0])
