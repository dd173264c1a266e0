"""Where the execution of a plan stands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..reading import Natural, read
from .log import read_row


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
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "tally": [self.tally.sums, self.tally.samples]}

    @classmethod
    def unpack(cls, values: dict[str, Any]) -> State:
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
