"""Seconds of trainings as their steps times the seconds of a step, measured alone.

A clock that runs beside other work says little; `freetickets bench train` times all sides in turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The columns: seconds on our kernels and on PyTorch's, as multiples of the dense one in PyTorch.
OURS, PYTORCH = "seconds_ours", "seconds_pytorch"


@dataclass(frozen=True)
class StepTime:
    """A training step on our kernels over that of the dense network in PyTorch."""

    model: str
    sparsity: float
    ratio: float


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
            known = {(step.model, step.sparsity): step.ratio for step in self.steps}
        for phase in ledger["phases"]:
            if (ratio := known.get((record["model"], phase["sparsity"]))) is None:
                return None
            total += phase["epochs"] * ratio
        return total / ledger["dense_epochs"]
