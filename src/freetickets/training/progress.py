"""What a person sees while a run trains: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from .state import Clock, Tally


class Reporter:
    """Shows a run's progress.

    Args:
        quiet: Show nothing but warnings.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def start(self, done: int, total: int) -> None:
        """Begins to show `total` steps of which some may be done already."""
        if self._quiet or not self._console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.fields[phase]}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(
            "", total=total, completed=done, phase="", rate="", losses=""
        )
        self._bar.start()

    def step(self, clock: Clock, phase: str, tally: Tally) -> None:
        """Shows one more step."""
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=clock.done,
                phase=phase,
                rate=f"{clock.samples_per_second:,.0f} samples/s",
                losses=f"loss {tally.loss:.3f}",
            )

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
            f"{_duration(clock.seconds_left)} left"
        )

    def line(self, text: str) -> None:
        """Prints a line of news."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Prints a line that matters even when quiet."""
        self._console.print(f"warning: {text}", markup=False)

    def stop(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    """Says a time shortly.

    Example:
        >>> _duration(59), _duration(3725)
        ('0:59', '1:02:05')
    """
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
