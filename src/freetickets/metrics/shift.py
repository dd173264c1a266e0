"""Scores of changed samples: corruptions times severities, and attacks crafted on one member."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..data.corruptions import COMMON15, CORRUPTIONS
from ..errors import FreeTicketsError, check_known
from .arrays import Array, check_predictions, top_class
from .calibration import Bins, bin_sums
from .predictive import accuracy
from .score import MAIN_SCORES

# The types that others have averaged over. "ub" is what the Uncertainty Baselines take for
# CIFAR-100; `corruption_set` knows what they take for other data.
CORRUPTION_SETS: dict[str, tuple[str, ...]] = {
    "all19": CORRUPTIONS,
    "common15": COMMON15,
    "ub": tuple(name for name in CORRUPTIONS if name not in ("snow", "motion_blur")),
}


def corruption_set(name: str, classes: int) -> tuple[str, ...]:
    """The corruption types of a set; "ub" depends on the data's number of classes.

    The Uncertainty Baselines average over the 15 common types for CIFAR-10 and ImageNet, and over
    all 19 except snow and motion blur for CIFAR-100.
    """
    check_known("set of corruptions", name, CORRUPTION_SETS)
    if name == "ub" and classes in (10, 1000):
        return CORRUPTION_SETS["common15"]
    return CORRUPTION_SETS[name]


@dataclass(frozen=True)
class ShiftScores:
    """The scores of an ensemble on T corruption types at S severities."""

    types: tuple[str, ...]
    samples: npt.NDArray[np.int64]  # how many each set has, (T, S)
    scores: Mapping[str, Array]  # by key, each set's own, (T, S): "accuracy", "nll", "ece"
    # Right samples less confidence, summed in each bin of each set, (T, S, B): what the calibration
    # error of several sets together is made of.
    gaps: Array

    accuracy = property(lambda self: self.scores["accuracy"])
    nll = property(lambda self: self.scores["nll"])
    ece = property(lambda self: self.scores["ece"])

    def mean(self, types: Sequence[str] | None = None) -> dict[str, float]:
        """Scores averaged over severities and some types, or all.

        `ece` is the mean of each set's error, as the Uncertainty Baselines print it; `ece_pooled`
        the error of all predictions in the same bins, as the paper's authors print it. With sets of
        equal size the second is never higher, since gaps of different sets can cancel.
        """
        chosen = self.types if types is None else tuple(types)
        if not chosen:
            raise FreeTicketsError("scores under shift need at least one corruption type")
        for name in chosen:
            check_known("corruption type", name, self.types)
        rows = [self.types.index(name) for name in chosen]
        pooled = np.abs(self.gaps[rows].sum(axis=(0, 1))).sum() / self.samples[rows].sum()
        means = {key: float(values[rows].mean()) for key, values in self.scores.items()}
        return {**means, "ece_pooled": float(pooled)}


def shift_scores(
    sets: Mapping[str, Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]], bins: Bins = 15
) -> ShiftScores:
    """Scores an ensemble on corrupted sets; `bins` is as for `ece`.

    `sets` holds log-probabilities (M, N, C) and labels (N,) for each corruption type and, within
    it, for each severity in order.

    Example:
        >>> right, wrong = np.log([[[0.9, 0.1]]]), np.log([[[0.1, 0.9]]])
        >>> scores = shift_scores({"fog": [(right, [0])], "snow": [(wrong, [0])]})
        >>> {name: round(value, 3) for name, value in scores.mean().items()}
        {'accuracy': 0.5, 'nll': 1.204, 'ece': 0.5, 'ece_pooled': 0.4}
        >>> scores.accuracy.tolist()
        [[1.0], [0.0]]
    """
    rows: list[list[tuple[int, Array, list[float]]]] = []
    for parts in sets.values():
        rows.append([])
        for log_probs, labels in parts:
            logs, truth = check_predictions(log_probs, labels)
            top, confidence = top_class(logs)
            _, confidences, right = bin_sums(confidence, top == truth, bins)
            found = [score.function(logs, truth) for score in MAIN_SCORES if score.function]
            rows[-1].append((len(truth), right - confidences, found))
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise FreeTicketsError("give at least one corruption type, and as many severities of each")
    samples, gaps, values = (np.array([[it[k] for it in row] for row in rows]) for k in range(3))
    scores = {score.key: values[..., place] for place, score in enumerate(MAIN_SCORES)}
    scores["ece"] = np.abs(gaps).sum(axis=-1) / samples  # in these bins
    return ShiftScores(tuple(sets), samples, scores, gaps)


@dataclass(frozen=True)
class AttackScores:
    """Accuracies on attacked samples; the last three are of the ensemble over all attacks."""

    transfer: Array  # of member m on the attack that was crafted on member k, at [k, m]
    ensemble: Array  # of the ensemble on the attack that was crafted on member k, (K,)
    min: float
    mean: float
    max: float


def transfer_matrix(parts: Sequence[npt.ArrayLike], labels: npt.ArrayLike) -> Array:
    """The accuracy of each member (columns) on the attack that was crafted on each member (rows).

    `parts` are the members' log-probabilities (M, N, C) on the samples crafted on member 1, on
    member 2, and so on; the labels, (N,), are the same for each attack.

    Example:
        >>> one, two = np.log([[[0.1, 0.9]], [[0.8, 0.2]]]), np.log([[[0.6, 0.4]], [[0.3, 0.7]]])
        >>> transfer_matrix([one, two], [0])
        array([[0., 1.],
               [1., 0.]])
    """
    checked = (check_predictions(part, labels) for part in _check_parts(parts))
    return np.stack([(logs.argmax(axis=-1) == truth).mean(axis=-1) for logs, truth in checked])


def attack_scores(parts: Sequence[npt.ArrayLike], labels: npt.ArrayLike) -> AttackScores:
    """The ensemble's accuracy on the attack crafted on each member, and how attacks transfer."""
    found = np.array([accuracy(part, labels) for part in _check_parts(parts)])
    lowest, mean, highest = (float(value) for value in (found.min(), found.mean(), found.max()))
    return AttackScores(transfer_matrix(parts, labels), found, lowest, mean, highest)


def _check_parts(parts: Sequence[npt.ArrayLike]) -> Sequence[npt.ArrayLike]:
    if not len(parts):
        raise FreeTicketsError("attacks need predictions: one array for each attacked member")
    if len({np.shape(part) for part in parts}) > 1:
        raise FreeTicketsError("predictions of all attacks must have the same shape")
    return parts
