"""Temperature scaling: corrects an ensemble's confidence on data that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import FreeTicketsError, check_known
from .metrics import ensemble_log_probs
from .metrics.arrays import Array, Labels, check_predictions, normalise
from .metrics.predictive import RULES
from .reading import read

SCOPES = ("ensemble", "members")

# Labels that a network separates perfectly ask for T = 0: it has to end somewhere.
HIGHEST = 20.0  # and the lowest is 1 / HIGHEST

# Stands for -inf where a product with 0 would be NaN: too low to count at any temperature.
RULED_OUT = -1e5


@dataclass(frozen=True)
class Temperature:
    """A number that divides log-probabilities: above 1 they become less certain, below 1 more so.

    Attributes:
        values: One number for the ensemble, or one for each member.
        scope: "ensemble" changes the combined prediction, "members" what goes into it.
        combine: The rule to combine members that it was fitted for.

    Example:
        >>> Temperature((2.0,)).apply(np.log([[[0.9, 0.1]]])).round(2).tolist()
        [[[-0.29, -1.39]]]
    """

    values: tuple[float, ...]
    scope: str = "ensemble"
    combine: str = "probabilities"

    def __post_init__(self) -> None:
        check_scope(self.scope)
        check_known("rule to combine members", str(self.combine), RULES)
        if not self.values or not all(0 < value < math.inf for value in self.values):
            raise FreeTicketsError(f"temperatures must be positive numbers, not {self.values}")
        if self.scope == "ensemble" and len(self.values) != 1:
            one = f"an ensemble has one temperature, not {len(self.values)}"
            raise FreeTicketsError(f"{one}: did you mean the scope 'members'?")

    def apply(self, log_probs: npt.ArrayLike) -> Array:
        """Scales log-probabilities (M, N, C); an ensemble becomes its only member, (1, N, C)."""
        logs = np.asarray(log_probs, dtype=np.float64)
        if self.scope == "members":
            return self.scale_members(logs)
        return self.scale_ensemble(ensemble_log_probs(logs, self.combine))[None]

    def scale_members(self, log_probs: Array) -> Array:
        """The members (M, N, C) at this temperature; unchanged if it is the ensemble's."""
        if self.scope == "ensemble":
            return log_probs
        self.check_members(len(log_probs))
        return normalise(log_probs / np.array(self.values)[:, None, None])

    def scale_ensemble(self, log_probs: Array) -> Array:
        """The ensemble's prediction (N, C) at this temperature; unchanged if it is the members'."""
        return log_probs if self.scope == "members" else normalise(log_probs / self.values[0])

    def check_members(self, count: int) -> None:
        """Raises if it was fitted to another number of members."""
        if self.scope == "members" and count != len(self.values):
            fitted = f"there are temperatures for {len(self.values)} members"
            raise FreeTicketsError(f"{fitted}, not for {count}: fit them again")

    def as_dict(self) -> dict[str, Any]:
        """Returns it as plain data, for a file."""
        return {**asdict(self), "values": list(map(float, self.values))}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Temperature:
        """Returns what `as_dict` described."""
        try:
            return cls(**vars(read(cls, saved)))
        except FreeTicketsError as error:
            hint = "fit it again on the validation data"
            raise FreeTicketsError(f"not a temperature ({error}): {hint}") from error


def check_scope(scope: str) -> None:
    """Raises unless a temperature can be fitted for this scope."""
    check_known("scope of a temperature", str(scope), SCOPES)


def fit_temperature(
    log_probs: npt.ArrayLike, labels: npt.ArrayLike, *, scope: str = "ensemble",
    combine: str = "probabilities",
) -> Temperature:  # fmt: skip
    """Finds the temperature that gives the ensemble its lowest NLL, never above that at T = 1.

    Members are fitted jointly, for their joint prediction: members that are each well calibrated
    make an ensemble that is less sure than it should be. The NLL of their mean probability may have
    several minima; one near T = 1 is found. Samples whose true class is ruled out don't count. Pass
    data that was not used for training and will not be used for testing: log-probabilities (M, N,
    C) and labels (N,).

    Example:
        >>> certain, right_two_times_of_three = np.log([[[0.99, 0.01]] * 3]), [0, 0, 1]
        >>> scaled = fit_temperature(certain, right_two_times_of_three).apply(certain)
        >>> np.exp(scaled[0, 0]).round(3).tolist()
        [0.667, 0.333]
    """
    logs, truth = check_predictions(log_probs, labels)
    start = Temperature((1.0,) * (len(logs) if scope == "members" else 1), scope, combine)
    if scope == "ensemble":
        logs = ensemble_log_probs(logs, combine)[None]
    possible = np.isfinite(_pick(logs, truth))
    # A truth that is ruled out is so at any temperature: the other samples decide.
    kept = possible.any(axis=0) if combine == "probabilities" else possible.all(axis=0)
    if not kept.any():
        return start
    logs, truth = np.maximum(logs[:, kept], RULED_OUT), truth[kept]
    found = _minimise(lambda at: _loss_and_slope(at, logs, truth, combine), len(logs))
    return Temperature(tuple(np.exp(found).tolist()), scope, combine)


def _pick(log_probs: Array, labels: Labels) -> Array:
    """What each member says of the truth, (M, N)."""
    return log_probs[:, np.arange(len(labels)), labels]


def _loss_and_slope(log_t: Array, logs: Array, labels: Labels, combine: str) -> tuple[float, Array]:
    """The ensemble's NLL with members at temperatures exp(log_t), and its slope in log_t."""
    inverse = np.exp(-log_t)
    scaled = logs * inverse[:, None, None]
    if combine == "logits":
        combined = ensemble_log_probs(scaled, combine)[None]
        probs, likelihood = np.exp(combined), _pick(combined, labels)[0]
        shares = np.full((len(logs), 1), 1 / len(logs))
    else:
        members = normalise(scaled)
        probs, of_truth = np.exp(members), _pick(members, labels)
        likelihood = ensemble_log_probs(of_truth[..., None], combine)[:, 0]
        shares = np.exp(of_truth - likelihood) / len(logs)  # of each member in the probability
    # By how much a member's word for the truth exceeds the one that it should expect of itself.
    excess = _pick(logs, labels) - (probs * logs).sum(axis=-1)
    return -float(likelihood.mean()), (shares * excess).mean(axis=-1) * inverse


def _minimise(loss_and_slope: Callable[[Array], tuple[float, Array]], count: int) -> Array:
    """BFGS from zeros within ± log HIGHEST, where each step lowers the loss."""
    limit = math.log(HIGHEST)
    at = np.zeros(count)
    loss, slope = loss_and_slope(at)
    inverse = np.eye(count) / max(float(np.abs(slope).max()), 1e-300)  # first try a step of 1
    for _ in range(200):
        free = (np.abs(at) < limit) | (slope * at > 0)  # not held by a bound
        step = free * (inverse @ (free * -slope))
        if -slope @ step <= 1e-13 * loss:
            break
        step /= max(1.0, float(np.abs(step).max()))
        for halvings in range(30):
            there = np.clip(at + step * 0.5**halvings, -limit, limit)
            new_loss, new_slope = loss_and_slope(there)
            if new_loss < loss + 1e-4 * slope @ (there - at):
                break
        else:
            break  # what is left to gain drowns in rounding
        moved, turned = there - at, new_slope - slope
        at, loss, slope = there, new_loss, new_slope
        if (curvature := moved @ turned) > 0:
            rest = np.eye(count) - np.outer(moved, turned) / curvature
            inverse = rest @ inverse @ rest.T + np.outer(moved, moved) / curvature
    return at
