from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

from freetickets.metrics import ece

Array = Any


def by_hand(probs: Array, labels: Array, bins: int = 15) -> float:
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


def draw(seed: int, samples: int, classes: int, spread: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    probs = np.exp(spread * rng.normal(size=(samples, classes)))
    return probs / probs.sum(-1, keepdims=True), rng.integers(0, classes, samples)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 12), st.floats(0, 20),
    st.sampled_from([1, 2, 10, 15, 100]),
)  # fmt: skip
def test_it_is_the_definition(
    seed: int, samples: int, classes: int, spread: float, bins: int
) -> None:
    probs, labels = draw(seed, samples, classes, spread)
    log_probs = np.log(np.maximum(probs, 1e-300))
    expected = by_hand(np.exp(log_probs), labels, bins)
    assert ece(log_probs[None], labels, bins) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("classes", [2, 10])
def test_it_is_torchmetrics_where_no_confidence_lies_on_an_edge(classes: int) -> None:
    probs, labels = draw(1, 500, classes, 2.0)
    expected = multiclass_calibration_error(
        torch.tensor(probs), torch.tensor(labels), classes, n_bins=15, norm="l1"
    )
    assert ece(np.log(probs)[None], labels) == pytest.approx(float(expected), abs=1e-6)


def test_it_is_of_the_ensembles_mean_probabilities() -> None:
    a, labels = draw(1, 80, 4, 2.0)
    b, _ = draw(2, 80, 4, 2.0)
    members = np.log(np.stack([a, b]))
    assert ece(members, labels) == pytest.approx(by_hand((a + b) / 2, labels), abs=1e-12)


def test_always_right_and_certain_is_perfect_and_always_wrong_and_certain_the_worst() -> None:
    certain = np.array([[[0.0, -np.inf]] * 9])
    assert ece(certain, [0] * 9) == 0
    assert ece(certain, [1] * 9) == 1


def test_certain_and_almost_certain_samples_share_the_last_bin() -> None:
    # torchmetrics 1.9 gives confidence 1 a bin of its own: 0.525, the sum of both gaps.
    with np.errstate(divide="ignore"):
        found = ece(np.log([[[1.0, 0.0], [0.95, 0.05]]]), [1, 0])
    assert found == pytest.approx(abs(0.5 - 0.975))


@pytest.mark.parametrize("fifteenths", range(8, 16))
def test_a_confidence_on_an_edge_falls_below_it(fifteenths: int) -> None:
    """With one sample just above the edge, the two gaps add up instead of cancelling."""
    edge = fifteenths / 15
    above = min(1.0, edge + 1 / 30)
    below = edge - 1 / 30
    probs = np.array([[p, 1 - p] for p in (edge * (1 - 1e-12), below, above)])
    labels = [0, 1, 0]
    with np.errstate(divide="ignore"):
        found = ece(np.log(probs)[None], labels)
    lower = abs(1 - (probs[0, 0] + below))
    upper = 1 - above
    expected = (lower + upper) / 3 if fifteenths < 15 else abs(2 - probs[:, 0].sum()) / 3
    assert found == pytest.approx(expected, abs=1e-9)


def test_the_least_confident_prediction_is_counted() -> None:
    classes = 100
    uniform = np.full((1, 3, classes), -np.log(classes))
    assert ece(uniform, [0, 0, 0]) == pytest.approx(1 - 1 / classes)
    assert ece(uniform, [5, 6, 7]) == pytest.approx(1 / classes)


def test_a_confidence_of_exactly_an_edge_belongs_to_the_bin_below() -> None:
    logs = np.log([[[0.5, 0.5], [0.6, 0.4]]])
    assert ece(logs, [0, 1], bins=2) == pytest.approx((0.5 + 0.6) / 2)
    assert ece(logs, [0, 1], bins=1) == pytest.approx(abs(1 - 0.5 - 0.6) / 2)


def test_a_confidence_of_zero_falls_into_the_first_bin() -> None:
    # No network gives 0, and yet no sample is lost: it shares the bin of a small confidence.
    logs = np.full((1, 2, 100), -np.inf)
    logs[0, 1] = np.log(0.01)
    assert ece(logs, [0, 1]) == pytest.approx(abs(1 - 0.01) / 2)


def test_one_bin_is_the_gap_between_accuracy_and_mean_confidence() -> None:
    probs, labels = draw(3, 50, 3, 1.0)
    gap = abs((probs.argmax(-1) == labels).mean() - probs.max(-1).mean())
    assert ece(np.log(probs)[None], labels, bins=1) == pytest.approx(gap)
