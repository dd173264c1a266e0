"""Out-of-distribution detection: whether scores tell samples from outside from those inside.

All functions get the novelty of samples from inside the distribution and from outside, one number
each, higher for what is more unknown. Outside is the positive class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from .arrays import Array, Labels


@dataclass(frozen=True)
class Roc:
    """A receiver operating characteristic, from (0, 0) to (1, 1).

    Attributes:
        false_positive: The share of samples from inside that is flagged, (K,).
        true_positive: The share of samples from outside that is flagged, (K,).
    """

    false_positive: Array
    true_positive: Array

    @property
    def area(self) -> float:
        """The area below the curve: the AUROC."""
        heights = (self.true_positive[1:] + self.true_positive[:-1]) / 2
        return float((np.diff(self.false_positive) * heights).sum())


def auroc(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The probability that a sample from outside scores higher than one from inside; ties half.

    It is exact: the Mann-Whitney statistic, without thresholds to choose.

    Example:
        >>> auroc(inside=[0.1, 0.2, 0.3], outside=[0.3, 0.9])
        0.9166666666666666
    """
    known, unknown = _check(inside, outside)
    known = np.sort(known)
    below = np.searchsorted(known, unknown, side="left").sum()
    not_above = np.searchsorted(known, unknown, side="right").sum()
    return float((below + not_above) / (2 * len(known) * len(unknown)))


def aupr(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The average precision with which samples from outside are found.

    Precision at each threshold, weighted by the recall that it adds. It depends on how many samples
    there are of both kinds; the AUROC does not.

    Example:
        >>> aupr(inside=[0.1, 0.2, 0.3], outside=[0.3, 0.9])
        0.8333333333333333
    """
    false, true = _counts(*_check(inside, outside))
    precision = true[1:] / (true[1:] + false[1:])
    return float((np.diff(true) * precision).sum() / true[-1])


def fpr95(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """The share of samples from inside that is flagged when 95 % of those from outside are.

    The threshold is the highest that flags at least 95 %; a sample on it is flagged.

    Example:
        >>> fpr95(inside=[0.1, 0.2, 0.3, 0.4], outside=[0.3, 0.9])
        0.5
    """
    known, unknown = _check(inside, outside)
    enough = -(-95 * len(unknown) // 100)  # rounded up, in whole numbers
    threshold = np.sort(unknown)[len(unknown) - enough]
    return float((known >= threshold).mean())


def roc_curve(inside: npt.ArrayLike, outside: npt.ArrayLike) -> Roc:
    """The curve of both rates over all thresholds, without points on a straight line.

    Example:
        >>> roc_curve(inside=[0.1, 0.2, 0.3], outside=[0.8, 0.9])
        Roc(false_positive=array([0., 0., 1.]), true_positive=array([0., 1., 1.]))
    """
    false, true = _counts(*_check(inside, outside))
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


def _check(inside: npt.ArrayLike, outside: npt.ArrayLike) -> tuple[Array, Array]:
    found = []
    for name, scores in (("inside", inside), ("outside", outside)):
        values = np.asarray(scores, dtype=np.float64)
        if values.ndim != 1 or not values.size:
            raise FreeTicketsError(
                f"scores of samples {name} must be a list of at least one, not {values.shape}"
            )
        if not np.isfinite(values).all():
            raise FreeTicketsError(f"scores of samples {name} must be finite numbers")
        found.append(values)
    return found[0], found[1]
