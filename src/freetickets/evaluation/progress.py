"""What a person sees while sets are predicted: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class PredictionProgress:
    """Shows how far the prediction of several sets is.

    Args:
        quiet: Show nothing but warnings.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._total = self._done = 0
        self._begin = 0.0

    @contextmanager
    def over(self, samples: int) -> Iterator[None]:
        """Shows the work on so many samples, of all sets together."""
        self._total, self._done, self._begin = samples, 0, time.monotonic()
        if not self._quiet and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:,.0f}/{task.total:,.0f} samples"),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=samples, rate="")
            self._bar.start()
        try:
            yield
        finally:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def begin(self, name: str) -> None:
        """Says which set comes next."""
        if self._bar is not None:
            self._bar.update(self._task, description=name)

    def advance(self, samples: int) -> None:
        """Counts samples that have just been predicted."""
        self._done += samples
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, rate=f"{self._rate:,.0f} samples/s")

    def end(self, name: str) -> None:
        """Says that a set is predicted and saved."""
        if self._bar is None and self._done:
            left = (self._total - self._done) / self._rate
            self.line(
                f"[{self._done / max(1, self._total):4.0%}] {name}  {self._rate:,.0f} samples/s  "
                f"{_duration(left)} left"
            )

    def line(self, text: str) -> None:
        """Prints a line of news."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """Prints a line that matters even when quiet."""
        self._console.print(f"warning: {text}", markup=False)

    @property
    def _rate(self) -> float:
        return self._done / max(1e-9, time.monotonic() - self._begin)


def _duration(seconds: float) -> str:
    """Says a time shortly.

    Example:
        >>> _duration(59), _duration(3725)
        ('0:59', '1:02:05')
    """
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
