"""How certain a score is, by resampling; and how two quantities go together."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from .arrays import Array, Labels, check_predictions, top_class
from .score import MAIN_SCORES, MORE_SCORES, Drawn, Score

# Any function of log-probabilities (M, N, C) and labels (N,), or the entry of a score.
Metric = Callable[[Array, Labels], float] | Score


@dataclass(frozen=True)
class Interval:
    """A score, and the range it lies in when the samples are drawn again."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """The score of one ensemble minus that of another on the same samples.

    `p` is how likely a difference at least this far from 0 is if there is none (two-sided).
    """

    p: float


def bootstrap(
    metric: Metric, log_probs: npt.ArrayLike, labels: npt.ArrayLike, repeats: int = 1000,
    level: float = 0.95, seed: int = 0,
) -> Interval:  # fmt: skip
    """A score, with the interval that holds a share `level` of `repeats` draws of the samples.

    `accuracy`, `nll`, `brier` and `ece` are computed from one number per sample, so they take a
    fraction of a second. Any other function of log-probabilities and labels, or `Score`, is called
    on `repeats` copies of the predictions: if it scores only the ensemble, pass
    `ensemble_log_probs(log_probs)[None]`, which is smaller.

    Example:
        >>> from freetickets.metrics import accuracy
        >>> logs = np.log([[[0.9, 0.1]] * 100])
        >>> bootstrap(accuracy, logs, [0] * 80 + [1] * 20)
        Interval(value=0.8, low=0.72, high=0.88)
    """
    logs, truth = check_predictions(log_probs, labels)
    score = _scorer(metric, logs, truth)
    draws = _draw(score, len(truth), repeats, level, seed)
    return Interval(score(np.arange(len(truth))), *_percentiles(draws, level))


def paired_difference(
    metric: Metric, a: npt.ArrayLike, b: npt.ArrayLike, labels: npt.ArrayLike, repeats: int = 1000,
    level: float = 0.95, seed: int = 0,
) -> Difference:  # fmt: skip
    """The score of `a` minus that of `b`, both on the same resampled samples.

    What is hard for both then cancels out, so small differences show. `p` counts the draws on the
    other side of 0 (and is at least 2 / (repeats + 1)).

    Example:
        >>> right, mixed = np.log([[[0.9, 0.1]] * 9]), np.log([[[0.9, 0.1]] * 6 + [[0.1, 0.9]] * 3])
        >>> found = paired_difference(MAIN_SCORES[0], right, mixed, [0] * 9)
        >>> round(found.value, 3), round(found.p, 2)
        (0.333, 0.06)
    """
    logs_a, truth = check_predictions(a, labels)
    logs_b, _ = check_predictions(b, labels)
    score_a, score_b = _scorer(metric, logs_a, truth), _scorer(metric, logs_b, truth)

    def difference(drawn: Labels) -> float:
        return score_a(drawn) - score_b(drawn)

    value = difference(np.arange(len(truth)))
    draws = _draw(difference, len(truth), repeats, level, seed)
    if math.isnan(value) or np.isnan(draws).any():
        raise FreeTicketsError("scores that are infinite on both sides have no difference")
    rarer = min((draws <= 0).sum(), (draws >= 0).sum())
    p = min(1.0, 2 * float(rarer + 1) / (repeats + 1))
    return Difference(value, *_percentiles(draws, level), p)


def mcnemar(a: npt.ArrayLike, b: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The exact p-value of McNemar's test: whether two ensembles are right equally often.

    Only samples that one gets right and the other wrong count: by chance, either is equally likely.
    """
    logs_a, truth = check_predictions(a, labels)
    logs_b, _ = check_predictions(b, labels)
    right_a, right_b = top_class(logs_a)[0] == truth, top_class(logs_b)[0] == truth
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    coins = only_a + only_b
    ways = term = 1  # of no head; then of one more head at a time, in whole numbers
    for heads in range(min(only_a, only_b)):
        term = term * (coins - heads) // (heads + 1)
        ways += term
    return min(1.0, 2 * ways / 2**coins)


def _draw(score: Drawn, samples: int, repeats: int, level: float, seed: int) -> Array:
    if repeats < 1:
        raise FreeTicketsError(f"repeats must be at least 1, not {repeats}")
    if not 0 < level < 1:
        raise FreeTicketsError(f"level must lie between 0 and 1, not {level}")
    generator = np.random.default_rng(seed)
    return np.array([score(generator.integers(0, samples, samples)) for _ in range(repeats)])


def _percentiles(draws: Array, level: float) -> tuple[float, float]:
    # Draws themselves, the outer ones: between two infinite ones there is nothing to interpolate.
    ordered, last = np.sort(draws), len(draws) - 1
    low, high = math.floor((1 - level) / 2 * last), math.ceil((1 + level) / 2 * last)
    return float(ordered[low]), float(ordered[high])


def _scorer(metric: Metric, logs: Array, truth: Labels) -> Drawn:
    """What is resampled: one number for each sample where that is enough, or the arrays."""
    if not isinstance(metric, Score):
        known = (score for score in (*MAIN_SCORES, *MORE_SCORES) if score.function is metric)
        metric = next(known, Score("given", "given", function=metric))
    return metric.of_drawn(logs, truth)


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """How close two quantities are to a linear relation, from -1 to 1."""
    return _correlation(*_check_lists(x, y))


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """How close two quantities are to having the same order, -1 to 1; ties share their rank."""
    one, other = _check_lists(x, y)
    return _correlation(_ranks(one), _ranks(other))


def _correlation(*sides: Array) -> float:
    # Scaled, as squares of the numbers may be more than a float holds.
    return float(np.corrcoef([values / np.abs(values).max() for values in sides])[0, 1])


def _ranks(values: Array) -> Array:
    _, which, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[which]


def _check_lists(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    one, other = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if one.ndim != 1 or one.shape != other.shape or len(one) < 2:
        shapes = f"{one.shape} and {other.shape}"
        raise FreeTicketsError(
            f"a correlation needs two lists of the same length, at least 2, not {shapes}"
        )
    if not np.isfinite([one, other]).all():
        raise FreeTicketsError("a correlation needs finite numbers")
    if any((values == values[0]).all() for values in (one, other)):
        raise FreeTicketsError("a correlation needs numbers that are not all the same")
    return one, other
