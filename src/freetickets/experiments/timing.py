"""Seconds of trainings as their steps times the seconds of a step, measured alone.

A clock that runs beside other work says little; `freetickets bench train` times all sides in turns.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The columns: seconds on our kernels, on PyTorch's, and on ours as they were timed again later, all
# as multiples of the dense one in PyTorch.
OURS, PYTORCH, LATER = COLUMNS = "seconds_ours", "seconds_pytorch", "seconds_later"


@dataclass(frozen=True)
class StepTime:
    """A training step on our kernels over that of the dense network in PyTorch."""

    model: str
    sparsity: float
    ratio: float
    later: tuple[float, ...] = ()  # timed again, in rounds: lengths stay those of `ratio`


@dataclass(frozen=True)
class StepTimes:
    """What was timed for a scale."""

    of: str  # the network whose dense step in PyTorch is 1
    methods: tuple[str, ...]  # which train steps like those that were timed
    steps: tuple[StepTime, ...]

    def seconds(self, record: Mapping[str, Any], column: str) -> float | None:
        """A record's training; None where a step like its own was not timed."""
        rounds = self.rounds(record, column)
        return statistics.median(rounds) if rounds else None

    def rounds(self, record: Mapping[str, Any], column: str) -> list[float]:
        """The same in each round of timings; of those whose rounds were not kept, the median.

        In PyTorch's kernels only the dense network was timed: zeros make it no faster there.
        """
        ledger = record["ledger"]
        if record["method"] not in self.methods or "phases" not in ledger:
            return []
        if column == PYTORCH:
            known = {(self.of, 0.0): (1.0,) * max([1, *(len(step.later) for step in self.steps)])}
        else:
            known = {
                (step.model, step.sparsity): step.later if column == LATER else (step.ratio,)
                for step in self.steps
            }
        phases = [
            [phase["epochs"] / ledger["dense_epochs"] * ratio for ratio in ratios]
            for phase in ledger["phases"]
            for ratios in [known.get((record["model"], phase["sparsity"]), ())]
        ]
        return [sum(each) for each in zip(*phases, strict=False)]
