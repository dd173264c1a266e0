"""The lottery-ticket-rewinding ensemble: one mask, trained again and again from an early moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import FreeTicketsError
from ..sparsity.schedule import anneal
from .events import Remember
from .method import Interval, Setting, Share, SparseMethod
from .plan import Phase, Plan, PruningPlan, Run, Start, Stretch


@dataclass(frozen=True)
class LTR(SparseMethod):
    """A dense training is pruned gradually; its mask is trained M times from an early state.

    Attributes:
        rewind: Point in the training to go back to, as a share of its length.
        prune_from: When gradual pruning begins, as a share of the training after that point.
        prune_until: When gradual pruning ends, as a share of the same.
        interval: Steps between two prunings (default: the recipe's).
    """

    name: ClassVar[str] = "ltr"
    summary: ClassVar[str] = "one pruned mask, trained again from an early state for each member"
    paper: ClassVar[str] = "Frankle et al. 2020"

    rewind: Share = 0.05
    # The paper gives no schedule. Only the mask is used, so nothing has to recover after pruning.
    prune_from: float = 0.5
    prune_until: float = 1.0
    interval: Interval | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.criterion != "random":
            raise FreeTicketsError(
                "ltr finds its mask by training: leave criterion out, or use static or dst"
            )
        if not 0 <= self.prune_from < self.prune_until <= 1:
            raise FreeTicketsError(
                f"prune_from must lie below prune_until, both within 0 to 1: {self.prune_from}, "
                f"{self.prune_until}"
            )

    def plan(self, setting: Setting) -> Plan:
        """One run that finds the mask, and one for each ticket; seeds and data orders differ."""
        recipe = setting.recipe
        scale = setting.scale(recipe.dense_epochs)
        schedule = recipe.dense_schedule(scale, setting.initial_lr)
        early, late = cut(schedule, self.rewind * recipe.dense_epochs * scale)
        interval = self.interval or recipe.interval
        pruning = PruningPlan(0.0, self.prune_from, self.prune_until, interval)
        search = Run(
            setting.seed,
            (
                Phase("begin", early, at_end=(Remember("early"),)),
                Phase("prune", late, self.sparsity, pruning=pruning, at_end=(Remember("pruned"),)),
            ),
        )
        retrain = Phase("retrain", late, self.sparsity, at_end=(setting.collect,))
        runs = tuple(
            Run(setting.seed + 1 + i, (retrain,), Start("early", "pruned"))
            for i in range(self.tickets)
        )
        dense = recipe.dense_epochs * scale
        return Plan(self.name, (search, *runs), dense, self.sparse_options(recipe))


def cut(
    schedule: tuple[Stretch, ...], epochs: float
) -> tuple[tuple[Stretch, ...], tuple[Stretch, ...]]:
    """Cuts a schedule of constant and linear rates in two.

    Example:
        >>> before, after = cut((Stretch(10, 0.1), Stretch(5, 0.01)), 12)
        >>> [stretch.epochs for stretch in before], [stretch.epochs for stretch in after]
        ([10, 2], [3])
        >>> cut((Stretch(4, 0.2, 0.6, "linear"),), 2)[1]
        (Stretch(epochs=2, lr=0.4, end_lr=0.6, shape='linear'),)
    """
    before, after, left = [], [], epochs
    for stretch in schedule:
        first = min(stretch.epochs, max(0, left))
        left -= stretch.epochs
        between = anneal(stretch.shape, stretch.lr, stretch.end_lr, first / stretch.epochs)
        if first > 0:
            end = between if stretch.shape == "linear" else stretch.end_lr
            before.append(replace(stretch, epochs=first, end_lr=end))
        if first < stretch.epochs:
            after.append(replace(stretch, epochs=stretch.epochs - first, lr=between))
    return tuple(before), tuple(after)
