"""Accuracy and likelihood of an ensemble, from its members' log-probabilities (M, N, C)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, UnknownNameError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

# What of the members is averaged.
RULES = ("probabilities", "logits")


def check_predictions(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Labels]:
    """Returns member log-probabilities as float64 (M, N, C) and labels as int64 (N,).

    Raises:
        FreeTicketsError: The shapes do not fit, a label names no class, or a prediction is no
            log-probability.
    """
    logs = np.asarray(log_probs, dtype=np.float64)
    truth = np.asarray(labels)
    if truth.dtype.kind not in "iu":
        raise FreeTicketsError(f"labels must be integers, not {truth.dtype}")
    truth = truth.astype(np.int64)
    if logs.ndim != 3 or 0 in logs.shape:
        raise FreeTicketsError(
            f"predictions must have the shape (members, samples, classes), not {logs.shape}"
        )
    if truth.shape != logs.shape[1:2]:
        raise FreeTicketsError(
            f"{logs.shape[1]} predictions need as many labels, not an array of {truth.shape}"
        )
    if truth.min() < 0 or truth.max() >= logs.shape[2]:
        raise FreeTicketsError(
            f"labels must lie in 0 to {logs.shape[2] - 1}; they go from {truth.min()} to "
            f"{truth.max()}"
        )
    if not logs.max() < 1e-3:  # NaN too; a little above 0 is what rounding does
        raise FreeTicketsError(
            f"predictions must be log-probabilities, at most 0: the highest is {logs.max()}"
        )
    return logs, truth


def ensemble_log_probs(log_probs: npt.ArrayLike, combine: str = "probabilities") -> Array:
    """The log-probabilities of the ensemble, (N, C): the members' mean, without underflow.

    Args:
        log_probs: Of the members, (M, N, C).
        combine: Mean of the members' "probabilities", or of their "logits". With logits a class
            that one member rules out is out; where that is the lot of every class, those that the
            fewest members rule out are left.

    Example:
        >>> members = np.log([[[0.9, 0.1]], [[0.5, 0.5]]])
        >>> np.exp(ensemble_log_probs(members)).round(3).tolist()
        [[0.7, 0.3]]
        >>> np.exp(ensemble_log_probs(members, "logits")).round(3).tolist()
        [[0.75, 0.25]]
    """
    logs = np.asarray(log_probs, dtype=np.float64)
    if combine == "probabilities":
        return _log_sum_exp(logs, axis=0) - np.log(len(logs))
    if combine == "logits":
        mean = _mean_logits(logs)
        return mean - _log_sum_exp(mean, axis=-1)[..., None]
    raise UnknownNameError("rule to combine members", combine, RULES)


def _mean_logits(logs: Array) -> Array:
    out = np.isneginf(logs)
    times = out.sum(axis=0)
    # What the mean comes to if "impossible" is a number that goes to -inf: the classes that have it
    # least often win, whatever it is, and their other numbers decide between them.
    left = times == times.min(axis=-1, keepdims=True)
    return np.where(left, np.where(out, 0.0, logs).mean(axis=0), -np.inf)


def _log_sum_exp(values: Array, axis: int) -> Array:
    highest = values.max(axis=axis, keepdims=True)
    # A class that every member rules out keeps its -inf instead of becoming NaN.
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - shift).sum(axis=axis)) + shift.squeeze(axis)


def accuracy(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The share of samples whose most probable class is right.

    Example:
        >>> accuracy(np.log([[[0.9, 0.1], [0.6, 0.4]]]), [0, 1])
        0.5
    """
    logs, truth = check_predictions(log_probs, labels)
    return float((ensemble_log_probs(logs).argmax(-1) == truth).mean())


def nll(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean negative log-likelihood of the ensemble, in nats.

    Example:
        >>> round(nll(np.log([[[0.9, 0.1]], [[0.5, 0.5]]]), [0]), 4)
        0.3567
    """
    logs, truth = check_predictions(log_probs, labels)
    of_truth = np.take_along_axis(logs, truth[None, :, None], axis=2)[..., 0]
    return float(-ensemble_log_probs(of_truth[..., None]).mean())
