"""A plan: what a method trains, as plain data. The trainer executes it, the ledger prices it.

Plan -> Runs (one network each) -> Phases (one learning-rate schedule each) -> Events
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stretch:
    """A part of a phase in which the learning rate follows one shape.

    Attributes:
        epochs: How long; parts of an epoch are fine.
        lr: The learning rate at its start.
        end_lr: The learning rate at its end, for linear and cosine shapes.
        shape: "constant", "linear" or "cosine", step by step.
    """

    epochs: float
    lr: float
    end_lr: float = 0.0
    shape: str = "constant"


@dataclass(frozen=True)
class ExplorationPlan:
    """How a phase explores the topology; see `freetickets.sparsity.Exploration`.

    Attributes:
        rate: The share of the active weights that one exploration replaces (p).
        interval: Steps between two explorations (ΔT), counted from the start of the run.
        schedule: "constant", "cosine" or "linear"; starts again after each escape.
        final_rate: Where cosine and linear schedules end.
        settle: Whether to leave the last `interval` steps before a collection alone, so that a
            ticket's newest weights have had time to learn.
    """

    rate: float = 0.5
    interval: int = 1000
    schedule: str = "constant"
    final_rate: float = 0.0
    settle: bool = True


@dataclass(frozen=True)
class Collect:
    """Saves a ticket: the network as it is ("last"), or the phase's best on validation data."""

    select: str = "last"
    event: str = field(default="collect", init=False)


@dataclass(frozen=True)
class Escape:
    """Explores once at a large rate (q), to leave the basin of the ticket just collected."""

    rate: float = 0.8
    event: str = field(default="escape", init=False)


Event = Collect | Escape


@dataclass(frozen=True)
class Phase:
    """A part of a run, and what happens at its end."""

    name: str
    schedule: tuple[Stretch, ...]
    sparsity: float = 0.0
    exploration: ExplorationPlan | None = None
    at_end: tuple[Event, ...] = ()

    @property
    def epochs(self) -> float:
        """The length of the phase."""
        return sum(stretch.epochs for stretch in self.schedule)


@dataclass(frozen=True)
class Run:
    """The training of one network from its initialisation to its last phase."""

    seed: int
    phases: tuple[Phase, ...]

    @property
    def epochs(self) -> float:
        """The length of the run."""
        return sum(phase.epochs for phase in self.phases)


@dataclass(frozen=True)
class SparseOptions:
    """How sparse networks are made and explored; the arguments of the `Sparsifier`."""

    distribution: str = "erk"
    prune: str = "magnitude"
    grow: str = "gradient"
    regrown_value: str = "zero"
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All that a method trains, and how its members are combined."""

    method: str
    runs: tuple[Run, ...]
    dense_epochs: float
    sparse: SparseOptions = field(default_factory=SparseOptions)
    combine: str = "probabilities"

    @property
    def tickets(self) -> int:
        """How many members the plan collects."""
        events = [event for run in self.runs for phase in run.phases for event in phase.at_end]
        return sum(isinstance(event, Collect) for event in events)
