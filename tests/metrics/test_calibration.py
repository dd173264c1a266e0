import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from freetickets.errors import FreeTicketsError
from freetickets.metrics import adaptive_ece, classwise_ece, ece, reliability

Array = Any


def by_hand(probs, labels, bins=15):
    """The definition in loops: bins (a, b], and 0 in the first."""
    total = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [
            (max(row), int(np.argmax(row) == label))
            for row, label in zip(probs, labels, strict=True)
            if low < max(row) <= high or (number == 0 and max(row) == 0)
        ]
        if inside:
            confidence = sum(c for c, _ in inside) / len(inside)
            right = sum(r for _, r in inside) / len(inside)
            total += len(inside) / len(labels) * abs(right - confidence)
    return total


def draw(seed, samples, classes, spread):
    rng = np.random.default_rng(seed)
    probs = np.exp(spread * rng.normal(size=(samples, classes)))
    return probs / probs.sum(-1, keepdims=True), rng.integers(0, classes, samples)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 12), st.floats(0, 20),
    st.sampled_from([1, 2, 10, 15, 100]),
)  # fmt: skip
def test_it_is_the_definition(seed, samples, classes, spread, bins):
    probs, labels = draw(seed, samples, classes, spread)
    log_probs = np.log(np.maximum(probs, 1e-300))
    expected = by_hand(np.exp(log_probs), labels, bins)
    assert ece(log_probs[None], labels, bins) == pytest.approx(expected, abs=1e-9)


def test_it_is_of_the_ensembles_mean_probabilities():
    a, labels = draw(1, 80, 4, 2.0)
    b, _ = draw(2, 80, 4, 2.0)
    members = np.log(np.stack([a, b]))
    assert ece(members, labels) == pytest.approx(by_hand((a + b) / 2, labels), abs=1e-12)


def test_always_right_and_certain_is_perfect_and_always_wrong_and_certain_the_worst():
    certain = np.array([[[0.0, -np.inf]] * 9])
    assert ece(certain, [0] * 9) == 0
    assert ece(certain, [1] * 9) == 1


def test_certain_and_almost_certain_samples_share_the_last_bin():
    # torchmetrics 1.9 gives confidence 1 a bin of its own: 0.525, the sum of both gaps.
    with np.errstate(divide="ignore"):
        found = ece(np.log([[[1.0, 0.0], [0.95, 0.05]]]), [1, 0])
    assert found == pytest.approx(abs(0.5 - 0.975))


def test_a_confidence_of_exactly_an_edge_belongs_to_the_bin_below():
    logs = np.log([[[0.5, 0.5], [0.6, 0.4]]])
    assert ece(logs, [0, 1], bins=2) == pytest.approx((0.5 + 0.6) / 2)
    assert ece(logs, [0, 1], bins=1) == pytest.approx(abs(1 - 0.5 - 0.6) / 2)


def test_what_rounding_put_above_1_is_in_the_last_bin():
    logs = np.array([[[1e-6, -20.0], [np.log(0.95), np.log(0.05)]]])
    assert np.exp(logs.max()) > 1
    assert ece(logs, [1, 0]) == pytest.approx(abs(1 - np.exp(1e-6) - 0.95) / 2)


@pytest.mark.parametrize("samples", [1, 30, 1000])
@pytest.mark.parametrize("bins", ["freetickets", "tf"])
def test_named_bins_are_those_of_the_code_that_they_are_named_after(samples, bins):
    probs, labels = draw(5, samples, 4, 2.0)
    probs[::7] = [1.0, 0.0, 0.0, 0.0]
    probs[::11] = [0.6, 0.4, 0.0, 0.0]  # an edge of 15 bins
    probs[::13] = [0.5, 0.5, 0.0, 0.0]  # an edge of 14 bins
    with np.errstate(divide="ignore"):
        logs = np.log(probs)[None]
    confidence, correct = np.exp(logs[0]).max(-1), probs.argmax(-1) == labels
    if bins == "tf":
        which = np.minimum(np.floor(15 * confidence), 14).astype(int) + 1
    else:
        which = np.digitize(confidence, np.linspace(0, 1, num=15), right=True)
    gaps = [abs((correct - confidence)[which == place].sum()) for place in range(1, 16)]
    assert ece(logs, labels, bins) == pytest.approx(sum(gaps) / samples, abs=1e-12)


def test_as_the_authors_count_what_is_above_1_is_dropped_but_divided_by():
    logs = np.array([[[1e-6, -20.0], [np.log(0.95), np.log(0.05)]]])
    assert ece(logs, [1, 0], "freetickets") == pytest.approx(0.05 / 2)
    assert reliability(logs, [1, 0], "freetickets").count.sum() == 1
    assert ece(logs[:, :1], [1], "freetickets") == 0


@pytest.mark.parametrize("fifteenths", range(1, 15))
def test_the_conventions_differ_on_an_edge_only(fifteenths):
    """At exactly k/15 the default looks down and "tf" looks up."""
    edge = np.linspace(0, 1, 16)[fifteenths]
    logs = np.full((1, 1, 30), np.log((1 - edge) / 29))
    logs[0, 0, 0] = np.log(edge)
    if np.exp(logs[0, 0, 0]) != edge:
        logs[0, 0, 0] = np.nextafter(logs[0, 0, 0], 0 if np.exp(logs[0, 0, 0]) < edge else -50)
    at = float(np.exp(logs[0, 0, 0]))
    below, tf = reliability(logs, [0]).count, reliability(logs, [0], "tf").count
    assert below.argmax() == (fifteenths - 1 if at <= edge else fifteenths)
    assert tf.argmax() == (fifteenths if at >= edge else fifteenths - 1)


def test_torchmetrics_bins_are_those_of_tensorflow_below_certainty():
    probs, labels = draw(2, 400, 6, 1.5)
    edges = np.linspace(0, 1, 16)
    at = np.repeat(edges[5:15], 15)[:, None]
    probs[:150] = np.where(np.arange(6) == 0, at, (1 - at) / 5)
    logs = np.log(probs)
    probs = np.exp(logs)  # the same numbers on both sides, wherever rounding puts them
    expected = multiclass_calibration_error(
        torch.tensor(probs), torch.tensor(labels), 6, n_bins=15, norm="l1"
    )
    assert ece(logs[None], labels, "tf") == pytest.approx(float(expected), abs=1e-6)


def test_reliability_is_what_ece_is_made_of():
    probs, labels = draw(4, 300, 3, 2.0)
    logs = np.log(probs)[None]
    found = reliability(logs, labels, bins=10)
    np.testing.assert_allclose(found.edges, np.arange(11) / 10)
    assert found.count.sum() == 300
    assert found.ece == pytest.approx(ece(logs, labels, bins=10), abs=1e-12)
    confidence, correct = probs.max(-1), probs.argmax(-1) == labels
    for place in range(10):
        inside = (confidence > place / 10) & (confidence <= (place + 1) / 10)
        assert found.count[place] == inside.sum()
        if inside.any():
            assert found.confidence[place] == pytest.approx(confidence[inside].mean())
            assert found.accuracy[place] == pytest.approx(correct[inside].mean())
        else:
            assert np.isnan(found.confidence[place])
            assert np.isnan(found.accuracy[place])


@pytest.mark.parametrize(("samples", "bins"), [(300, 15), (100, 7), (5, 15), (1, 1), (40, 1)])
def test_adaptive_bins_hold_equally_many_samples(samples, bins):
    probs, labels = draw(samples, samples, 5, 2.0)
    order = np.argsort(probs.max(-1))
    gaps = (probs.argmax(-1) == labels) - probs.max(-1)
    cuts = [-(-place * samples // bins) for place in range(bins + 1)]
    sizes = np.diff(cuts)
    assert sizes.max() - sizes.min() <= 1
    expected = sum(abs(gaps[order[a:b]].sum()) for a, b in itertools.pairwise(cuts)) / samples
    found = adaptive_ece(np.log(probs)[None], labels, bins)
    assert found == pytest.approx(expected, abs=1e-12)


def test_adaptive_ece_of_equal_confidences_is_one_gap_in_any_order():
    logs = np.log([[[0.8, 0.2]] * 10])
    labels = np.array([0] * 5 + [1] * 5)
    for order in (slice(None), slice(None, None, -1)):
        assert adaptive_ece(logs, labels[order]) == pytest.approx(0.3)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6), st.floats(0, 20),
    st.sampled_from([1, 3, 15]),
)  # fmt: skip
def test_classwise_ece_is_the_mean_of_each_classs_own(seed, samples, classes, spread, bins):
    probs, labels = draw(seed, samples, classes, spread)
    logs = np.log(np.maximum(probs, 1e-300))
    probs = np.exp(logs)
    edges = np.linspace(0, 1, bins + 1)
    total = 0.0
    for label in range(classes):
        which = np.clip(np.digitize(probs[:, label], edges, right=True) - 1, 0, bins - 1)
        for place in range(bins):
            inside = which == place
            if inside.any():
                gap = (labels[inside] == label).mean() - probs[inside, label].mean()
                total += inside.mean() * abs(gap)
    assert classwise_ece(logs[None], labels, bins) == pytest.approx(total / classes, abs=1e-9)


def test_classwise_ece_of_certain_and_right_is_0():
    certain = np.array([[[0.0, -np.inf, -np.inf], [-np.inf, -np.inf, 0.0]]])
    assert classwise_ece(certain, [0, 2]) == 0
    assert classwise_ece(certain, [1, 1]) == pytest.approx((0.5 + 1 + 0.5) / 3)


@pytest.mark.parametrize("score", [ece, adaptive_ece, classwise_ece, reliability])
def test_bins_that_there_can_not_be_are_refused(score):
    logs = np.log([[[0.8, 0.2]]])
    for bins in (0, -3, 1.5, None):
        with pytest.raises(FreeTicketsError, match="bins must be a whole number, at least 1"):
            score(logs, [0], bins=bins)
    named = score in (ece, reliability)
    reason = "did you mean 'freetickets'" if named else "bins must be a whole number"
    with pytest.raises(FreeTicketsError, match=reason):
        score(logs, [0], bins="freeticket")
