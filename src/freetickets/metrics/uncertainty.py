"""Uncertainty: how unsure an ensemble is of each sample, how unknown each is, and what that tells.

Functions that tell samples apart take one number per sample, higher for outside, the positive
class.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, check_known
from .arrays import Array, Labels, blocks, check_log_probs, check_predictions, top_class
from .predictive import ensemble_log_probs

NOVELTY_SCORES = ("max_probability", "entropy", "mutual_information")


@dataclass(frozen=True)
class Uncertainty:
    """How unsure an ensemble is of each sample, in nats.

    Where the prediction is not the mean of the members' probabilities (because it has a
    temperature of its own, say), its entropy is split in the same proportions as that of the mean.
    """

    total: Array  # entropy of the prediction
    aleatoric: Array  # mean entropy of the members: what more members would not improve
    epistemic: Array  # their difference, the mutual information: how much the members disagree

    @classmethod
    def of(cls, log_probs: npt.ArrayLike, prediction: Array | None = None) -> "Uncertainty":
        """Computes it from member log-probabilities (M, N, C).

        `prediction` are the ensemble's log-probabilities (N, C), if not the members' mean.

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
    """How unknown each sample is, (N,): the higher, the more unknown.

    "max_probability" is 1 minus the ensemble's highest probability; "entropy" is that of its
    probabilities, in nats; "mutual_information" is the part of the entropy that comes from the
    members' disagreement, 0 for one member.

    Example:
        >>> members = np.log([[[0.9, 0.1], [0.5, 0.5]], [[0.1, 0.9], [0.5, 0.5]]])
        >>> for score in NOVELTY_SCORES:
        ...     print(score, novelty(members, score).round(3).tolist())
        max_probability [0.5, 0.5]
        entropy [0.693, 0.693]
        mutual_information [0.368, 0.0]
    """
    check_known("novelty score", score, NOVELTY_SCORES)
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


@dataclass(frozen=True)
class RiskCoverage:
    """The error among the most certain samples, against how many of them there are."""

    coverage: Array  # the share of samples that is answered, (N,): 1/N, 2/N, ..., 1
    risk: Array  # the share of wrong answers among them, (N,)

    @property
    def area(self) -> float:
        """The area below the curve (AURC): the mean risk over all coverages. Lower is better."""
        return float(self.risk.mean())


def risk_coverage(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, score: str = "max_probability"
) -> RiskCoverage:
    """Answers the samples from the most certain to the least, and counts the errors.

    Samples are declined by one of the novelty scores. Samples with equal scores could come in any
    order, so each counts with their share of errors.

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


@dataclass(frozen=True)
class Roc:
    """A receiver operating characteristic, from (0, 0) to (1, 1)."""

    false_positive: Array  # the share of samples from inside that is flagged, (K,)
    true_positive: Array  # the share of samples from outside that is flagged, (K,)

    @property
    def area(self) -> float:
        """The area below the curve: the AUROC."""
        heights = (self.true_positive[1:] + self.true_positive[:-1]) / 2
        return float((np.diff(self.false_positive) * heights).sum())


def auroc(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The probability that an outside sample scores higher than an inside one; ties count half.

    It is exact: the Mann-Whitney statistic, with no thresholds to choose.

    Example:
        >>> auroc(inside=[0.1, 0.2, 0.3], outside=[0.3, 0.9])
        0.9166666666666666
    """
    known, unknown = _check_scores(inside, outside)
    known = np.sort(known)
    below = np.searchsorted(known, unknown, side="left").sum()
    not_above = np.searchsorted(known, unknown, side="right").sum()
    return float((below + not_above) / (2 * len(known) * len(unknown)))


def aupr(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The average precision with which samples from outside are found.

    Precision at each threshold, weighted by the recall that it adds. It depends on how many samples
    of each kind there are; the AUROC does not.
    """
    false, true = _counts(*_check_scores(inside, outside))
    precision = true[1:] / (true[1:] + false[1:])
    return float((np.diff(true) * precision).sum() / true[-1])


def fpr95(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The share of samples from inside that are flagged when 95 % of those from outside are.

    The threshold is the highest that flags at least 95 %; a sample on it is flagged.
    """
    known, unknown = _check_scores(inside, outside)
    enough = -(-95 * len(unknown) // 100)  # rounded up, in whole numbers
    threshold = np.sort(unknown)[len(unknown) - enough]
    return float((known >= threshold).mean())


def roc_curve(inside: npt.ArrayLike, outside: npt.ArrayLike) -> Roc:
    """The curve of both rates over all thresholds, without points on a straight line."""
    false, true = _counts(*_check_scores(inside, outside))
    across, up = np.diff(false), np.diff(true)
    turns = across[:-1] * up[1:] != across[1:] * up[:-1]
    corner = np.concatenate([[True], turns, [True]])
    return Roc(false[corner] / false[-1], true[corner] / true[-1])


def _counts(known: Array, unknown: Array) -> tuple[Labels, Labels]:
    """How many of both kinds are flagged at each threshold, from none to all."""
    thresholds = np.unique(np.concatenate([known, unknown]))[::-1]

    def flagged(scores: Array) -> Labels:
        below = np.searchsorted(np.sort(scores), thresholds, side="left")
        return np.concatenate([[0], len(scores) - below])

    return flagged(known), flagged(unknown)


def _check_scores(inside: npt.ArrayLike, outside: npt.ArrayLike) -> tuple[Array, Array]:
    known, unknown = np.asarray(inside, dtype=np.float64), np.asarray(outside, dtype=np.float64)
    for name, values in (("inside", known), ("outside", unknown)):
        must = f"scores of samples {name} must be"
        if values.ndim != 1 or not values.size:
            raise FreeTicketsError(f"{must} a list of at least one, not {values.shape}")
        if not np.isfinite(values).all():
            raise FreeTicketsError(f"{must} finite numbers")
    return known, unknown
