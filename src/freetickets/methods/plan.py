"""A plan: what a method trains, as plain data. The trainer executes it, the ledger prices it.

Plan -> Runs (one network each) -> Phases (one learning-rate schedule each) -> Events
"""

from dataclasses import dataclass, field
from typing import Any

from ..errors import FreeTicketsError
from .events import Event


@dataclass(frozen=True)
class Stretch:
    """A part of a phase in which the learning rate follows one shape.

    The shape is "constant", "linear", "cosine" or "approach", step by step. Linear and cosine ones
    have `lr` in their first step and would have `end_lr` in the one after their last; "approach" is
    linear too, but has `end_lr` in its last step.
    """

    epochs: float  # parts of an epoch are fine
    lr: float
    end_lr: float = 0.0
    shape: str = "constant"


@dataclass(frozen=True)
class ExplorationPlan:
    """How a phase explores the topology, with the parts of a `freetickets.sparsity.Exploration`.

    Steps are counted from the start of the run; a schedule starts again after each escape. To
    settle is to leave the last `interval` steps before a collection alone, so that a ticket's
    newest weights have had time to learn.
    """

    rate: float = 0.5
    interval: int = 1000
    schedule: str = "constant"
    final_rate: float = 0.0
    settle: bool = True


@dataclass(frozen=True)
class PruningPlan:
    """How a phase prunes gradually to its sparsity; see `freetickets.sparsity.GradualPruning`.

    It begins at the sparsity `initial`; `begin` and `end` are shares of the phase.
    """

    initial: float = 0.0
    begin: float = 0.0
    end: float = 1.0
    interval: int = 100


@dataclass(frozen=True)
class Phase:
    """A part of a run, and what happens at its end."""

    name: str
    schedule: tuple[Stretch, ...]
    sparsity: float = 0.0
    exploration: ExplorationPlan | None = None
    pruning: PruningPlan | None = None
    at_end: tuple[Event, ...] = ()

    @property
    def epochs(self) -> float:
        """Its length."""
        return sum(stretch.epochs for stretch in self.schedule)


@dataclass(frozen=True)
class Start:
    """What a run starts from instead of an initialisation: names that were remembered."""

    weights: str
    topology: str


@dataclass(frozen=True)
class Run:
    """The training of one network from its initialisation to its last phase."""

    seed: int
    phases: tuple[Phase, ...]
    start: Start | None = None

    @property
    def epochs(self) -> float:
        """Its length."""
        return sum(phase.epochs for phase in self.phases)


@dataclass(frozen=True)
class SparseOptions:
    """How sparse networks are made and explored.

    The arguments of the `Sparsifier`, and the criterion of the first topology: "random", or a name
    of `freetickets.sparsity.CRITERIA`.
    """

    distribution: str = "erk"
    structure: str = "unstructured"
    prune: str = "magnitude"
    grow: str = "gradient"
    regrown_value: str = "zero"
    exclude: tuple[str, ...] = ()
    prune_scope: str = "layer"
    redistribute: str | None = None
    reserve: float = 0.0
    criterion: str = "random"

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of the `Sparsifier`."""
        return {name: value for name, value in vars(self).items() if name != "criterion"}


@dataclass(frozen=True)
class Plan:
    """Everything that a method trains, and how its members are combined."""

    method: str
    runs: tuple[Run, ...]
    dense_epochs: float  # of the dense training that is the unit of cost
    sparse: SparseOptions = field(default_factory=SparseOptions)
    combine: str = "probabilities"  # or "logits": what of the members is averaged
    trainings: float | None = None  # the paper's column "runs", if not the networks trained

    def __post_init__(self) -> None:
        sparse = self.sparse
        if sparse.structure == "unstructured":
            return
        if sparse.criterion != "random":
            raise FreeTicketsError(
                f"structure {sparse.structure!r} starts from a random topology: leave criterion "
                f"{sparse.criterion!r} out"
            )
        from ..sparsity.structure import check_options  # needs torch, as most plans do not

        prunes = any(phase.pruning is not None for run in self.runs for phase in run.phases)
        given = {n: getattr(sparse, n) for n in ("prune_scope", "redistribute", "reserve")}
        check_options(sparse.structure, pruning=prunes, **given)

    @property
    def tickets(self) -> int:
        """How many networks the plan collects; one of them may hold several members."""
        return self.tickets_before(len(self.runs))

    def tickets_before(self, run: int) -> int:
        """How many networks are collected before a run, counted from 0, begins."""
        phases = [phase for each in self.runs[:run] for phase in each.phases]
        return sum(event.tickets for phase in phases for event in phase.at_end)
