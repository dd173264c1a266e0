from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from freetickets.errors import FreeTicketsError
from freetickets.metrics import pearson, spearman

pairs = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30)


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_they_are_those_of_scipy_with_ties(points: list[tuple[int, int]]) -> None:
    x, y = np.array(points).T
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_they_are_those_of_scipy_without_ties() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 100))
    assert pearson(x, y + x) == pytest.approx(stats.pearsonr(x, y + x).statistic, abs=1e-12)
    assert spearman(x, y + x) == pytest.approx(stats.spearmanr(x, y + x).statistic, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1.0, 1e300])
def test_neither_scale_nor_place_matters(scale: float) -> None:
    x = np.array([0.1, 0.5, 0.2, 0.9])
    for score in (pearson, spearman):
        assert score(x, scale * x) == pytest.approx(1, abs=1e-12)
        assert score(x, -scale * x) == pytest.approx(-1, abs=1e-12)
    assert pearson(x, x + 100) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("score", [pearson, spearman])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2, 3], r"same length, at least 2, not \(2,\) and \(3,\)"),
        ([1], [1], "at least 2"),
        ([[1, 2]], [[1, 2]], "same length"),
        ([1, 2], [3, 3], "not all the same"),
        ([1, np.nan], [1, 2], "finite"),
        ([1, 2], [1, np.inf], "finite"),
    ],
)
def test_what_has_no_correlation_is_refused(
    score: Callable[..., float], x: Any, y: Any, message: str
) -> None:
    with pytest.raises(FreeTicketsError, match=message):
        score(x, y)
