"""What every method is: options as a data class, and a plan made of them."""

from __future__ import annotations

import inspect
import typing
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ..errors import FreeTicketsError, check_known
from ..reading import Count, must, read
from ..sparsity.distribution import DEFAULT_SPARSITY
from ..sparsity.named import CRITERION_NAMES, PRUNED_AT, check_score_name, sparse_method
from .events import Collect
from .plan import ExplorationPlan, Phase, Plan, PruningPlan, Run, SparseOptions
from .recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

    from ..ensemble import Ensemble

# The ranges of options, beside those of `reading`.
Share = Annotated[float, must("lie between 0 and 1", lambda share: 0 < share < 1)]
Rate = Annotated[float, must("lie between 0 and 1", lambda rate: 0 <= rate <= 1)]
Interval = Annotated[int, must("be at least 1 step", lambda steps: steps >= 1)]

PRESETS = {
    "robust": "the network as it is after a quiet period without exploration",
    "paper": "the authors' schedule: explore to the last step, collect the best on validation data",
}


@dataclass(frozen=True)
class Setting:
    """What a plan depends on besides the method's own options; None: as in the recipe."""

    recipe: Recipe
    epochs: float | None = None  # the length of the method's run
    lr: float | None = None  # the initial learning rate
    preset: str = "robust"  # or "paper": which state of the network becomes a ticket
    seed: int = 0  # of the first run; the others count up from it

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise FreeTicketsError(f"preset must be 'robust' or 'paper', not {self.preset!r}")
        if self.epochs is not None and self.epochs <= 0:
            raise FreeTicketsError(f"epochs must be positive, not {self.epochs}")

    def scale(self, full_epochs: float) -> float:
        """The length of this training, as a multiple of the recipe's."""
        return 1.0 if self.epochs is None else self.epochs / full_epochs

    @property
    def initial_lr(self) -> float:
        """The learning rate to start from."""
        return self.recipe.lr if self.lr is None else self.lr

    @property
    def collect(self) -> Collect:
        """How this preset collects a ticket."""
        return Collect("best" if self.preset == "paper" else "last")


class _Fit:
    """`training.fit` as a method, with the options in its signature and their help."""

    def __get__(self, method: Method | None, kind: type[Method]) -> Any:
        from ..training.fit import fit  # training imports methods; this is the one way back

        return fit.__get__(method, kind)


@dataclass(frozen=True)
class Method(ABC):
    """A method: a transform of the network, a plan, and a rule for combining the members.

    A subclass is a frozen data class whose fields are the method's options; the command line turns
    them into flags. Types that state a range (`Count`, `Share`) are checked.

    Attributes:
        name: What it is called; a method without a name of its own is called "module:Class".
        summary: What it does, in one line.
        paper: Who proposed it.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = "-"

    def __post_init__(self) -> None:
        for name, kind in _ranges(type(self)):
            read(kind, getattr(self, name), name)

    @abstractmethod
    def plan(self, setting: Setting) -> Plan:
        """Returns what this method trains."""

    def transform(self, model: nn.Module) -> nn.Module:
        """Returns the network that this method trains, made from a fresh one."""
        return model

    @property
    def transforms(self) -> bool:
        """Whether `transform` returns a different network."""
        return type(self).transform is not Method.transform

    if TYPE_CHECKING:

        def fit(self, model: Any, train_data: Any, **options: Any) -> Ensemble:
            """Trains the plan and returns the ensemble; see `freetickets.training.fit`."""
    else:
        fit = _Fit()


@cache
def _ranges(kind: type[Method]) -> list[tuple[str, Any]]:
    hints: list[tuple[str, Any]] = []
    for base in kind.__mro__:
        with suppress(NameError):  # the user's own, of a type that is not at hand
            hints += inspect.get_annotations(base, eval_str=True).items()
    return [
        (name, hint)
        for name, hint in hints
        if any(hasattr(each, "__metadata__") for each in (hint, *typing.get_args(hint)))
    ]


@dataclass(frozen=True)
class SparseMethod(Method):
    """The options that sparse methods share.

    Attributes:
        tickets: Number of tickets to collect (M).
        sparsity: Share of the weights that are zero in each ticket (S).
        distribution: How the active weights are divided among the layers: erk, er, uniform or
            uniform-dense-first.
        structure: Where the active weights may be: unstructured, fan-in, blocks (block-4x4) or N:M
            (2:4, which sets the sparsity itself). Layers that don't fit stay dense.
        criterion: How the first topology is chosen: random, magnitude, snip, grasp or synflow.
        exclude: Layers to keep dense, as patterns that match their names.
    """

    tickets: Count = 3
    sparsity: Share = DEFAULT_SPARSITY
    distribution: str = "erk"
    structure: str = "unstructured"
    criterion: str = "random"
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structure != "unstructured":
            from ..sparsity.structure import parse_structure  # needs torch, as flags do not

            settled = parse_structure(self.structure).settle(self.sparsity)
            object.__setattr__(self, "sparsity", settled)
        check_known("criterion", self.criterion, CRITERION_NAMES)

    def sparse_options(self, recipe: Recipe) -> SparseOptions:
        """How this method's networks are made."""
        own = {n: getattr(self, n) for n in ("distribution", "structure", "exclude", "criterion")}
        return SparseOptions(regrown_value=recipe.regrown_value, **own)

    def exploration(self, setting: Setting) -> ExplorationPlan | None:
        """How the topology is explored while it trains."""

    def pruning(self, setting: Setting) -> PruningPlan | None:
        """How the sparsity is reached, if training starts with more weights."""

    def plan(self, setting: Setting) -> Plan:
        """One sparse training for each ticket, with different seeds, topologies and data orders."""
        recipe = setting.recipe
        scale = setting.scale(recipe.sparse_epochs)
        schedule = recipe.sparse_schedule(scale, setting.initial_lr)
        changes = self.exploration(setting), self.pruning(setting)
        phase = Phase("train", schedule, self.sparsity, *changes, at_end=(setting.collect,))
        runs = tuple(Run(setting.seed + i, (phase,)) for i in range(self.tickets))
        return Plan(self.name, runs, recipe.dense_epochs * scale, self.sparse_options(recipe))


@dataclass(frozen=True)
class ExploringMethod(SparseMethod):
    """The options of sparse methods that explore.

    Attributes:
        explorer: How the topology changes: rigl, srigl, set, snfs, dsr, itop, mest, granet, gmp,
            top-kast.
        prune: Score by which an exploration keeps active weights (default: the explorer's own).
        grow: Score by which it activates inactive weights (default: the explorer's own).
        rate: Share of the active weights that each exploration replaces (p).
        interval: Steps between two explorations (ΔT) (default: the recipe's, or fewer
            where a training is too short to explore ten times).
    """

    explorer: str = "rigl"
    prune: str | None = None
    grow: str | None = None
    rate: Rate = 0.5
    interval: Interval | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        sparse_method(self.explorer)
        for score in (self.prune, self.grow):
            if score is not None:
                check_score_name(score)

    def sparse_options(self, recipe: Recipe) -> SparseOptions:
        """How this method's networks are made and explored."""
        parts, own = sparse_method(self.explorer), super().sparse_options(recipe)
        structure = parts.structure if own.structure == "unstructured" else own.structure
        prune, grow = self.prune or parts.prune, self.grow or parts.grow
        others = {n: getattr(parts, n) for n in ("prune_scope", "redistribute", "reserve")}
        return replace(own, structure=structure, prune=prune, grow=grow, **others)

    def exploration(self, setting: Setting) -> ExplorationPlan | None:
        """By the recipe's schedule, if the explorer explores at all."""
        if not sparse_method(self.explorer).explores:
            return None
        recipe, interval = setting.recipe, self.interval or setting.recipe.interval
        settle = setting.preset == "robust"
        return ExplorationPlan(self.rate, interval, recipe.rate_schedule, recipe.final_rate, settle)

    def pruning(self, setting: Setting) -> PruningPlan | None:
        """Gradually, by an explorer that starts with more weights."""
        parts, interval = sparse_method(self.explorer), self.interval or setting.recipe.interval
        initial = min(parts.initial_sparsity, self.sparsity)
        return PruningPlan(initial, 0.0, PRUNED_AT, interval) if parts.gradual else None
