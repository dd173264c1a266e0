"""Choosing an ensemble's members from a larger pool, by what they say together."""

import numpy as np
import numpy.typing as npt

from .calibration import RULED_OUT
from .errors import FreeTicketsError
from .metrics import ensemble_log_probs
from .metrics.arrays import check_predictions

# Less than this is rounding, not a gain.
LEAST_GAIN = 1e-9


def check_size(size: int | None, pool: int | None) -> None:
    """Raises unless this many members can be chosen from a pool of this size."""
    if size is not None and size < 1:
        raise FreeTicketsError(f"choose at least 1 member, not {size}")
    if size is not None and pool is not None and size > pool:
        raise FreeTicketsError(f"can't choose {size} members from a pool of {pool}: choose fewer")


def select_members(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, size: int | None = None, *,
    combine: str = "probabilities", replacement: bool = False,
) -> list[int]:  # fmt: skip
    """Chooses members of a pool (M, N, C) greedily by the ensemble's NLL on this data.

    The best single member comes first, then always the one with which the ensemble becomes best; of
    equal ones the first in the pool. A later member may make the ensemble worse, if the size asks
    for it; without a size none does, so the choice is never worse than the best member. With
    replacement a member may be chosen again, so that it counts more.

    Example:
        >>> pool = np.log([[[0.8, 0.2], [0.7, 0.3]], [[0.1, 0.9], [0.9, 0.1]], [[0.3, 0.7]] * 2])
        >>> select_members(pool, [0, 1])
        [0, 2]
    """
    logs, truth = check_predictions(log_probs, labels)
    count = len(logs)
    check_size(size, None if replacement else count)
    # Among members that are all infinitely wrong, the one that is so least often wins.
    pool, which = np.maximum(logs, RULED_OUT), truth
    if combine == "probabilities":  # of which only the truth's count
        pool, which = np.take_along_axis(pool, truth[None, :, None], axis=2), np.zeros_like(truth)

    def likelihood(members: list[int]) -> float:
        joint = ensemble_log_probs(pool[members], combine)
        return float(joint[np.arange(len(truth)), which].mean())

    chosen: list[int] = []
    best = -np.inf
    while len(chosen) < (size or count):
        candidates = [i for i in range(count) if replacement or i not in chosen]
        scores = [likelihood([*chosen, i]) for i in candidates]
        winner = int(np.argmax(scores))
        if size is None and scores[winner] < best + LEAST_GAIN:
            break
        best = scores[winner]
        chosen.append(candidates[winner])
    return chosen
