from functools import partial

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax

from freetickets.metrics import (
    accuracy,
    bootstrap,
    brier,
    disagreement,
    ece,
    mcnemar,
    nll,
    paired_difference,
    pearson,
    spearman,
)

from . import drawn


def draw(samples):
    """Two members whose logits lean to the truth."""
    return drawn.draw(2, samples, 3, 1.0, skill=1.0)


@pytest.mark.parametrize("metric", [accuracy, nll, brier, ece])
def test_the_fast_way_is_the_metric_on_the_same_draws(metric):
    logs, labels = draw(60)
    fast = bootstrap(metric, logs, labels, repeats=50, seed=3)
    slow = bootstrap(lambda *drawn: metric(*drawn), logs, labels, repeats=50, seed=3)
    assert fast.value == pytest.approx(metric(logs, labels), abs=1e-12)
    assert (fast.low, fast.high) == pytest.approx((slow.low, slow.high), abs=1e-12)
    assert fast.low <= fast.value <= fast.high


def test_the_interval_is_that_of_scipy_for_any_metric_level_and_seed():
    logs, labels = draw(400)
    found = bootstrap(accuracy, logs, labels, repeats=4000)
    right = np.exp(logs).mean(0).argmax(-1) == labels
    expected = stats.bootstrap(
        (right.astype(float),), np.mean, n_resamples=4000, method="percentile", rng=1
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.006)
    logs, labels = draw(50)
    found = bootstrap(lambda drawn, _: disagreement(drawn), logs, labels, repeats=40)
    assert found.low < found.value == disagreement(logs) < found.high
    coarse = bootstrap(partial(ece, bins=3), logs, labels, repeats=40)
    assert coarse.value == pytest.approx(ece(logs, labels, bins=3))
    logs, labels = draw(80)
    wide, narrow = (bootstrap(nll, logs, labels, 200, level) for level in (0.99, 0.5))
    assert wide.low < narrow.low < narrow.high < wide.high
    assert bootstrap(nll, logs, labels, 200) == bootstrap(nll, logs, labels, 200)
    assert bootstrap(nll, logs, labels, 200) != bootstrap(nll, logs, labels, 200, seed=1)


def test_pairs_are_resampled_together_and_what_is_the_same_does_not_differ():
    logs, labels = draw(300)
    better = logs.copy()
    better[:, ::10] = log_softmax(10 * np.eye(3)[labels[::10]], axis=-1)
    found = paired_difference(nll, better, logs, labels)
    assert found.value == pytest.approx(nll(better, labels) - nll(logs, labels))
    assert found.low < found.value < found.high < 0
    assert found.p == pytest.approx(2 / 1001)
    alone = bootstrap(nll, logs, labels)
    assert found.high - found.low < alone.high - alone.low
    turned = paired_difference(nll, logs, better, labels)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert turned.p == found.p
    logs, labels = draw(50)
    found = paired_difference(ece, logs, logs[::-1], labels, repeats=100)
    assert (found.value, found.low, found.high) == pytest.approx((0, 0, 0), abs=1e-12)
    assert paired_difference(ece, logs, logs, labels, repeats=100).p == 1
    found = paired_difference(brier, logs, logs[:1], labels, repeats=100)
    assert found.value == pytest.approx(brier(logs, labels) - brier(logs[:1], labels))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 5), st.integers(1, 5))
@example(4000, 3800, 0, 0)
def test_mcnemar_is_the_binomial_test(only_a, only_b, both, none):
    right, wrong = [0.9, 0.1], [0.2, 0.8]
    a = np.log([[right] * (only_a + both) + [wrong] * (only_b + none)])
    b = np.log([[wrong] * only_a + [right] * (both + only_b) + [wrong] * none])
    coins = only_a + only_b
    expected = stats.binomtest(only_a, coins).pvalue if coins else 1.0
    assert mcnemar(a, b, np.zeros(a.shape[1], int)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("compare", [bootstrap, partial(paired_difference, b=draw(5)[0])])
def test_what_can_not_be_drawn_is_refused(refused, compare):
    logs, labels = draw(5)
    for options, message in (
        ({"repeats": 0}, "repeats must be at least 1, not 0"),
        ({"level": 1.0}, "level must lie between 0 and 1, not 1.0"),
        ({"level": 0.0}, "level must lie between 0 and 1"),
    ):
        refused(message, compare, accuracy, logs, labels=labels, **options)


@pytest.mark.parametrize("compare", [mcnemar, partial(paired_difference, accuracy)])
def test_predictions_of_different_samples_are_refused(refused, compare):
    logs, labels = draw(5)
    refused("4 predictions need 4 labels", compare, logs, logs[:, :4], labels)


def test_infinite_scores_have_an_interval_but_no_difference(refused):
    logs, labels = draw(40)
    ruled_out = logs.copy()
    ruled_out[:, :4, :] = np.where(np.arange(3) == labels[:4, None], -np.inf, logs[:, :4])
    ruled_out = log_softmax(ruled_out, axis=-1)
    found = bootstrap(nll, ruled_out, labels, repeats=200)
    assert found.value == found.high == np.inf
    assert not np.isnan(found.low)
    refused("infinite on both sides", paired_difference, nll, ruled_out, ruled_out, labels, 200)
    assert paired_difference(nll, ruled_out, logs, labels, repeats=200).value == np.inf


pairs = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30)


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_correlations_are_those_of_scipy_with_ties(points):
    x, y = np.array(points).T
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1.0, 1e300])
def test_neither_scale_nor_place_matters(scale):
    x = np.array([0.1, 0.5, 0.2, 0.9])
    for score in (pearson, spearman):
        assert score(x, scale * x) == pytest.approx(1, abs=1e-12)
        assert score(x, -scale * x) == pytest.approx(-1, abs=1e-12)
    assert pearson(x, x + 100) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("score", [pearson, spearman])
def test_what_has_no_correlation_is_refused(refused, score):
    for x, y, message in (
        ([1, 2], [1, 2, 3], r"same length, at least 2, not \(2,\) and \(3,\)"),
        ([1], [1], "at least 2"),
        ([[1, 2]], [[1, 2]], "same length"),
        ([1, 2], [3, 3], "not all the same"),
        ([1, np.nan], [1, 2], "finite"),
        ([1, 2], [1, np.inf], "finite"),
    ):
        refused(message, score, x, y)
