"""One dense network, and the ensemble of several: what every cost and score is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .method import Method, Setting, check_tickets
from .plan import Phase, Plan, Run


@dataclass(frozen=True)
class Dense(Method):
    """One dense network.

    Attributes:
        tickets: Number of networks to train independently (M).
    """

    name: ClassVar[str] = "dense"
    summary: ClassVar[str] = "one dense network"
    paper: ClassVar[str] = "-"

    tickets: int = 1

    def __post_init__(self) -> None:
        check_tickets(self.tickets)

    def plan(self, setting: Setting) -> Plan:
        """One run for each network, with different seeds."""
        recipe = setting.recipe
        scale = setting.scale(recipe.dense_epochs)
        schedule = recipe.dense_schedule(scale, setting.initial_lr)
        phase = Phase("train", schedule, at_end=(setting.collect,))
        runs = tuple(Run(setting.seed + i, (phase,)) for i in range(self.tickets))
        return Plan(self.name, runs, recipe.dense_epochs * scale)


@dataclass(frozen=True)
class DenseEnsemble(Dense):
    """Several dense networks, trained independently."""

    name: ClassVar[str] = "dense-ensemble"
    summary: ClassVar[str] = "several dense networks, trained independently"
    paper: ClassVar[str] = "Lakshminarayanan et al. 2017"

    tickets: int = 4
