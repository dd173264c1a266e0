"""The metrics as other packages have them, or as one would write them down: what ours are held to.

Each takes what ours takes: log-probabilities (M, N, C) and labels, or two lists of novelty scores.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from ..metrics.arrays import Array, Labels

_BINS = 15


def accuracy(logs: Array, labels: Labels) -> Any:
    """By scikit-learn."""
    from sklearn.metrics import accuracy_score

    return accuracy_score(labels, _mean(logs).argmax(-1))


def nll(logs: Array, labels: Labels) -> Any:
    """By scikit-learn."""
    from sklearn.metrics import log_loss

    return log_loss(labels, _mean(logs), labels=range(logs.shape[2]))


def brier(logs: Array, labels: Labels) -> Any:
    """With one-hot labels."""
    return ((_mean(logs) - np.eye(logs.shape[2])[labels]) ** 2).sum(-1).mean()


def ece(logs: Array, labels: Labels) -> Any:
    """By torchmetrics."""
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    probs, truth = torch.from_numpy(_mean(logs)), torch.from_numpy(labels)
    return float(multiclass_calibration_error(probs, truth, logs.shape[2], n_bins=_BINS))


def adaptive_ece(logs: Array, labels: Labels) -> Any:
    """Sorted and split."""
    mean = _mean(logs)
    order = mean.max(-1).argsort()
    gaps = ((mean.argmax(-1) == labels) - mean.max(-1))[order]
    cuts = np.ceil(np.arange(1, _BINS) * len(labels) / _BINS).astype(int)
    return sum(abs(part.sum()) for part in np.split(gaps, cuts)) / len(labels)


def classwise_ece(logs: Array, labels: Labels) -> Any:
    """Class by class, bin by bin."""
    mean, edges = _mean(logs), np.linspace(0, 1, _BINS + 1)
    total = 0.0
    for label, probs in enumerate(mean.T):
        gaps, which = (labels == label) - probs, np.digitize(probs, edges[1:-1], right=True)
        total += sum(abs(gaps[which == place].sum()) for place in range(_BINS))
    return total / mean.size


def reliability(logs: Array, labels: Labels) -> Any:
    """By scikit-learn, which says nothing of empty bins."""
    from sklearn.calibration import calibration_curve

    mean = _mean(logs)
    return calibration_curve(mean.argmax(-1) == labels, mean.max(-1), n_bins=_BINS)[0]


def disagreement(logs: Array, labels: Labels) -> Any:
    """Pair by pair."""
    return np.mean([np.mean(a.argmax(-1) != b.argmax(-1)) for a, b in combinations(logs, 2)])


def disagreement_by_class(logs: Array, labels: Labels) -> Any:
    """Class by class, pair by pair."""
    choices, classes = logs.argmax(-1), range(logs.shape[2])
    return [
        np.mean([np.mean(a != b) for a, b in combinations(choices[:, labels == label], 2)])
        for label in classes
    ]


def kl(logs: Array, labels: Labels) -> Any:
    """By torchmetrics, pair by pair."""
    import torch
    from torchmetrics.functional import kl_divergence

    members = [torch.from_numpy(member) for member in logs]
    return [[float(kl_divergence(p, q, log_prob=True)) for q in members] for p in members]


def max_probability(logs: Array, labels: Labels) -> Any:
    """As it is defined."""
    return 1 - _mean(logs).max(-1)


def entropy(logs: Array, labels: Labels) -> Any:
    """By SciPy."""
    from scipy.stats import entropy as scipy_entropy

    return scipy_entropy(_mean(logs), axis=-1)


def mutual_information(logs: Array, labels: Labels) -> Any:
    """By SciPy's entropies."""
    from scipy.stats import entropy as scipy_entropy

    probs = np.exp(logs)
    return scipy_entropy(probs.mean(0), axis=-1) - scipy_entropy(probs, axis=-1).mean(0)


def risk_coverage(logs: Array, labels: Labels) -> Any:
    """Sorted and summed up."""
    mean = _mean(logs)
    wrong = (mean.argmax(-1) != labels)[(-mean.max(-1)).argsort()]
    return (wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean()


def bootstrap(logs: Array, labels: Labels) -> Any:
    """By SciPy, of what is right and what is not."""
    from scipy import stats

    right = (_mean(logs).argmax(-1) == labels).astype(float)
    stats.bootstrap((right,), np.mean, n_resamples=1000, batch=100, method="percentile")
    return right.mean()


def auroc(inside: Array, outside: Array) -> Any:
    """By scikit-learn."""
    from sklearn.metrics import roc_auc_score

    return roc_auc_score(*_together(inside, outside))


def aupr(inside: Array, outside: Array) -> Any:
    """By scikit-learn."""
    from sklearn.metrics import average_precision_score

    return average_precision_score(*_together(inside, outside))


def fpr95(inside: Array, outside: Array) -> Any:
    """By scikit-learn's curve."""
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(*_together(inside, outside), drop_intermediate=False)
    return false[(true >= 0.95 - 1e-12).argmax()]


def _mean(logs: Array) -> Array:
    return np.exp(logs).mean(0)


def _together(inside: Array, outside: Array) -> tuple[Array, Array]:
    kinds = np.repeat([0.0, 1.0], [len(inside), len(outside)])
    return kinds, np.concatenate([inside, outside])
