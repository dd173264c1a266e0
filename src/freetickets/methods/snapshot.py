"""Snapshot ensembles: one dense training with a cyclic learning rate, a ticket at each minimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import FreeTicketsError
from .events import Collect
from .method import Method, Setting, check_tickets
from .plan import Phase, Plan, Run, Stretch


@dataclass(frozen=True)
class Snapshot(Method):
    """One dense training whose learning rate falls and starts again, once for each ticket.

    Attributes:
        tickets: Number of snapshots to take (M).
        budget: Length of the training, as a multiple of one dense training; the paper's "1B" is
            0.8: 200 epochs against 250.
    """

    name: ClassVar[str] = "snapshot"
    summary: ClassVar[str] = "one dense training with cosine cycles, a member at the end of each"
    paper: ClassVar[str] = "Huang et al. 2017"

    tickets: int = 12
    budget: float = 0.8

    def __post_init__(self) -> None:
        check_tickets(self.tickets)
        check_budget(self.budget)

    def plan(self, setting: Setting) -> Plan:
        """One run: M cycles of the same length, each a cosine from the full rate to zero."""
        recipe = setting.recipe
        scale = setting.scale(self.budget * recipe.dense_epochs)
        epochs = self.budget * recipe.dense_epochs * scale / self.tickets
        cycle = (Stretch(epochs, setting.initial_lr, 0.0, "cosine"),)
        phases = tuple(
            Phase(f"cycle {number}", cycle, at_end=(Collect(),))
            for number in range(1, self.tickets + 1)
        )
        return Plan(self.name, (Run(setting.seed, phases),), recipe.dense_epochs * scale)


def check_budget(budget: float) -> None:
    """Raises unless a training can have this length."""
    if not 0 < budget < math.inf:
        raise FreeTicketsError(f"budget must be positive, not {budget}")
