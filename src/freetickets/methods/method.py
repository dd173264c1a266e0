"""What every method is: options as a data class, and a plan made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import FreeTicketsError
from ..sparsity.schedule import check_rate
from .plan import Collect, ExplorationPlan, Phase, Plan, Run, SparseOptions
from .recipe import Recipe

if TYPE_CHECKING:
    from ..ensemble import Ensemble

PRESETS = {
    "robust": "the network as it is after a quiet time without exploration",
    "paper": "the authors' way: explore to the last step, collect the best on validation data",
}


@dataclass(frozen=True)
class Setting:
    """What a plan depends on besides the method's own options.

    Attributes:
        recipe: How this family of data sets is trained.
        epochs: The length of the method's run; None for the recipe's own.
        lr: The initial learning rate; None for the recipe's own.
        preset: "robust" or "paper": which state of the network becomes a ticket.
        seed: The seed of the first run; the others count up from it.
    """

    recipe: Recipe
    epochs: float | None = None
    lr: float | None = None
    preset: str = "robust"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise FreeTicketsError(f"preset must be 'robust' or 'paper', not {self.preset!r}")
        if self.epochs is not None and self.epochs <= 0:
            raise FreeTicketsError(f"epochs must be positive, not {self.epochs}")

    def scale(self, full_epochs: float) -> float:
        """How much shorter than the recipe this training is."""
        return 1.0 if self.epochs is None else self.epochs / full_epochs

    @property
    def initial_lr(self) -> float:
        """The learning rate to start from."""
        return self.recipe.lr if self.lr is None else self.lr

    @property
    def collect(self) -> Collect:
        """How this preset collects a ticket."""
        return Collect("best" if self.preset == "paper" else "last")


@dataclass(frozen=True)
class Method(ABC):
    """A method: a transform of the network, a plan, and a rule to combine the members.

    A subclass is a frozen data class whose fields are the method's options; the command line makes
    its flags of them.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]

    @abstractmethod
    def plan(self, setting: Setting) -> Plan:
        """Returns what this method trains."""

    def fit(self, model: Any, train_data: Any, **options: Any) -> Ensemble:
        """Trains the plan and returns the ensemble; see `freetickets.training.fit`."""
        # Methods are data that training imports; this shorthand is the one way back.
        from ..training.fit import fit

        return fit(self, model, train_data, **options)


def check_tickets(tickets: int) -> None:
    """Raises unless an ensemble can have this many members."""
    if tickets < 1:
        raise FreeTicketsError(f"tickets must be at least 1, not {tickets}")


@dataclass(frozen=True)
class SparseMethod(Method):
    """The options that sparse methods share.

    Attributes:
        tickets: How many tickets are collected (M).
        sparsity: The share of zeros in each ticket (S).
        distribution: How the non-zeros are shared out over the layers.
        prune: Which active weights an exploration keeps.
        grow: Which inactive weights it activates.
        exclude: Layers that stay dense, by name pattern.
    """

    tickets: int = 3
    sparsity: float = 0.8
    distribution: str = "erk"
    prune: str = "magnitude"
    grow: str = "gradient"
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tickets(self.tickets)
        if not 0 < self.sparsity < 1:
            raise FreeTicketsError(f"sparsity must lie between 0 and 1, not {self.sparsity}")

    def sparse_options(self, recipe: Recipe) -> SparseOptions:
        """How this method's networks are made."""
        return SparseOptions(
            self.distribution, self.prune, self.grow, recipe.regrown_value, self.exclude
        )

    def independent_runs(self, setting: Setting, exploration: ExplorationPlan | None) -> Plan:
        """Returns a plan of `tickets` separate sparse trainings with different seeds."""
        recipe = setting.recipe
        scale = setting.scale(recipe.sparse_epochs)
        phase = Phase(
            "train",
            recipe.sparse_schedule(scale, setting.initial_lr),
            self.sparsity,
            exploration,
            at_end=(setting.collect,),
        )
        runs = tuple(Run(setting.seed + i, (phase,)) for i in range(self.tickets))
        return Plan(self.name, runs, recipe.dense_epochs * scale, self.sparse_options(recipe))


@dataclass(frozen=True)
class ExploringMethod(SparseMethod):
    """The options of sparse methods that explore.

    Attributes:
        rate: The share of the active weights that one exploration replaces (p).
        interval: Steps between two explorations (ΔT); the recipe's if not given.
    """

    rate: float = 0.5
    interval: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate("rate", self.rate)
        if self.interval is not None and self.interval < 1:
            raise FreeTicketsError(f"interval must be at least 1 step, not {self.interval}")

    def exploration(self, setting: Setting) -> ExplorationPlan:
        """How the topology is explored while it trains."""
        recipe = setting.recipe
        return ExplorationPlan(
            self.rate,
            self.interval or recipe.interval,
            recipe.rate_schedule,
            recipe.final_rate,
            settle=setting.preset == "robust",
        )
