"""A run in steps, and how often it explores: one that is short gets a shorter interval."""

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import FreeTicketsError
from ..sparsity.schedule import GradualPruning, anneal
from .plan import Phase, Plan, Run

# A run that explores more rarely than this hardly differs from a static one.
ENOUGH = 10


@dataclass(frozen=True)
class Span:
    """A phase in steps: it covers the steps after `start`, up to and with `end`."""

    phase: Phase
    start: int
    end: int


class Timeline:
    """A run laid out in steps, numbered from 1.

    Phases may end within an epoch; each end is rounded to a step on its own, so nothing drifts.
    `stretch_ends` are the last steps of the learning rate's stretches, `steps` is the last of all.

    Example:
        >>> from freetickets.methods.plan import Stretch
        >>> phase = Phase("train", (Stretch(2, 0.1), Stretch(1, 0.01)))
        >>> timeline = Timeline(Run(0, (phase,)), steps_per_epoch=10)
        >>> timeline.steps, timeline.lr(20), timeline.lr(21)
        (30, 0.1, 0.01)
    """

    def __init__(self, run: Run, steps_per_epoch: int) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.spans: list[Span] = []
        self.stretch_ends: list[int] = []
        self._stretches = [stretch for phase in run.phases for stretch in phase.schedule]
        epochs = 0.0
        for phase in run.phases:
            start = self.spans[-1].end if self.spans else 0
            for stretch in phase.schedule:
                epochs += stretch.epochs
                self.stretch_ends.append(round(epochs * steps_per_epoch))
            if self.stretch_ends[-1] == start:
                raise FreeTicketsError(
                    f"the phase {phase.name!r} lasts {phase.epochs:.2g} epochs, less than a step: "
                    "train for more epochs, or with smaller batches"
                )
            self.spans.append(Span(phase, start, self.stretch_ends[-1]))
        self.steps = self.spans[-1].end
        self._span_ends = [span.end for span in self.spans]
        events = [(span.end, event) for span in self.spans for event in span.phase.at_end]
        self._collections = [end for end, event in events if event.tickets]
        self._restarts = [end for end, event in events if event.restarts_exploration]

    def span(self, step: int) -> Span:
        """The phase that a step belongs to."""
        return self.spans[bisect.bisect_left(self._span_ends, step)]

    def epoch(self, step: int) -> float:
        """How many epochs have passed after a step."""
        return step / self.steps_per_epoch

    def lr(self, step: int) -> float:
        """The learning rate of a step."""
        index = bisect.bisect_left(self.stretch_ends, step)
        stretch, start = self._stretches[index], self.stretch_ends[index - 1] if index else 0
        length = max(1, self.stretch_ends[index] - start)
        if stretch.shape == "approach":
            return anneal("linear", stretch.lr, stretch.end_lr, (step - start) / length)
        return anneal(stretch.shape, stretch.lr, stretch.end_lr, (step - 1 - start) / length)

    def exploration_rate(self, step: int) -> float:
        """The rate of the exploration that follows a step; 0 if none does. Escapes are extra."""
        plan = self.span(step).phase.exploration if step <= self.steps else None
        if plan is None or step % plan.interval:
            return 0.0
        collection = next((end for end in self._collections if end >= step), self.steps)
        if plan.settle and collection - step < plan.interval:
            return 0.0
        restart = max((end for end in self._restarts if end < step), default=0)
        progress = (step - restart) / (collection - restart)
        return anneal(plan.schedule, plan.rate, plan.final_rate, progress)

    def pruning(self, span: Span) -> GradualPruning | None:
        """How a phase prunes, in steps."""
        plan, length = span.phase.pruning, span.end - span.start
        if plan is None:
            return None
        end = max(1, round(plan.end * length))
        return GradualPruning(
            final=span.phase.sparsity,
            initial=plan.initial,
            # Not from the first step on: explorations, which are counted from 0, would miss it.
            begin=span.start + min(round(plan.begin * length), end - 1),
            end=span.start + end,
            interval=plan.interval,
        )

    def sparsity(self, step: int) -> float | None:
        """The sparsity to prune to after a step; None if nothing is pruned then."""
        pruning = self.pruning(self.span(step)) if step <= self.steps else None
        return None if pruning is None else pruning(step)

    def explorations(self, span: Span) -> int:
        """How many explorations a phase makes, without escapes."""
        plan = span.phase.exploration
        if plan is None:
            return 0
        first = (span.start // plan.interval + 1) * plan.interval
        steps = range(first, span.end + 1, plan.interval)
        return sum(self.exploration_rate(step) > 0 for step in steps)


def _intervals(run: Run) -> list[int]:
    # Of the phases that are to explore.
    plans = [phase.exploration for phase in run.phases]
    return [plan.interval for plan in plans if plan is not None and plan.rate > 0]


def _explorations(run: Run, steps_per_epoch: int) -> int:
    timeline = Timeline(run, steps_per_epoch)
    return sum(map(timeline.explorations, timeline.spans))


def fewest_explorations(plan: Plan, steps_per_epoch: int) -> int | None:
    """How often the run that explores least does so, escapes left out; None if none is to."""
    counts = (_explorations(run, steps_per_epoch) for run in plan.runs if _intervals(run))
    return min(counts, default=None)


def warn_of_few_explorations(plan: Plan, steps_per_epoch: int, warn: Callable[[str], None]) -> None:
    """Says so, in one line, if a run that is to explore hardly does."""
    count = fewest_explorations(plan, steps_per_epoch)
    if count is not None and count < ENOUGH:
        warn(
            f"a run of this plan explores its topology {count} times, and should {ENOUGH} times or "
            "more: train for more epochs or with smaller batches, or shorten the interval"
        )


def suit_interval(plan: Plan, steps_per_epoch: int) -> Plan:
    """Shortens the interval of runs that would explore fewer than ten times, as far as needed."""

    def with_interval(phase: Phase, interval: int) -> Phase:
        if phase.exploration is None:
            return phase
        # An exploration follows a pruning of the same step, so both have the same interval.
        pruning = phase.pruning and replace(phase.pruning, interval=interval)
        exploration = replace(phase.exploration, interval=interval)
        return replace(phase, exploration=exploration, pruning=pruning)

    def suited(run: Run) -> Run:
        intervals, found = _intervals(run), run
        if intervals and _explorations(run, steps_per_epoch) < ENOUGH:
            longest = min(*intervals, Timeline(run, steps_per_epoch).steps // ENOUGH)
            for interval in range(max(1, longest), 0, -1):
                found = replace(run, phases=tuple(with_interval(p, interval) for p in run.phases))
                if _explorations(found, steps_per_epoch) >= ENOUGH:
                    break
        return found

    try:
        return replace(plan, runs=tuple(map(suited, plan.runs)))
    except FreeTicketsError:  # a phase is shorter than a step: who prices or trains it says so
        return plan
