"""Uncertainty: how unsure an ensemble is of each sample, and how unknown that is to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UnknownNameError
from .arrays import Array, blocks, check_log_probs, top_class
from .predictive import ensemble_log_probs

NOVELTY_SCORES = ("max_probability", "entropy", "mutual_information")


@dataclass(frozen=True)
class Uncertainty:
    """How unsure an ensemble is of each sample, in nats.

    Attributes:
        total: Entropy of the prediction.
        aleatoric: Mean entropy of the members: what more members would not improve.
        epistemic: Their difference, the mutual information: how much the members disagree.

    Where the prediction is not the mean of the members' probabilities (because it has a
    temperature of its own, say), its entropy is divided in the proportions of that mean's.
    """

    total: Array
    aleatoric: Array
    epistemic: Array

    @classmethod
    def of(cls, log_probs: npt.ArrayLike, prediction: Array | None = None) -> Uncertainty:
        """Computes it from member log-probabilities (M, N, C).

        Args:
            log_probs: The members' log-probabilities, (M, N, C).
            prediction: The ensemble's log-probabilities (N, C), if not the members' mean.

        Example:
            >>> sure_but_opposed = np.log([[[0.999, 0.001]], [[0.001, 0.999]]])
            >>> Uncertainty.of(sure_but_opposed).epistemic.round(2).tolist()
            [0.69]
        """
        logs = np.asarray(log_probs, dtype=np.float64)
        of_mean = _entropy(ensemble_log_probs(logs))
        disagreement = np.maximum(of_mean - _entropy(logs).mean(axis=0), 0.0)
        share = np.divide(disagreement, of_mean, out=np.zeros_like(of_mean), where=of_mean > 0)
        total = of_mean if prediction is None else _entropy(prediction)
        return cls(total, total * (1 - share), total * share)


def novelty(log_probs: npt.ArrayLike, score: str = "max_probability") -> Array:
    """How unknown each sample is, (N,): the higher, the more.

    Args:
        log_probs: The members' log-probabilities, (M, N, C).
        score: "max_probability": 1 less the highest probability of the ensemble. "entropy": that of
            the ensemble's probabilities, in nats. "mutual_information": the part of the entropy
            that comes from the members' disagreement; 0 for one member.

    Example:
        >>> members = np.log([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]])
        >>> for score in NOVELTY_SCORES:
        ...     print(score, novelty(members, score).round(3).tolist())
        max_probability [0.5, 0.5]
        entropy [0.693, 0.693]
        mutual_information [0.368, 0.0]
    """
    if score not in NOVELTY_SCORES:
        raise UnknownNameError("novelty score", score, NOVELTY_SCORES)
    logs = check_log_probs(log_probs)
    if score == "max_probability":
        return 1.0 - top_class(logs)[1]
    found = np.empty(logs.shape[1])
    for part in blocks(logs):
        found[part] = _entropy(ensemble_log_probs(logs[:, part]))
        if score == "mutual_information":
            found[part] -= _entropy(logs[:, part]).mean(axis=0)
    return np.maximum(found, 0.0)  # rounding goes below 0


def _entropy(logs: Array) -> Array:
    # A class that is ruled out adds nothing, where 0 x -inf would be NaN.
    found: Array = np.einsum("...c,...c->...", np.exp(logs), np.maximum(logs, _LOWEST))
    return np.maximum(-found, 0.0)  # no -0, and nothing below what rounding made of certainty


_LOWEST = np.finfo(np.float64).min
