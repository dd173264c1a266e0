"""Calibration: whether an ensemble is right as often as it says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .predictive import check_predictions, ensemble_log_probs


def ece(log_probs: npt.ArrayLike, labels: npt.ArrayLike, bins: int = 15) -> float:
    """The expected calibration error of the most probable class.

    Confidences fall into equal-width bins (a, b], so 1 belongs to the last and 0 to the first; the
    gaps between accuracy and mean confidence are weighted by the samples in each bin.

    Example:
        >>> round(ece(np.log([[[0.8, 0.2], [0.8, 0.2]]]), [0, 1]), 6)
        0.3
    """
    logs, truth = check_predictions(log_probs, labels)
    mean = ensemble_log_probs(logs)
    confidence = np.exp(mean.max(-1))
    correct = mean.argmax(-1) == truth
    edges = np.linspace(0.0, 1.0, bins + 1)
    # Only the inner edges: whatever rounding does to 0 and 1, they stay in the outer bins.
    which = np.digitize(confidence, edges[1:-1], right=True)
    gaps = np.bincount(which, weights=correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(truth))
