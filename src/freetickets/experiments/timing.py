"""Seconds of trainings as their steps times the seconds of a step, measured alone.

A clock that runs beside other work says little; `freetickets bench train` times all sides in turns.
"""

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
    later: float | None = None  # timed again: lengths for equal seconds stay those of `ratio`


@dataclass(frozen=True)
class StepTimes:
    """What was timed for a scale."""

    of: str  # the network whose dense step in PyTorch is 1
    methods: tuple[str, ...]  # which train steps like those that were timed
    steps: tuple[StepTime, ...]

    def seconds(self, record: Mapping[str, Any], column: str) -> float | None:
        """A record's training; None where a step like its own was not timed.

        In PyTorch's kernels only the dense network was timed: zeros make it no faster there.
        """
        ledger, total = record["ledger"], 0.0
        if record["method"] not in self.methods or "phases" not in ledger:
            return None
        if column == PYTORCH:
            known = {(self.of, 0.0): 1.0}
        else:
            ratios = ((s, s.later if column == LATER else s.ratio) for s in self.steps)
            known = {(s.model, s.sparsity): ratio for s, ratio in ratios if ratio is not None}
        for phase in ledger["phases"]:
            if (ratio := known.get((record["model"], phase["sparsity"]))) is None:
                return None
            total += phase["epochs"] * ratio
        return total / ledger["dense_epochs"]
