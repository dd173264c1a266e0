"""The log of a run: what was measured at the end of each epoch."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from ..seal import open_table
from .record import fill


@dataclass(frozen=True)
class LogRow:
    """One line of log.csv; what was not measured is None."""

    run: int
    phase: str
    epoch: float
    step: int
    lr: float
    train_loss: float
    train_accuracy: float
    validation_loss: float | None
    validation_accuracy: float | None
    itop_rate: float | None
    events: str
    seconds: float

    def has(self, event: str) -> bool:
        """Whether the epoch ended with an event, such as "collect" or "escape"."""
        return event in self.events.split()


def read_log(path: Path, settings: str = "") -> tuple[LogRow, ...]:
    """Reads the rows of a log.

    Args:
        path: The file.
        settings: The identity of the run's settings, which the seal of the log must fit to.

    Raises:
        OSError: The file can't be read.
        ValueError, KeyError, TypeError: It is not a log.
    """
    text = open_table(path.read_text(encoding="utf-8"), settings)
    rows = tuple(fill(LogRow, row) for row in csv.DictReader(text.splitlines()))
    if not rows:
        raise ValueError("no rows")
    reached = (0, 0.0)
    for row in rows:
        if not (reached < (row.run, row.epoch) and 0 < row.epoch < math.inf):
            raise ValueError(f"epoch {row.epoch:g} of run {row.run} is out of order")
        reached = (row.run, row.epoch)
    return rows
