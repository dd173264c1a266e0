"""How sure the scores are: bootstrap intervals, and paired differences between runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..errors import FreeTicketsError
from ..metrics import Difference, Interval
from ..metrics.score import p_text as p_text

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

SCORES = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}
REPEATS: int = inspect.signature(metrics.bootstrap).parameters["repeats"].default
LEVEL: float = inspect.signature(metrics.bootstrap).parameters["level"].default
ECE_BINS: int = inspect.signature(metrics.ece).parameters["bins"].default


@dataclass(frozen=True)
class Differences:
    """How the scores of one run differ from those of another on the same samples.

    Attributes:
        scores: By the name of the score: the difference, its interval, and its p-value.
        mcnemar: The exact p-value of the difference in accuracy.
    """

    scores: dict[str, Difference]
    mcnemar: float


def intervals(log_probs: Array, labels: Labels) -> dict[str, Interval]:
    """The scores of an ensemble (1, N, C), each with its bootstrap interval."""
    return {name: metrics.bootstrap(score, log_probs, labels) for name, score in SCORES.items()}


def differences(log_probs: Array, reference: Array, labels: Labels) -> Differences:
    """What the scores of one ensemble (1, N, C) are above those of another.

    Example:
        >>> right, wrong = np.log([[[0.9, 0.1]] * 6]), np.log([[[0.1, 0.9]] * 6])
        >>> found = differences(right, wrong, np.zeros(6, dtype=int))
        >>> found.scores["accuracy"].value, found.mcnemar
        (1.0, 0.03125)
    """
    return Differences(
        {name: _difference(score, log_probs, reference, labels) for name, score in SCORES.items()},
        metrics.mcnemar(log_probs, reference, labels),
    )


def _difference(
    score: Callable[[Array, Labels], float], log_probs: Array, reference: Array, labels: Labels
) -> Difference:
    try:
        return metrics.paired_difference(score, log_probs, reference, labels)
    except FreeTicketsError:  # both are infinitely wrong: no number says by how much more
        return Difference(math.nan, math.nan, math.nan, math.nan)
