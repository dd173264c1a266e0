"""Diversity: how much the members of an ensemble differ, pair by pair."""

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError, check_known
from .arrays import Array, blocks, check_labels, check_pairs

# What is done with the places of a feature map.
POSITIONS = ("sum", "mean")


def disagreement(log_probs: npt.ArrayLike) -> float:
    """The share of samples on which two members choose different classes, averaged over pairs."""
    return float(sample_disagreement(check_pairs(log_probs)).mean())


def disagreement_matrix(log_probs: npt.ArrayLike) -> Array:
    """The share of samples on which members i and j choose different classes, (M, M)."""
    choices = check_pairs(log_probs).argmax(axis=-1)
    return np.stack([(choices != choice).mean(axis=-1) for choice in choices])


def disagreement_by_class(log_probs: npt.ArrayLike, labels: npt.ArrayLike) -> Array:
    """The disagreement on the samples of each class, (C,); NaN for a class that has none."""
    logs = check_pairs(log_probs)
    truth = check_labels(labels, *logs.shape[1:])
    classes = logs.shape[2]
    differ = np.bincount(truth, weights=sample_disagreement(logs), minlength=classes)
    with np.errstate(invalid="ignore"):  # 0 / 0
        return differ / np.bincount(truth, minlength=classes)


def sample_disagreement(logs: Array) -> Array:
    """The share of pairs that disagree on each sample, (N,)."""
    choices = logs.argmax(axis=-1)
    members = len(choices)
    # Each pair twice, and each member with itself, which agrees.
    differ = sum((choices != choice).sum(axis=0) for choice in choices)
    return np.asarray(differ) / (members * (members - 1))


def kl(log_probs: npt.ArrayLike, ordered: bool = True) -> float:
    """The Kullback-Leibler divergence between two members, in nats, averaged over pairs.

    By definition it is infinite if one member rules out a class that another does not; it is never
    NaN. If `ordered`, a pair counts in both directions, so that the order of the members does not
    matter; if not, only KL(p_i || p_j) with i before j counts.

    Example:
        >>> members = np.log([[[0.5, 0.5]], [[0.9, 0.1]]])
        >>> round(kl(members), 4), round(kl(members, ordered=False), 4)
        (0.4394, 0.5108)
    """
    matrix = kl_matrix(log_probs)
    pairs = ~np.eye(len(matrix), dtype=bool)
    return float(matrix[pairs if ordered else np.triu(pairs)].mean())


def kl_matrix(log_probs: npt.ArrayLike) -> Array:
    """KL(p_i || p_j) of members i and j, averaged over the samples, (M, M), in nats."""
    logs = check_pairs(log_probs)
    members, samples = logs.shape[:2]
    cross = np.zeros((members, members))  # the sum of p_i log p_j
    ruled_out = np.zeros((members, members), dtype=bool)  # p_j is 0 where p_i is not
    for part in blocks(logs):
        block = logs[:, part].reshape(members, -1)
        probs = np.exp(block)
        if block.min() == -np.inf:
            zero = np.isneginf(block)
            ruled_out |= (~zero).astype(float) @ zero.T.astype(float) > 0
            block = np.where(zero, 0.0, block)  # 0 log 0 is 0
        cross += probs @ block.T
    found = np.maximum(np.diag(cross)[:, None] - cross, 0.0) / samples  # rounding goes below 0
    return np.where(ruled_out, np.inf, found)


def feature_kl(a: npt.ArrayLike, b: npt.ArrayLike, positions: str = "sum") -> float:
    """KL(softmax(a) || softmax(b)) over the channels of two feature maps, in nats.

    Maps are (N, channels, ...); the mean over the samples is returned. `positions` says how the
    positions of a map are combined: "sum", as the paper's authors do, or "mean".

    Example:
        >>> a, b = np.zeros((1, 2, 3)), np.zeros((1, 2, 3))
        >>> b[:, 0] = np.log(9)
        >>> round(feature_kl(a, b), 4), round(feature_kl(a, b, "mean"), 4)
        (1.5325, 0.5108)
    """
    check_known("way to treat positions", positions, POSITIONS)
    ours, other = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if ours.shape != other.shape or ours.ndim < 2 or 0 in ours.shape:
        raise FreeTicketsError(
            f"feature maps must have the same shape, not {ours.shape} and {other.shape}"
        )
    if not (np.isfinite(ours).all() and np.isfinite(other).all()):
        raise FreeTicketsError("feature maps must be finite numbers")
    log_a, log_b = _log_softmax(ours), _log_softmax(other)
    places = (np.exp(log_a) * (log_a - log_b)).sum(axis=1).reshape(len(ours), -1)
    summed = places.sum(axis=1) if positions == "sum" else places.mean(axis=1)
    return float(max(summed.mean(), 0.0))


def _log_softmax(features: Array) -> Array:
    shifted = features - features.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
