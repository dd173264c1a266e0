"""Selective prediction: what an ensemble risks if it may decline to answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .arrays import Array, check_predictions, top_class
from .uncertainty import novelty


@dataclass(frozen=True)
class RiskCoverage:
    """The error among the most certain samples, against how many of them there are.

    Attributes:
        coverage: The share of samples that is answered, (N,): 1/N, 2/N, ..., 1.
        risk: The share of wrong answers among them, (N,).
    """

    coverage: Array
    risk: Array

    @property
    def area(self) -> float:
        """The area below the curve (AURC): the mean risk over all coverages. Lower is better."""
        return float(self.risk.mean())


def risk_coverage(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, score: str = "max_probability"
) -> RiskCoverage:
    """Answers samples from the most certain on, and counts the errors.

    Among samples of equal score any order is as good: each counts with their share of errors.

    Args:
        log_probs: The members' log-probabilities, (M, N, C).
        labels: The truth, (N,).
        score: What a sample is declined by: one of the novelty scores.

    Example:
        >>> found = risk_coverage(np.log([[[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]]), [0, 1, 0])
        >>> found.risk.round(3).tolist(), round(found.area, 3)
        ([0.0, 0.0, 0.333], 0.111)
    """
    logs, truth = check_predictions(log_probs, labels)
    top, confidence = top_class(logs)
    # The default is 1 less what is known already.
    unknown = 1.0 - confidence if score == "max_probability" else novelty(logs, score)
    _, which, count = np.unique(unknown, return_inverse=True, return_counts=True)
    wrong = np.bincount(which, weights=top != truth)
    answered = np.arange(1, len(truth) + 1)
    risk = np.cumsum(np.repeat(wrong / count, count)) / answered
    return RiskCoverage(answered / len(truth), risk)


def aurc(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The area below the risk-coverage curve: the mean risk over all coverages."""
    return risk_coverage(log_probs, labels).area
