"""Accuracy and likelihood of an ensemble, from its members' log-probabilities (M, N, C)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, check_known
from . import arrays
from .arrays import Array, Labels

# What of the members is averaged.
RULES = ("probabilities", "logits")


def ensemble_log_probs(log_probs: npt.ArrayLike, combine: str = "probabilities") -> Array:
    """The log-probabilities of the ensemble, (N, C): the members' mean, without underflow.

    This is the mean of their "probabilities" or of their "logits". With logits, a class that any
    member rules out is ruled out; if this happens to every class, those that the fewest members
    rule out remain.

    Example:
        >>> members = np.log([[[0.9, 0.1]], [[0.5, 0.5]]])
        >>> np.exp(ensemble_log_probs(members)).round(3).tolist()
        [[0.7, 0.3]]
        >>> np.exp(ensemble_log_probs(members, "logits")).round(3).tolist()
        [[0.75, 0.25]]
    """
    logs = np.asarray(log_probs, dtype=np.float64)
    if logs.ndim != 3:
        raise FreeTicketsError(
            f"predictions must have the shape (members, samples, classes), not {logs.shape}"
        )
    check_known("rule to combine members", combine, RULES)
    if combine == "probabilities":
        combined = np.empty(logs.shape[1:])
        for part in arrays.blocks(logs):
            combined[part] = arrays.log_sum_exp(logs[:, part], axis=0)
        return combined - np.log(len(logs))
    out = np.isneginf(logs)
    times = out.sum(axis=0)
    # What the mean comes to if "impossible" is a number that goes to -inf: the classes that have it
    # least often win, whatever it is, and their other numbers decide between them.
    left = times == times.min(axis=-1, keepdims=True)
    return arrays.normalise(np.where(left, np.where(out, 0.0, logs).mean(axis=0), -np.inf))


def accuracy(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The share of samples whose most probable class is right."""
    return float(sample_correct(*arrays.check_predictions(log_probs, labels)).mean())


def nll(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean negative log-likelihood of the ensemble, in nats."""
    return float(sample_nll(*arrays.check_predictions(log_probs, labels)).mean())


def member_nll(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean over members of their own negative log-likelihoods, in nats.

    This is what a member drawn at random would score (the Gibbs likelihood). It is never below
    `nll`; the gap is what the members gain by being different.
    """
    return float(-_of_truth(*arrays.check_predictions(log_probs, labels)).mean())


def brier(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The Brier score: squared errors of the probabilities, summed over classes; 0 to 2."""
    return float(sample_brier(*arrays.check_predictions(log_probs, labels)).mean())


def restrict_classes(log_probs: npt.ArrayLike, classes: Sequence[int]) -> Array:
    """Keeps only some classes, with each member's probabilities rescaled to sum to 1.

    Returns log-probabilities (M, N, classes kept), for labels that count only these classes: label
    i is `classes[i]`. A member that rules out all of them gets the same probability for each.

    Example:
        >>> kept = restrict_classes(np.log([[[0.5, 0.3, 0.2]]]), [0, 2])
        >>> np.exp(kept).round(3).tolist()
        [[[0.714, 0.286]]]
        >>> labels = np.array([2])  # among all the classes
        >>> accuracy(kept, np.searchsorted([0, 2], labels))
        0.0
    """
    logs, chosen = arrays.check_log_probs(log_probs), np.asarray(classes)
    if chosen.ndim != 1 or not chosen.size or chosen.dtype.kind not in "iu":
        raise FreeTicketsError("the classes to keep must be a list of at least one integer")
    if chosen.min() < 0 or chosen.max() >= logs.shape[2]:
        raise FreeTicketsError(f"the classes to keep must lie in 0 to {logs.shape[2] - 1}")
    if len(np.unique(chosen)) < len(chosen):
        raise FreeTicketsError("the classes to keep must differ from each other")
    kept = logs[:, :, chosen]
    kept[np.isneginf(kept.max(axis=-1))] = 0.0
    return arrays.normalise(kept)


# The scores of single samples, (N,), whose means the scores above are: of checked arrays.


def sample_correct(logs: Array, truth: Labels) -> Array:
    """1 where the ensemble is right, 0 where it is wrong."""
    return (arrays.top_class(logs)[0] == truth).astype(np.float64)


def sample_nll(logs: Array, truth: Labels) -> Array:
    """What each sample adds to the negative log-likelihood."""
    return -ensemble_log_probs(_of_truth(logs, truth)[..., None])[:, 0]


def sample_brier(logs: Array, truth: Labels) -> Array:
    """What each sample adds to the Brier score."""
    mean = arrays.mean_probs(logs)
    squares: Array = np.einsum("nc,nc->n", mean, mean)
    return squares + 1 - 2 * np.take_along_axis(mean, truth[:, None], axis=1)[:, 0]


def _of_truth(logs: Array, truth: Labels) -> Array:
    return np.take_along_axis(logs, truth[None, :, None], axis=2)[..., 0]
