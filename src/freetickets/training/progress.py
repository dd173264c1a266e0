"""What a person sees while a run trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..progress import Display, duration
from .state import Clock, Tally


class Reporter(Display):
    """Shows a run's progress: steps and losses below the bar, a line for each epoch."""

    def start(self, done: int, total: int) -> None:
        """Begins to show `total` steps of which some may be done already."""
        self._start_bar("steps", total, done)

    def step(self, clock: Clock, phase: str, tally: Tally) -> None:
        """Shows one more step."""
        rate = f"{clock.samples_per_second:,.0f} samples/s"
        self._update_bar(clock.done, rate, phase, f"loss {tally.loss:.3f}")

    def epoch(self, row: Mapping[str, Any], clock: Clock) -> None:
        """Prints the line of an epoch."""
        validation = ""
        if row["validation_loss"] is not None:
            validation = (
                f"  validation {row['validation_loss']:.3f} / {row['validation_accuracy']:.1%}"
            )
        self.line(
            f"[{clock.done / clock.total:4.0%}] run {row['run']} {row['phase']:10s} "
            f"epoch {row['epoch']:6.2f}  lr {row['lr']:.4g}  "
            f"loss {row['train_loss']:.3f} / {row['train_accuracy']:.1%}{validation}  "
            f"{duration(clock.seconds_left)} left"
        )

    def start_parts(self, total: int, done: int) -> None:
        """Begins to show runs that are trained side by side, of which some may be done already."""
        self._parts, self._parts_done = total, done
        self._start_bar("runs", total, done)

    def part(self, name: str, kind: str, text: str) -> None:
        """Shows news of one of them."""
        if kind == "again" or text.startswith("warning: "):
            self.warn(f"{name}: {text.removeprefix('warning: ')}")
        elif kind == "done":
            self._parts_done += 1
            self._update_bar(self._parts_done, "")
            self.line(f"{name}: done ({self._parts_done} of {self._parts})")
        else:
            self.line(f"{name}: {text}")
