import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets.metrics import adaptive_ece, classwise_ece, ece, reliability

from .drawn import draw

NEVER = -np.inf
ABOVE_ONE = [[1e-6, -20.0], [np.log(0.95), np.log(0.05)]]
shapes = (st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 12), st.floats(0, 20))


def bins_by_hand(confidence, right, bins):
    """Size, mean confidence and share of right ones of each bin (a, b], with 0 in the first."""
    for number in range(bins):
        low = number / bins if number else -1
        inside = [k for k, c in enumerate(confidence) if low < c <= (number + 1) / bins]
        means = (np.mean([values[k] for k in inside]) for values in (confidence, right))
        yield len(inside), *(means if inside else (np.nan, np.nan))


def gap(confidence, right, bins):
    found = bins_by_hand(confidence, right, bins)
    return sum(count * abs(c - r) for count, c, r in found if count) / len(right)


@settings(max_examples=60, deadline=None)
@given(*shapes, st.sampled_from([1, 2, 10, 15, 100]))
def test_it_is_the_definition_and_what_reliability_is_made_of(seed, samples, classes, spread, bins):
    logs, labels = draw(2, samples, classes, spread, seed=seed)
    mean = np.exp(logs).mean(axis=0)
    sure, right = mean.max(-1), mean.argmax(-1) == labels
    expected = gap(np.minimum(sure, 1), right, bins)
    assert ece(logs, labels, bins) == pytest.approx(expected, abs=1e-9)
    found = reliability(logs, labels, bins)
    assert found.ece == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(found.edges, np.arange(bins + 1) / bins)
    columns = zip(*bins_by_hand(np.minimum(sure, 1), right, bins), strict=True)
    for mine, theirs in zip(columns, (found.count, found.confidence, found.accuracy), strict=True):
        np.testing.assert_allclose(theirs, mine, atol=1e-9)
    total = sum(
        gap(np.minimum(mean[:, label], 1), labels == label, bins) for label in range(classes)
    )
    assert classwise_ece(logs, labels, bins) == pytest.approx(total / classes, abs=1e-9)


def test_what_is_known_beforehand():
    for score, logs, labels, bins, expected in (
        (ece, [[0.0, NEVER]] * 9, [0] * 9, 15, 0),
        (ece, [[0.0, NEVER]] * 9, [1] * 9, 15, 1),
        # Certain and almost certain share the last bin; torchmetrics 1.9 gives 1 one of its own.
        (ece, [[0.0, NEVER], np.log([0.95, 0.05])], [1, 0], 15, abs(0.5 - 0.975)),
        # A confidence of exactly an edge belongs to the bin below.
        (ece, np.log([[0.5, 0.5], [0.6, 0.4]]), [0, 1], 2, (0.5 + 0.6) / 2),
        (ece, np.log([[0.5, 0.5], [0.6, 0.4]]), [0, 1], 1, abs(1 - 0.5 - 0.6) / 2),
        # What rounding put above 1 is in the last bin; as the authors count, it is dropped but
        # divided by.
        (ece, ABOVE_ONE, [1, 0], 15, abs(1 - np.exp(1e-6) - 0.95) / 2),
        (ece, ABOVE_ONE, [1, 0], "freetickets", 0.05 / 2),
        (ece, ABOVE_ONE[:1], [1], "freetickets", 0),
        (adaptive_ece, np.log([[0.8, 0.2]] * 10), [0] * 5 + [1] * 5, 15, 0.3),
        (adaptive_ece, np.log([[0.8, 0.2]] * 10), [1] * 5 + [0] * 5, 15, 0.3),
        (classwise_ece, [[0.0, NEVER, NEVER], [NEVER, NEVER, 0.0]], [0, 2], 15, 0),
        (classwise_ece, [[0.0, NEVER, NEVER], [NEVER, NEVER, 0.0]], [1, 1], 15, 2 / 3),
    ):
        assert score([logs], labels, bins) == pytest.approx(expected)
    # A sample that is in no bin is not in the diagram.
    assert reliability([ABOVE_ONE], [1, 0], "freetickets").count.sum() == 1


@pytest.mark.parametrize("samples", [1, 30, 1000])
@pytest.mark.parametrize("bins", ["freetickets", "tf"])
def test_named_bins_are_those_of_the_code_that_they_are_named_after(samples, bins):
    logs, labels = draw(1, samples, 4, 2.0)
    probs = np.exp(logs[0])
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


@pytest.mark.parametrize(("samples", "bins"), [(300, 15), (100, 7), (5, 15), (1, 1), (40, 1)])
def test_adaptive_bins_hold_equally_many_samples(samples, bins):
    logs, labels = draw(1, samples, 5, 2.0)
    probs = np.exp(logs[0])
    gaps = ((probs.argmax(-1) == labels) - probs.max(-1))[np.argsort(probs.max(-1))]
    cuts = [-(-place * samples // bins) for place in range(bins + 1)]
    expected = sum(abs(gaps[a:b].sum()) for a, b in itertools.pairwise(cuts)) / samples
    assert adaptive_ece(logs, labels, bins) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("score", [ece, adaptive_ece, classwise_ece, reliability])
def test_bins_that_there_can_not_be_are_refused(refused, score):
    logs = np.log([[[0.8, 0.2]]])
    for bins in (0, -3, 1.5, None):
        refused("bins must be a whole number, at least 1", score, logs, [0], bins=bins)
    named = score in (ece, reliability)
    reason = "did you mean 'freetickets'" if named else "bins must be a whole number"
    refused(reason, score, logs, [0], bins="freeticket")
