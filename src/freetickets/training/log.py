"""The log of a run: what was measured at the end of each epoch, one line of log.csv each."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..reading import Allow, Count, Natural, NotNegative, Positive, Text, read
from ..seal import open_table, seal_table


@dataclass(frozen=True)
class LogRow:
    """One line of log.csv; what was not measured is None.

    In files the score goes by its own name: "train_accuracy", say, for "train_score".
    """

    run: Count
    phase: Text
    epoch: Positive
    step: Natural
    lr: float
    train_loss: float
    train_score: float
    validation_loss: float | None
    validation_score: float | None
    itop_rate: float | None
    events: Text
    seconds: NotNegative

    def has(self, event: str) -> bool:
        """Whether the epoch ended with an event, such as "collect" or "escape"."""
        return event in self.events.split()

    def named(self, score: str) -> dict[str, Any]:
        """The row as files have it, where the score has this name."""
        return {name: getattr(self, own) for name, own in columns(score).items()}


def columns(score: str) -> dict[str, str]:
    """The fields of a row, by the names that files give them, where the score has this name.

    Example:
        >>> columns("accuracy")["train_accuracy"]
        'train_score'
    """
    return {each.name.replace("_score", f"_{score}"): each.name for each in fields(LogRow)}


def score_in(row: Iterable[str]) -> str:
    """The name of the score in the columns of a row, such as "accuracy"."""
    found = [name.removeprefix("train_") for name in row if name.startswith("train_")]
    return next((name for name in found if name != "loss"), "accuracy")


def read_row(row: Mapping[str, Any], where: str = "", allow: Allow = Allow.NOTHING) -> LogRow:
    """Reads a row as files have it; see `reading.read`."""
    known = columns(score_in(row))
    found: LogRow = read(LogRow, {known.get(key, key): row[key] for key in row}, where, allow)
    return found


def log_text(rows: Sequence[Mapping[str, Any]], settings: str) -> str:
    """The rows as CSV, sealed for the run of these settings."""
    text = io.StringIO()
    names = list(columns(score_in(rows[0] if rows else ())))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return seal_table(text.getvalue(), settings)


def read_log(path: Path, settings: str = "") -> tuple[LogRow, ...]:
    """Reads a log, whose seal must fit the settings' identity; ValueError if it is none."""
    text = open_table(path.read_text(encoding="utf-8"), settings)
    lines = enumerate(csv.DictReader(text.splitlines()), start=1)
    allow = Allow.TEXTS | Allow.UNKNOWN
    rows = tuple(read_row(row, f"row {number}", allow) for number, row in lines)
    if not rows:
        raise ValueError("no rows")
    for before, row in pairwise(rows):
        if not (before.run, before.epoch) < (row.run, row.epoch):
            raise ValueError(f"epoch {row.epoch:g} of run {row.run} is out of order")
    return rows
