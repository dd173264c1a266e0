"""When a topology is explored or pruned, and how much. Plain data: this file needs no torch."""

import math
from dataclasses import dataclass, field

from ..errors import FreeTicketsError, check_known

SCHEDULES = ("constant", "cosine", "linear")


def anneal(schedule: str, start: float, end: float, progress: float) -> float:
    """The value of a schedule after a share `progress` of its time."""
    check_known("schedule", schedule, SCHEDULES)
    if schedule == "constant":
        return start
    if schedule == "linear":
        return start * (1 - progress) + end * progress
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Exploration:
    """Every `interval` steps, a share `rate` of the active weights is replaced.

    Called with a step's number (from 1), it returns the rate at which to explore after that step,
    or 0.

    Attributes:
        rate: The share of each layer's active weights that is pruned and grown again (p).
        interval: Steps between two explorations (ΔT); the paper's long trainings use 1000 (CIFAR)
            and 4000 (ImageNet).
        schedule: How the rate changes over `steps`: constant, cosine or linear.
        final_rate: Where cosine and linear schedules end.
        steps: The length of the training; cosine and linear schedules need it.
        stop: No exploration after this step.

    Example:
        >>> exploration = Exploration(rate=0.5, interval=100, stop=250)
        >>> [step for step in range(1, 500) if exploration(step)]
        [100, 200]
    """

    rate: float = 0.5
    interval: int = 100
    schedule: str = "constant"
    final_rate: float = 0.0
    steps: int | None = None
    stop: int | None = None

    def __post_init__(self) -> None:
        check_rate("rate", self.rate)
        check_rate("final_rate", self.final_rate)
        if self.interval < 1:
            raise FreeTicketsError(f"interval must be at least 1 step, not {self.interval}")
        check_known("schedule", self.schedule, SCHEDULES)
        if self.schedule != "constant" and (self.steps is None or self.steps < 1):
            raise FreeTicketsError(f"a {self.schedule} schedule needs steps, the training's length")

    def __call__(self, step: int) -> float:
        """Returns the rate of the exploration that follows this step; 0 means none."""
        if step % self.interval or (self.stop is not None and step > self.stop):
            return 0.0
        progress = min(1.0, step / self.steps) if self.steps else 0.0
        return anneal(self.schedule, self.rate, self.final_rate, progress)


@dataclass(frozen=True)
class GradualPruning:
    """Prunes a network gradually, fast at first and slowly at the end (Zhu & Gupta's cubic).

    Called with a step's number (from 1), it returns the sparsity to prune to after it, or None.

    Attributes:
        final: The sparsity at `end`.
        initial: The sparsity at `begin`.
        begin: The first step that is followed by a pruning.
        end: The last one.
        interval: Steps between two prunings.

    Example:
        >>> pruning = GradualPruning(0.8, end=400, interval=100)
        >>> {step: round(s, 4) for step in range(1, 999) if (s := pruning(step)) is not None}
        {100: 0.4625, 200: 0.7, 300: 0.7875, 400: 0.8}
    """

    final: float
    initial: float = 0.0
    begin: int = 0
    end: int = field(kw_only=True)
    interval: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        if not 0.0 <= self.initial <= self.final < 1.0:
            given = f"initial={self.initial}, final={self.final}"
            raise FreeTicketsError(f"gradual pruning needs 0 <= initial <= final < 1, not {given}")
        if not 0 <= self.begin < self.end:
            when = f"step {self.begin} of {self.end}"
            raise FreeTicketsError(f"gradual pruning must begin before it ends, not at {when}")
        if self.interval < 1:
            raise FreeTicketsError(f"interval must be at least 1 step, not {self.interval}")

    def __call__(self, step: int) -> float | None:
        """Returns the sparsity to prune to after this step; None means no pruning."""
        if step == self.end:
            return self.final
        if not self.begin <= step < self.end or (step - self.begin) % self.interval:
            return None
        left = 1 - (step - self.begin) / (self.end - self.begin)
        return self.final + (self.initial - self.final) * left**3


def check_rate(name: str, value: float) -> None:
    """Raises unless the value is a share."""
    if not 0.0 <= value <= 1.0:
        raise FreeTicketsError(f"{name} must lie between 0 and 1, not {value}")
