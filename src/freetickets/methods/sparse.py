"""Methods of sparse trainings: one with many tickets (EDST), independent ones, and LTR."""

from dataclasses import dataclass, replace

from ..errors import FreeTicketsError
from ..reading import Positive
from ..sparsity.named import sparse_method
from ..sparsity.schedule import anneal
from .events import Escape, Remember
from .method import ExploringMethod, Interval, Rate, Setting, Share, SparseMethod
from .plan import Phase, Plan, PruningPlan, Run, Start, Stretch


@dataclass(frozen=True)
class EDST(ExploringMethod):
    """One sparse training that explores, then refines and collects tickets, escaping in between.

    Attributes:
        escape_rate: Share of the active weights that an escape replaces (q).
        refinement: Length of each refinement, as a multiple of the recipe's; change it to fit more
            or fewer tickets into the same time.
        refinement_height: Learning rate at the start of each refinement, as a share of the initial
            one (default: the recipe's).
    """

    name = "edst"
    summary = "one sparse training that collects all its tickets"
    paper = "Liu et al. 2022"

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
        refined = self.tickets * self.refinement * sum(epochs for epochs, _ in recipe.refine)
        scale = setting.scale(recipe.explore_epochs + refined)
        exploring = self.sparsity, self.exploration(setting)
        start = recipe.explore_schedule(scale, lr)
        explore = Phase("explore", start, *exploring, self.pruning(setting))
        schedule = recipe.refine_schedule(scale * self.refinement, lr, self.refinement_height)
        ends = [(setting.collect, Escape(self.escape_rate))] * (self.tickets - 1)
        refinements = [
            Phase(f"refine {ticket}", schedule, *exploring, at_end=end)
            for ticket, end in enumerate([*ends, (setting.collect,)], start=1)
        ]
        run = Run(setting.seed, (explore, *refinements))
        return Plan(self.name, (run,), recipe.dense_epochs * scale, self.sparse_options(recipe))


@dataclass(frozen=True)
class DST(ExploringMethod):
    """Sparse networks that explore their topologies, trained independently."""

    name = "dst"
    summary = "sparse networks that explore, trained independently"
    paper = "Liu et al. 2022"


@dataclass(frozen=True)
class Static(SparseMethod):
    """Sparse networks with random fixed topologies, trained independently."""

    name = "static"
    summary = "sparse networks with fixed topologies, trained independently"
    paper = "Liu et al. 2022 (baseline)"


@dataclass(frozen=True)
class LTR(SparseMethod):
    """A dense network is pruned gradually; its mask is then trained M times from an early state.

    Attributes:
        rewind: Point in the training to go back to, as a share of its length.
        prune_from: When gradual pruning begins, as a share of the training after that point.
        prune_until: When gradual pruning ends, as a share of the same stretch.
        interval: Steps between two prunings (default: the recipe's).
    """

    name = "ltr"
    summary = "one pruned mask, trained again from an early state for each member"
    paper = "Frankle et al. 2020"

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
        recipe, seed = setting.recipe, setting.seed
        scale = setting.scale(recipe.dense_epochs)
        schedule = recipe.dense_schedule(scale, setting.initial_lr)
        early, late = cut(schedule, self.rewind * recipe.dense_epochs * scale)
        interval = self.interval or recipe.interval
        pruning = PruningPlan(0.0, self.prune_from, self.prune_until, interval)
        begin = Phase("begin", early, at_end=(Remember("early"),))
        prune = Phase("prune", late, self.sparsity, None, pruning, (Remember("pruned"),))
        retrain = Phase("retrain", late, self.sparsity, at_end=(setting.collect,))
        start = Start("early", "pruned")
        retrainings = (Run(seed + 1 + i, (retrain,), start) for i in range(self.tickets))
        runs = (Run(seed, (begin, prune)), *retrainings)
        return Plan(self.name, runs, recipe.dense_epochs * scale, self.sparse_options(recipe))


Schedule = tuple[Stretch, ...]


def cut(schedule: Schedule, epochs: float) -> tuple[Schedule, Schedule]:
    """Cuts a schedule of constant and linear rates in two."""
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
