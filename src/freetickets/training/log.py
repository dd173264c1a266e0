"""The log of a run: what was measured at the end of each epoch, one line of log.csv each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..reading import Allow, Count, Natural, NotNegative, Positive, Text, read
from ..seal import open_table, seal_table


@dataclass(frozen=True)
class LogRow:
    """One line of log.csv; what was not measured is None."""

    run: Count
    phase: Text
    epoch: Positive
    step: Natural
    lr: float
    train_loss: float
    train_accuracy: float
    validation_loss: float | None
    validation_accuracy: float | None
    itop_rate: float | None
    events: Text
    seconds: NotNegative

    def has(self, event: str) -> bool:
        """Whether the epoch ended with an event, such as "collect" or "escape"."""
        return event in self.events.split()


def log_text(rows: Iterable[Mapping[str, Any]], settings: str) -> str:
    """The rows as CSV, sealed for the run of these settings."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(LogRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return seal_table(text.getvalue(), settings)


def read_log(path: Path, settings: str = "") -> tuple[LogRow, ...]:
    """Reads the rows of a log.

    Args:
        path: The file.
        settings: The identity of the run's settings, which the seal of the log must fit to.

    Raises:
        OSError: The file can't be read.
        FreeTicketsError, ValueError: It is not a log.
    """
    text = open_table(path.read_text(encoding="utf-8"), settings)
    lines = enumerate(csv.DictReader(text.splitlines()), start=1)
    allow = Allow.TEXTS | Allow.UNKNOWN
    rows = tuple(read(LogRow, row, f"row {number}", allow) for number, row in lines)
    if not rows:
        raise ValueError("no rows")
    reached = (0, 0.0)
    for row in rows:
        if not reached < (row.run, row.epoch):
            raise ValueError(f"epoch {row.epoch:g} of run {row.run} is out of order")
        reached = (row.run, row.epoch)
    return rows
