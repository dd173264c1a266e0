"""Uncertainty: how unknown each sample is to an ensemble."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import UnknownNameError
from .arrays import Array, blocks, check_log_probs, mean_probs, top_class

NOVELTY_SCORES = ("max_probability", "entropy", "mutual_information")


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
    if score == "mutual_information":
        return _mutual_information(logs)
    mean = mean_probs(logs)
    return _entropy(mean, _log(mean))


def _mutual_information(logs: Array) -> Array:
    found = np.empty(logs.shape[1])
    for part in blocks(logs):
        block = logs[:, part]
        probs = np.exp(block)
        mean = probs.mean(axis=0)
        own = _entropy(probs, np.maximum(block, _LOWEST)).mean(axis=0)
        found[part] = _entropy(mean, _log(mean)) - own
    return np.maximum(found, 0.0)  # rounding goes below 0


# Stands for the logarithm of 0: times 0 it is 0, which -inf is not.
_LOWEST = np.finfo(np.float64).min


def _log(probs: Array) -> Array:
    return np.log(probs, out=np.full_like(probs, _LOWEST), where=probs > 0)


def _entropy(probs: Array, logs: Array) -> Array:
    found: Array = np.einsum("...c,...c->...", probs, logs)
    return np.maximum(-found, 0.0)  # no -0, and nothing below what rounding made of certainty
