"""Where the execution of a plan stands, and its log: what was measured at the end of each epoch."""

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

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
    """The fields of a row, by the names that files give them, where the score has this name."""
    return {each.name.replace("_score", f"_{score}"): each.name for each in fields(LogRow)}


def score_in(row: Iterable[str]) -> str:
    """The name of the score in the columns of a row, such as "accuracy"."""
    found = [name.removeprefix("train_") for name in row if name.startswith("train_")]
    return next((name for name in found if name != "loss"), "accuracy")


def read_row(row: Mapping[str, Any], where: str = "", allow: Allow = Allow.NOTHING) -> LogRow:
    """Reads a row as files have it; see `reading.read`."""
    known = columns(score_in(row))
    return read(LogRow, {known.get(key, key): row[key] for key in row}, where, allow)


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


class Validation(NamedTuple):
    """Mean loss and running score on the validation data; None where nothing is held out."""

    loss: float | None = None
    score: float | None = None


@dataclass
class Tally:
    """Sums over the steps since the last row of the log, kept on the device."""

    sums: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    samples: int = 0

    def add(self, sums: Tensor, samples: int) -> None:
        """Adds a step's summed loss and scores."""
        self.sums = self.sums.to(sums.device) + sums
        self.samples += samples

    @property
    def loss(self) -> float:
        """The mean loss."""
        return float(self.sums[0]) / max(1, self.samples)

    @property
    def score(self) -> float:
        """The mean of the samples' scores: for classification, the share of correct answers."""
        return float(self.sums[1]) / max(1, self.samples)


@dataclass
class State:
    """All of a plan's execution that is not in a network; it goes into every checkpoint.

    `run` is the one under way, counted from 0. The phase's best ticket so far (`best`), where the
    plan wants it, and what runs remember for later ones (`shelf`) are packed. `seconds` were spent
    in the steps of each (run, phase); `choices` are the ways that layers took.
    """

    run: Natural = 0
    step: Natural = 0
    tickets: Natural = 0
    tally: Tally = field(default_factory=Tally)
    best: dict[str, Any] | None = None
    best_score: float | None = None
    shelf: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)
    choices: dict[str, Any] = field(default_factory=dict)

    def pack(self) -> dict[str, Any]:
        """The state as tensors and plain values."""
        return {**vars(self), "tally": [self.tally.sums, self.tally.samples]}

    @classmethod
    def unpack(cls, values: dict[str, Any]) -> "State":
        """Undoes `pack`."""
        sums, samples = values["tally"]
        tally = Tally(sums.double().reshape(2), int(samples))
        values = {**values, "tally": {}}
        if "best_accuracy" in values:  # as checkpoints of before tasks have it: -1 for none
            best = read(float, values.pop("best_accuracy"), "best_accuracy")
            values["best_score"] = best if best >= 0 else None
        state: State = read(cls, values)
        for row in state.rows:
            read_row(row)
        state.tally = tally
        return state


class Clock:
    """Counts the steps of all runs and foresees the end."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._began, self._first = time.monotonic(), done
        self._samples = 0

    def tick(self, samples: int) -> None:
        """One more step."""
        self.done += 1
        self._samples += samples

    @property
    def samples_per_second(self) -> float:
        """The speed since the start."""
        return self._samples / max(1e-9, time.monotonic() - self._began)

    @property
    def seconds_left(self) -> float:
        """The time that the rest will take at this speed."""
        elapsed = time.monotonic() - self._began
        return elapsed / max(1, self.done - self._first) * (self.total - self.done)
