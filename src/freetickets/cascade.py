"""Cascades: members answer in turn, and later ones are asked only what earlier ones leave open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .calibration import RULED_OUT, Temperature
from .errors import FreeTicketsError, check_known
from .metrics import ensemble_log_probs
from .metrics.arrays import Array, check_predictions
from .metrics.predictive import RULES
from .reading import read

if TYPE_CHECKING:
    from torch import Tensor

Integers = npt.NDArray[np.int64]

# How much of each score may be lost, unless one says otherwise.
ALLOWED = {"accuracy": 0.002, "nll": 0.01}
_MOST_THRESHOLDS = 200  # that are tried
_MARGIN = 5e-6


@dataclass(frozen=True)
class Cascade:
    """When members that answer in turn have said enough.

    They have if the joint answer of those asked so far, at the ensemble's temperature, gives some
    class at least the probability `threshold`, or if at least `votes` of them predict the same
    class.

    Attributes:
        members: How many there are; the last one's answer ends it in any case.
        threshold: The lowest sufficient probability; None: no probability is enough.
        votes: The lowest sufficient number of votes; None: no number is enough.
        combine: The rule to combine members that it was fitted for.
        temperatures: The values of the temperature that it was fitted at, if any.

    Example:
        >>> says = np.log([[[0.9, 0.1], [0.6, 0.4]], [[0.7, 0.3], [0.2, 0.8]]])
        >>> cascade = Cascade(members=2, threshold=0.85)
        >>> cascade.asked(says, prefixes(says)).tolist()
        [1, 2]
    """

    members: int
    threshold: float | None = None
    votes: int | None = None
    combine: str = "probabilities"
    temperatures: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_known("rule to combine members", str(self.combine), RULES)
        if self.members < 1 or (self.votes is not None and self.votes < 1):
            raise FreeTicketsError("a cascade has 1 member or more, and needs 1 vote or more")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise FreeTicketsError(f"a threshold is a probability, not {self.threshold}")

    def enough(self, said: Array, joint: Array) -> npt.NDArray[np.bool_]:
        """Whether what the first said, (m, N, C), and say together, (N, C), is enough, (N,)."""
        if len(said) >= self.members:
            return np.ones(len(joint), dtype=bool)
        return self._enough(*_signs(said, joint))

    def asked(self, said: Array, joints: Array) -> Integers:
        """How many members each sample takes, (N,), given what all say, see `prefixes`."""
        enough = [self.enough(said[:m], joint) for m, joint in enumerate(joints, start=1)]
        return np.argmax(enough, axis=0) + 1

    def _enough(self, confidence: Array, votes: Integers) -> npt.NDArray[np.bool_]:
        found = np.zeros(confidence.shape, dtype=bool)
        if self.threshold is not None:
            found |= confidence >= self.threshold
        if self.votes is not None:
            found |= votes >= self.votes
        return found

    def as_dict(self) -> dict[str, Any]:
        """Returns it as plain data, for a file."""
        return {**asdict(self), "temperatures": list(self.temperatures)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Cascade:
        """Returns what `as_dict` described."""
        return cls(**vars(read(cls, saved)))


class EarlyAnswers(NamedTuple):
    """What members asked in turn say.

    Attributes:
        log_proba: Log-probabilities of the classes, (N, C), of those asked together.
        asked: How many were asked, (N,).
        uncertainty: How unsure those members are, as `Ensemble.uncertainty` gives it.
    """

    log_proba: Array
    asked: Integers
    uncertainty: Any


def prefixes(
    said: Array, combine: str = "probabilities", temperature: Temperature | None = None
) -> Array:
    """What the first member, the first two, ... say together, (M, N, C).

    `said` are log-probabilities (M, N, C), at the members' own temperatures, if they have any.
    """
    joints = [ensemble_log_probs(said[:m], combine) for m in range(1, len(said) + 1)]
    return np.stack([x if temperature is None else temperature.scale_ensemble(x) for x in joints])


def answers(joints: Array, asked: Integers) -> Array:
    """What is answered, (N, C), if so many members are asked about each sample."""
    found: Array = joints[asked - 1, np.arange(len(asked))]
    return found


def fit_cascade(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, *, score: str = "accuracy",
    allowed: float | None = None, combine: str = "probabilities",
    temperature: Temperature | None = None,
) -> Cascade:  # fmt: skip
    """Finds the cascade that asks the fewest members, and loses no more than is allowed.

    The loss is how much worse the cascade's `score` (accuracy as a share, or NLL) is on this data
    than that of all members: the mean over samples of the difference, plus one standard error of
    that mean, which is paired, since both answer the same samples. One more sample counts, of which
    1 is lost (an answer, or a nat): else few samples on which both agree would prove anything.
    Tried are thresholds at quantiles of the confidences, with each number of votes and without; of
    cascades that ask as few members, the one that loses least is taken.

    Args:
        log_probs: What members say, (M, N, C), at their own temperatures, if they have any.
        labels: The truth, (N,), not used for training or testing.
        score: "accuracy" or "nll".
        allowed: The loss; None: 0.002 of accuracy, or 0.01 of NLL.
        combine: The rule to combine members.
        temperature: The ensemble's, which every answer is given at.

    Example:
        >>> sure, unsure = [0.99, 0.01], [0.4, 0.6]
        >>> says = np.log([[sure] * 1800 + [unsure] * 200, [sure] * 2000])
        >>> cascade = fit_cascade(says, [0] * 2000)
        >>> round(cascade.threshold, 2), cascade.votes
        (0.99, None)
    """
    check_known("score of a cascade", score, ALLOWED)
    limit = ALLOWED[score] if allowed is None else allowed
    said, truth = check_predictions(log_probs, labels)
    joints = prefixes(said, combine, temperature)
    if score == "accuracy":
        losses = (joints.argmax(-1) != truth).astype(np.float64)
    else:
        losses = -np.maximum(joints[:, np.arange(len(truth)), truth], RULED_OUT)
    signs = [_signs(said[:m], joint) for m, joint in enumerate(joints[:-1], start=1)]
    values = () if temperature is None else temperature.values
    best = Cascade(len(said), None, None, combine, values)
    if not signs:
        return best
    confidence, votes = (np.stack(each) for each in zip(*signs, strict=True))
    least = (float(len(said)), np.inf)
    for threshold, needed in product(_thresholds(confidence), [None, *range(2, len(said))]):
        tried = Cascade(len(said), threshold, needed, combine, values)
        enough = tried._enough(confidence, votes)
        asked = np.where(enough.any(axis=0), enough.argmax(axis=0), len(signs))
        extra = np.append(losses[asked, np.arange(len(truth))] - losses[-1], 1.0)
        loss = float(extra.mean())
        if loss + extra.std(ddof=1) / np.sqrt(len(extra)) > limit:
            continue
        if (found := (float(asked.mean()) + 1, loss)) < least:
            best, least = tried, found
    return best


def in_turn(
    cascade: Cascade, batches: Iterable[Tensor], ask: Callable[[int, Tensor], Array],
    join: Callable[[Array], Array], size: int,
) -> Iterator[tuple[Integers, Array, Array]]:  # fmt: skip
    """Asks members in turn, later ones about as many samples at a time as the first, if it can be.

    Args:
        cascade: When they have said enough.
        batches: The inputs.
        ask: What a member says of inputs, (1, n, C).
        join: What members say together, (n, C).
        size: The samples of a batch.

    Yields:
        The places of samples that are answered, what those asked said, and say together.
    """
    import torch

    waiting: list[list[tuple[Integers, Tensor, Array]]] = [[] for _ in range(cascade.members + 1)]

    def take(member: int, least: int) -> Iterator[tuple[Integers, Array, Array]]:
        while (count := sum(len(places) for places, _, _ in waiting[member])) >= max(least, 1):
            parts = zip(*waiting[member], strict=True)
            places, inputs, said = next(parts), next(parts), next(parts)
            at, x, told = np.concatenate(places), torch.cat(inputs), np.concatenate(said, axis=1)
            waiting[member] = [(at[size:], x[size:], told[:, size:])] if count > size else []
            at, x, told = at[:size], x[:size], told[:, :size]
            new = ask(member, x)
            told = np.concatenate([told, new]) if member else new
            joint = join(told)
            done = cascade.enough(told, joint)
            if done.any():
                yield at[done], told[:, done], joint[done]
            if not done.all():
                rest = x[torch.from_numpy(~done).to(x.device)]
                waiting[member + 1].append((at[~done], rest, told[:, ~done]))

    first = 0
    for batch in batches:
        nothing = np.empty((0, len(batch), 0))
        waiting[0].append((np.arange(first, first + len(batch)), batch, nothing))
        first += len(batch)
        for member in range(cascade.members):
            yield from take(member, size if member else 1)
    for member in range(1, cascade.members):
        yield from take(member, 1)


def _signs(said: Array, joint: Array) -> tuple[Array, Integers]:
    """The highest probability of what is said together, and the most votes for a class, (N,)."""
    classes = said.argmax(axis=-1)
    return np.exp(joint.max(axis=-1)), (classes[:, None] == classes).sum(axis=0).max(axis=0)


def _thresholds(confidence: Array) -> list[float | None]:
    """Thresholds to try, and none: just below confidences, so that rounding decides nothing."""
    distinct = np.unique(confidence.round(5)).clip(_MARGIN) - _MARGIN
    places = np.linspace(0, len(distinct) - 1, min(len(distinct), _MOST_THRESHOLDS))
    return [None, *distinct[places.round().astype(int)].tolist()]
