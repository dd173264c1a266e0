"""Robustness to attacks that were crafted on one member and are met by all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from .arrays import Array, check_predictions
from .predictive import accuracy


@dataclass(frozen=True)
class AttackScores:
    """Accuracies on attacked samples.

    Attributes:
        transfer: Of member m on the attack that was crafted on member k, at [k, m].
        ensemble: Of the ensemble on the attack that was crafted on member k, (K,).
        min: The lowest of the ensemble's.
        mean: Their mean.
        max: The highest.
    """

    transfer: Array
    ensemble: Array
    min: float
    mean: float
    max: float


def transfer_matrix(parts: Sequence[npt.ArrayLike], labels: npt.ArrayLike) -> Array:
    """The accuracy of each member on the attack that was crafted on each member.

    Args:
        parts: What the members say of the samples attacked for member 1, for member 2 and so on:
            log-probabilities (M, N, C) each.
        labels: The truth, (N,), the same for each attack.

    Returns:
        Accuracies: the member that the attack was crafted on in the row, the one that meets it in
        the column.

    Example:
        >>> one, two = np.log([[[0.1, 0.9]], [[0.8, 0.2]]]), np.log([[[0.6, 0.4]], [[0.3, 0.7]]])
        >>> transfer_matrix([one, two], [0])
        array([[0., 1.],
               [1., 0.]])
    """
    rows = []
    for logs, truth in (check_predictions(part, labels) for part in _check(parts)):
        rows.append((logs.argmax(axis=-1) == truth).mean(axis=-1))
    return np.stack(rows)


def attack_scores(parts: Sequence[npt.ArrayLike], labels: npt.ArrayLike) -> AttackScores:
    """The ensemble's accuracy on the attack crafted on each member, and how attacks transfer.

    Example:
        >>> one, two = np.log([[[0.1, 0.9]], [[0.8, 0.2]]]), np.log([[[0.6, 0.4]], [[0.3, 0.7]]])
        >>> scores = attack_scores([one, two], [0])
        >>> scores.ensemble.tolist(), scores.min, scores.mean, scores.max
        ([0.0, 0.0], 0.0, 0.0, 0.0)
    """
    found = np.array([accuracy(part, labels) for part in _check(parts)])
    lowest, mean, highest = (float(value) for value in (found.min(), found.mean(), found.max()))
    return AttackScores(transfer_matrix(parts, labels), found, lowest, mean, highest)


def _check(parts: Sequence[npt.ArrayLike]) -> Sequence[npt.ArrayLike]:
    if not len(parts):
        raise FreeTicketsError("attacks need predictions: one array for each attacked member")
    if len({np.shape(part) for part in parts}) > 1:
        raise FreeTicketsError("predictions of all attacks must have the same shape")
    return parts
