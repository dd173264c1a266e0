"""Fast geometric ensembling: short linear cycles at the end of one dense training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import FreeTicketsError
from .events import Collect
from .method import Method, Setting, check_tickets
from .plan import Phase, Plan, Run, Stretch
from .snapshot import check_budget

# The usual schedule of one dense training for FGE: the full rate for half of it, then a straight
# line down to a hundredth, reached after nine tenths.
_FALL_BEGINS, _FALL_ENDS, _FLOOR = 0.5, 0.9, 0.01


@dataclass(frozen=True)
class FGE(Method):
    """One dense training, then cycles between two small rates, a ticket at each low one.

    Attributes:
        tickets: Number of networks to collect (M).
        budget: Length of the training, as a multiple of one dense training; the paper's "1B" is
            0.8: 200 epochs against 250.
        pretraining: Share of the training that comes before the first cycle.
        high: Highest learning rate of a cycle, as a share of the initial one.
        low: Lowest learning rate of a cycle, as a share of the initial one.
    """

    name: ClassVar[str] = "fge"
    summary: ClassVar[str] = "one dense training that ends in short cycles, a member in each"
    paper: ClassVar[str] = "Garipov et al. 2018"

    tickets: int = 5
    budget: float = 0.8
    pretraining: float = 0.8
    high: float = 0.5
    low: float = 0.005

    def __post_init__(self) -> None:
        check_tickets(self.tickets)
        check_budget(self.budget)
        if not 0 < self.pretraining < 1:
            raise FreeTicketsError(f"pretraining must lie between 0 and 1, not {self.pretraining}")
        if not 0 < self.low < self.high < math.inf:
            raise FreeTicketsError(f"low must be below high, not {self.low} and {self.high}")

    def plan(self, setting: Setting) -> Plan:
        """One run: pretraining, then M cycles, of which the last ends at its minimum."""
        recipe, lr = setting.recipe, setting.initial_lr
        scale = setting.scale(self.budget * recipe.dense_epochs)
        epochs = self.budget * recipe.dense_epochs * scale
        # A network is collected in the middle of a cycle, where the rate is lowest.
        half = epochs * (1 - self.pretraining) / (2 * self.tickets - 1)
        high, low = lr * self.high, lr * self.low
        fall, rise = Stretch(half, high, low, "approach"), Stretch(half, low, high, "approach")
        phases = [Phase("pretrain", self._pretraining(epochs, lr))]
        for number in range(1, self.tickets + 1):
            schedule = (fall,) if number == 1 else (rise, fall)
            phases.append(Phase(f"cycle {number}", schedule, at_end=(Collect(),)))
        return Plan(self.name, (Run(setting.seed, tuple(phases)),), recipe.dense_epochs * scale)

    def _pretraining(self, epochs: float, lr: float) -> tuple[Stretch, ...]:
        """The usual schedule, cut off where the cycles begin."""
        flat = min(self.pretraining, _FALL_BEGINS)
        stretches = [Stretch(flat * epochs, lr)]
        falling = min(self.pretraining, _FALL_ENDS) - flat
        if falling > 0:
            share = falling / (_FALL_ENDS - _FALL_BEGINS)
            end = lr * (1 - share * (1 - _FLOOR))
            stretches.append(Stretch(falling * epochs, lr, end, "linear"))
        if self.pretraining > _FALL_ENDS:
            stretches.append(Stretch((self.pretraining - _FALL_ENDS) * epochs, lr * _FLOOR))
        return tuple(stretches)
