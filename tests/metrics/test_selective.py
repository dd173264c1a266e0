from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from freetickets.errors import FreeTicketsError
from freetickets.metrics import NOVELTY_SCORES, accuracy, novelty, risk_coverage


@pytest.mark.parametrize("score", NOVELTY_SCORES)
def test_risk_is_the_error_of_the_most_certain(score: str) -> None:
    rng = np.random.default_rng(0)
    logs = log_softmax(2 * rng.normal(size=(3, 60, 4)), axis=-1)
    labels = rng.integers(0, 4, 60)
    found = risk_coverage(logs, labels, score)
    order = np.argsort(novelty(logs, score))
    for k in range(1, 61):
        kept = order[:k]
        assert found.coverage[k - 1] == pytest.approx(k / 60)
        assert found.risk[k - 1] == pytest.approx(1 - accuracy(logs[:, kept], labels[kept]))
    assert found.area == pytest.approx(np.mean(found.risk))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(5, 7), st.booleans()), min_size=1, max_size=5))
def test_ties_count_as_the_mean_over_all_orders(samples: list[tuple[int, bool]]) -> None:
    logs = np.log([[[top / 10, 1 - top / 10] for top, _ in samples]])
    wrong = [right != (top >= 5) for top, right in samples]
    labels = [int(not right) for _, right in samples]
    curves = []
    for order in permutations(range(len(samples))):
        kept = sorted(order, key=lambda place: -samples[place][0])  # stable: ties as they come
        errors = np.cumsum([wrong[place] for place in kept])
        curves.append(errors / np.arange(1, len(samples) + 1))
    found = risk_coverage(logs, labels)
    np.testing.assert_allclose(found.risk, np.mean(curves, axis=0), atol=1e-12)


def test_the_last_risk_is_the_error() -> None:
    logs = np.log([[[0.9, 0.1], [0.6, 0.4], [0.6, 0.4]]])
    assert risk_coverage(logs, [0, 1, 0]).risk[-1] == pytest.approx(1 - accuracy(logs, [0, 1, 0]))


def test_always_right_risks_nothing() -> None:
    assert risk_coverage(np.log([[[0.9, 0.1], [0.6, 0.4]]]), [0, 0]).area == 0


def test_an_unknown_score_is_refused() -> None:
    with pytest.raises(FreeTicketsError, match="unknown novelty score 'margin'"):
        risk_coverage(np.log([[[0.9, 0.1]]]), [0], "margin")
