"""The interval between two explorations that suits the length of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import FreeTicketsError
from .plan import Phase, Plan, Run
from .timeline import Timeline

# A run that explores more rarely than this hardly differs from a static one.
ENOUGH = 10


def fewest_explorations(plan: Plan, steps_per_epoch: int) -> int | None:
    """How often the run that explores least does so, escapes left out; None if none is to."""
    runs = [run for run in plan.runs if any(_explores(phase) for phase in run.phases)]
    return min((_explorations(run, steps_per_epoch) for run in runs), default=None)


def warn_of_few_explorations(plan: Plan, steps_per_epoch: int, warn: Callable[[str], None]) -> None:
    """Says so, in one line, if a run that is to explore hardly does."""
    count = fewest_explorations(plan, steps_per_epoch)
    if count is not None and count < ENOUGH:
        warn(
            f"a run of this plan explores its topology {count} times, and should {ENOUGH} times or "
            "more: train for more epochs or with smaller batches, or shorten the interval"
        )


def suit_interval(plan: Plan, steps_per_epoch: int) -> Plan:
    """Shortens the interval of runs that would explore fewer than ten times, as far as needed.

    Where even every step is not enough, the network explores after every step.

    Example:
        >>> from freetickets.methods import DST, Setting, get_recipe
        >>> plan = DST(tickets=1).plan(Setting(get_recipe("small")))  # 20 epochs
        >>> [
        ...     suit_interval(plan, steps).runs[0].phases[0].exploration.interval
        ...     for steps in (1, 7, 140, 1000)
        ... ]
        [1, 12, 254, 280]
    """
    try:
        return replace(plan, runs=tuple(_suited(run, steps_per_epoch) for run in plan.runs))
    except FreeTicketsError:  # a phase is shorter than a step: who prices or trains it says so
        return plan


def _suited(run: Run, steps_per_epoch: int) -> Run:
    intervals = [p.exploration.interval for p in run.phases if p.exploration and _explores(p)]
    if not intervals or _explorations(run, steps_per_epoch) >= ENOUGH:
        return run
    longest = min(*intervals, Timeline(run, steps_per_epoch).steps // ENOUGH)
    for interval in range(longest, 1, -1):
        shorter = _with_interval(run, interval)
        if _explorations(shorter, steps_per_epoch) >= ENOUGH:
            return shorter
    return _with_interval(run, 1)


def _with_interval(run: Run, interval: int) -> Run:
    return replace(run, phases=tuple(_phase_with_interval(p, interval) for p in run.phases))


def _phase_with_interval(phase: Phase, interval: int) -> Phase:
    if phase.exploration is None:
        return phase
    # An exploration follows a pruning of the same step, so both have the same interval.
    pruning = phase.pruning and replace(phase.pruning, interval=interval)
    exploration = replace(phase.exploration, interval=interval)
    return replace(phase, exploration=exploration, pruning=pruning)


def _explores(phase: Phase) -> bool:
    return phase.exploration is not None and phase.exploration.rate > 0


def _explorations(run: Run, steps_per_epoch: int) -> int:
    timeline = Timeline(run, steps_per_epoch)
    return sum(map(timeline.explorations, timeline.spans))
