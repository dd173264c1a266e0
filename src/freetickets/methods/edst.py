"""The EDST ensemble: many tickets of one sparse training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import FreeTicketsError
from ..reading import Positive
from ..sparsity.named import sparse_method
from .events import Escape
from .method import ExploringMethod, Rate, Setting
from .plan import Phase, Plan, Run


@dataclass(frozen=True)
class EDST(ExploringMethod):
    """One sparse training that explores once, then refines, collects and escapes ticket by ticket.

    Attributes:
        escape_rate: Share of the active weights that an escape replaces (q).
        refinement: Length of each refinement, as a multiple of the recipe's; change it to fit more
            or fewer tickets into the same time.
        refinement_height: Learning rate at the start of each refinement, as a share of the initial
            one (default: the recipe's).
    """

    name: ClassVar[str] = "edst"
    summary: ClassVar[str] = "one sparse training that collects all its tickets"
    paper: ClassVar[str] = "Liu et al. 2022"

    escape_rate: Rate = 0.8
    refinement: Positive = 1.0
    refinement_height: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = sparse_method(self.explorer)
        if parts.reserve or parts.prune_scope == "threshold":
            raise FreeTicketsError(
                f"edst can't escape with {self.explorer}, which decides by itself how many weights "
                "to replace: use dst"
            )

    def plan(self, setting: Setting) -> Plan:
        """One run: explore, then M x (refine, collect), with an escape between two tickets."""
        recipe, lr = setting.recipe, setting.initial_lr
        full = recipe.explore_epochs + self.tickets * self.refinement * recipe.refine_epochs
        scale = setting.scale(full)
        exploration = self.exploration(setting)
        explore = Phase(
            "explore",
            recipe.explore_schedule(scale, lr),
            self.sparsity,
            exploration,
            self.pruning(setting),
        )
        refinements = [
            Phase(
                f"refine {ticket}",
                recipe.refine_schedule(scale * self.refinement, lr, self.refinement_height),
                self.sparsity,
                exploration,
                at_end=(setting.collect, Escape(self.escape_rate))
                if ticket < self.tickets
                else (setting.collect,),
            )
            for ticket in range(1, self.tickets + 1)
        ]
        run = Run(setting.seed, (explore, *refinements))
        return Plan(self.name, (run,), recipe.dense_epochs * scale, self.sparse_options(recipe))
