"""How sure a difference of two methods is: Student's t over seeds and test images together.

The rule stands in docs/reproduce.md, under "Medium: the rule"; the names of variances are its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError

LEVEL = 0.05  # the p-value that decides
POWER = 0.8


@dataclass(frozen=True)
class Estimate:
    """A difference, and its variance from two sources; one without any noise is exact."""

    value: float
    training: float = 0.0  # its variance over trainings
    freedom: float = math.inf  # degrees of freedom of that
    sampling: float = 0.0  # its variance over test images
    samples: int = 0  # how many images that is told by

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.training + self.sampling)

    @property
    def degrees(self) -> float:
        """The degrees of freedom of both sources together, by Welch and Satterthwaite."""
        parts = [self.training**2 / self.freedom]
        parts += [self.sampling**2 / (self.samples - 1)] if self.sampling else []
        return (self.training + self.sampling) ** 2 / sum(parts) if any(parts) else math.inf

    def interval(self) -> tuple[float, float]:
        """Where the difference lies with a confidence of 95 %."""
        reach = self._quantile(1 - LEVEL / 2) * self.error
        return self.value - reach, self.value + reach

    def p(self, bound: float = 0.0) -> float:
        """How likely a difference as far from a bound is if the true one is that (two-sided)."""
        if not self.error:
            return float(self.value == bound)
        above = self.p_above(bound)
        return 2 * min(above, 1 - above)

    def p_above(self, bound: float) -> float:
        """How likely one as far above a bound is if the true one is that or less (one-sided)."""
        away = self.value - bound
        if not self.error:
            return 1.0 if away <= 0 else 0.0
        return float(_scipy().stdtr(self.degrees, -away / self.error))

    def detectable(self, tests: int = 1) -> float:
        """The smallest difference that is found in 80 % of cases, among so many tests."""
        return (self._quantile(1 - LEVEL / (2 * tests)) + self._quantile(POWER)) * self.error

    def _quantile(self, share: float) -> float:
        return float(_scipy().stdtrit(self.degrees, share))


def pooled_variance(scores: npt.ArrayLike) -> tuple[float, float]:
    """What is left of scores (K methods, S seeds) beside their means; its degrees of freedom.

    What a seed does to all methods alike cancels in a difference, so it is taken out.

    Example:
        >>> pooled_variance([[0.5, 0.6, 0.7], [0.7, 0.8, 0.9]])[1]
        2.0
    """
    table = np.asarray(scores, dtype=np.float64)
    rest = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return float((rest**2).sum() / freedom), float(freedom)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusts the p-values of several tests: any that is wrongly below 5 % is as rare as 5 %.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        least = max(least, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = least
    return adjusted


def _scipy() -> Any:
    try:
        from scipy import special
    except ImportError:
        raise MissingExtraError("judging claims", "report") from None
    return special
