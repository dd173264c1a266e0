"""Calibration: whether an ensemble is right as often as it says."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, UnknownNameError
from .arrays import Array, Labels, check_predictions, mean_probs, top_class

# A number of bins, or those of another code, to compare with what it printed.
Bins = int | Literal["freetickets", "tf"]
NAMED_BINS = {"freetickets": 14, "tf": 15}
DEFAULT_BINS = 15


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows: the samples of each bin of confidence, (B,)."""

    edges: Array  # of the bins, (B + 1,)
    count: Labels  # how many samples each bin has
    confidence: Array  # their mean confidence; NaN in an empty bin
    accuracy: Array  # the share of them that is right; NaN in an empty bin

    @property
    def ece(self) -> float:
        """The gap between accuracy and confidence, averaged over the samples in the bins."""
        gaps = np.abs(self.accuracy - self.confidence) * self.count
        return float(np.nansum(gaps) / max(1, self.count.sum()))


def ece(log_probs: npt.ArrayLike, labels: npt.ArrayLike, bins: Bins = DEFAULT_BINS) -> float:
    """The expected calibration error of the most probable class.

    Confidences fall into equal-width bins (a, b], so 1 belongs to the last and 0 to the first; the
    gaps between accuracy and mean confidence are weighted by the samples in each bin. `bins` is a
    number; or "freetickets", to count as the paper's authors do: 14 bins (a, b], none of which
    holds values that rounding put above 1; or "tf", to count as TensorFlow's histograms do: 15 bins
    [a, b), with 1 in the last.

    Example:
        >>> round(ece(np.log([[[0.8, 0.2], [0.8, 0.2]]]), [0, 1]), 6)
        0.3
    """
    found = reliability(log_probs, labels, bins)
    # A sample that is in no bin has no gap, but it is a sample.
    return found.ece * float(found.count.sum()) / np.shape(labels)[0]


def reliability(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, bins: Bins = DEFAULT_BINS
) -> Reliability:
    """Accuracy and mean confidence in each bin of confidence; `bins` as for `ece`."""
    logs, truth = check_predictions(log_probs, labels)
    top, confidences = top_class(logs)
    count, confidence, correct = bin_sums(confidences, top == truth, bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 in empty bins
        return Reliability(bin_edges(bins), count, confidence / count, correct / count)


def adaptive_ece(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, bins: int = DEFAULT_BINS
) -> float:
    """The calibration error in bins of equally many samples, instead of equal width.

    Samples are sorted by confidence and cut into bins whose sizes differ by one at most; samples of
    equal confidence stay together in the lower bin, so that their order does not matter.
    """
    _check_number(bins)
    logs, truth = check_predictions(log_probs, labels)
    top, confidence = top_class(logs)
    last = np.ceil(np.arange(1, bins) * len(truth) / bins).astype(int) - 1  # sample below each cut
    inner = np.sort(confidence)[np.maximum(last, 0)]
    which = np.searchsorted(inner, confidence, side="left")
    gaps = np.bincount(which, weights=(top == truth) - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(truth))


def classwise_ece(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, bins: int = DEFAULT_BINS
) -> float:
    """The calibration error of every class's probability, averaged over the classes.

    `ece` looks only at the most probable class; this asks, for each class, whether samples that are
    given probability p for it belong to it in a share p of cases. Bins are (a, b], of equal width.
    """
    edges = bin_edges(_check_number(bins))
    logs, truth = check_predictions(log_probs, labels)
    mean = mean_probs(logs)
    samples, classes = mean.shape
    place = np.searchsorted(edges[1:-1], mean.ravel(), side="left").reshape(mean.shape)
    place *= classes
    place += np.arange(classes)
    gaps = np.bincount(place.ravel(), weights=mean.ravel(), minlength=bins * classes)
    gaps -= np.bincount(place[np.arange(samples), truth], minlength=bins * classes)
    return float(np.abs(gaps).sum() / (samples * classes))


def bin_edges(bins: Bins) -> Array:
    """The edges of equal-width bins of confidence, (B + 1,)."""
    if isinstance(bins, str) and bins not in NAMED_BINS:
        raise UnknownNameError("way to count bins", bins, NAMED_BINS)
    count = NAMED_BINS[bins] if isinstance(bins, str) else _check_number(bins)
    return np.linspace(0.0, 1.0, count + 1)


def bin_sums(
    confidence: Array, correct: npt.NDArray[np.bool_], bins: Bins = DEFAULT_BINS
) -> tuple[Labels, Array, Array]:
    """Samples, sum of confidences and number of right ones in each bin, (B,) each.

    Sums of several sets can be added up, to bin them as one.
    """
    edges = bin_edges(bins)
    if bins == "freetickets":
        inside = (confidence > 0) & (confidence <= 1)
        confidence, correct = confidence[inside], correct[inside]
    # Only the inner edges: whatever rounding does to 0 and 1, they stay in the outer bins.
    which = np.searchsorted(edges[1:-1], confidence, side="right" if bins == "tf" else "left")
    size = len(edges) - 1
    count = np.bincount(which, minlength=size).astype(np.int64)
    sure, right = (np.bincount(which, weights, size) for weights in (confidence, correct))
    return count, sure.astype(np.float64), right.astype(np.float64)


def _check_number(bins: object) -> int:
    if not isinstance(bins, (int, np.integer)) or bins < 1:
        raise FreeTicketsError(f"bins must be a whole number, at least 1, not {bins!r}")
    return int(bins)
