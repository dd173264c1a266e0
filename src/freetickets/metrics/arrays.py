"""The arrays that metrics get: checked, and averaged over members without large copies."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

# Numbers of a block: it is read several times, so all members of it should fit into the cache.
_BLOCK = 1 << 16
# At so many samples it is seen whether predictions are normalised, up to what half precision does.
_LOOKED_AT = 1000
_ROUNDING = 0.01


def check_log_probs(log_probs: npt.ArrayLike) -> Array:
    """Returns member log-probabilities as float64 (M, N, C), which is not copied; else an error."""
    try:
        logs = np.asarray(log_probs, dtype=np.float64)
    except ValueError as error:  # words, or rows of different lengths
        raise FreeTicketsError(f"predictions must be an array of numbers: {error}") from error
    if logs.ndim != 3 or 0 in logs.shape:
        raise FreeTicketsError(
            f"predictions must have the shape (members, samples, classes), not {logs.shape}"
        )
    highest = logs.max()
    if not highest < 1e-3:  # NaN too; a little above 0 is what rounding does
        raise FreeTicketsError(f"predictions must be log-probabilities, at most 0, not {highest}")
    step = -(-logs.shape[1] // _LOOKED_AT)
    sums = np.exp(logs[:, ::step]).sum(axis=-1)
    worst = sums.flat[np.abs(sums - 1).argmax()]
    if abs(worst - 1) > _ROUNDING:
        raise FreeTicketsError(
            "predictions must be log-probabilities: the probabilities of a sample add up to "
            f"{worst:.4g}, not 1; subtract the log-sum-exp of its classes"
        )
    return logs


def check_labels(labels: npt.ArrayLike, samples: int, classes: int) -> Labels:
    """Returns labels as int64 (N,), if there are as many as samples, and each is a class."""
    truth = np.asarray(labels)
    if truth.dtype.kind not in "iu":
        raise FreeTicketsError(f"labels must be integers, not {truth.dtype}")
    truth = truth.astype(np.int64)
    if truth.shape != (samples,):
        raise FreeTicketsError(f"{samples} predictions need {samples} labels, not {truth.shape}")
    least, most = truth.min(), truth.max()
    if least < 0 or most >= classes:
        raise FreeTicketsError(
            f"labels must lie in 0 to {classes - 1}; they go from {least} to {most}"
        )
    return truth


def check_predictions(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Array, Labels]:
    """Returns member log-probabilities as float64 (M, N, C) and labels as int64 (N,)."""
    logs = check_log_probs(log_probs)
    return logs, check_labels(labels, *logs.shape[1:])


def check_pairs(log_probs: npt.ArrayLike) -> Array:
    """Returns log-probabilities (M, N, C) of at least two members."""
    logs = check_log_probs(log_probs)
    if len(logs) < 2:
        raise FreeTicketsError("diversity compares pairs: give at least 2 members")
    return logs


def blocks(logs: Array) -> Iterator[slice]:
    """Slices of the samples of (M, N, C), each small enough for the cache."""
    members, samples, classes = logs.shape
    step = max(1, _BLOCK // (members * classes))
    for start in range(0, samples, step):
        yield slice(start, start + step)


def log_sum_exp(values: Array, axis: int) -> Array:
    """The logarithm of a sum of exponentials, without underflow; -inf where all are that."""
    highest = values.max(axis=axis, keepdims=True)
    if highest.min() > -600 and highest.max() < 600:
        return np.log(np.exp(values).sum(axis=axis))  # a float can hold each sum as it is
    shift = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(values - shift).sum(axis=axis)) + shift.squeeze(axis)


def normalise(logits: Array) -> Array:
    """Log-probabilities over the last axis; where every class is ruled out, all stay so."""
    total = log_sum_exp(logits, axis=-1)[..., None]
    return logits - np.where(np.isneginf(total), 0.0, total)


def mean_probs(logs: Array) -> Array:
    """The mean of the members' probabilities, (N, C)."""
    if len(logs) == 1:
        return np.exp(logs[0])
    mean = np.empty(logs.shape[1:])
    for part in blocks(logs):
        np.exp(logs[:, part]).mean(axis=0, out=mean[part])
    return mean


def top_class(logs: Array) -> tuple[Labels, Array]:
    """The ensemble's most probable class of each sample, (N,), and its probability, (N,)."""
    mean = logs[0] if len(logs) == 1 else mean_probs(logs)
    top = mean.argmax(axis=-1)
    highest = np.take_along_axis(mean, top[:, None], axis=-1)[:, 0]
    return top, np.exp(highest) if len(logs) == 1 else highest
