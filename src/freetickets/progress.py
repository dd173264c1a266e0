"""What a person sees of long work: a live bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Display:
    """Lines of news on the standard error stream and, on a terminal, a bar below them.

    Quiet, it shows nothing but warnings.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def line(self, text: str) -> None:
        """Prints a line of news."""
        if not self._quiet:
            self._console.print(text, markup=False)

    def announce(self, text: str) -> None:
        """Prints a line where no bar shows the same."""
        if self._bar is None:
            self.line(text)

    def warn(self, text: str) -> None:
        """Prints a line that matters even when quiet."""
        self._console.print(f"warning: {text}", markup=False)

    def stop(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        sys.stderr.flush()

    def _start_bar(self, unit: str, total: int, done: int = 0) -> None:
        if self._quiet or not self._console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(),
            TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}"),
            TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"), console=self._console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=total, completed=done, rate="", news="")
        self._bar.start()

    def _update_bar(self, done: int, rate: str, name: str | None = None, news: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=name, rate=rate, news=news)


_SILENCE = 30.0  # seconds after which a log hears how far a piece of work is


class WorkProgress(Display):
    """Shows how far several pieces of work are, by the units that all of them together count."""

    def __init__(self, unit: str = "samples", quiet: bool = False) -> None:
        super().__init__(quiet)
        self._unit = unit
        self._total = self._done = 0
        self._began = self._told = 0.0
        self._name = ""

    @contextmanager
    def over(self, total: int) -> Iterator[None]:
        """Shows the work on this many units, of all pieces together."""
        self._total, self._done = total, 0
        self._began = self._told = time.monotonic()
        self._start_bar(self._unit, total)
        try:
            yield
        finally:
            self.stop()

    def begin(self, name: str) -> None:
        """Says which piece comes next."""
        self._name = name
        self._update_bar(self._done, "", name)

    def advance(self, count: int) -> None:
        """Counts what has just been done."""
        self._done += count
        self._update_bar(self._done, self._rate_text)
        if time.monotonic() - self._told > _SILENCE:
            self.end(self._name)

    def end(self, name: str) -> None:
        """Says how far the work is, now that a piece is done and saved."""
        self._told = time.monotonic()
        if self._bar is None and self._done:
            left = duration((self._total - self._done) / self._rate)
            share = self._done / max(1, self._total)
            self.line(f"[{share:4.0%}] {name}  {self._rate_text}  {left} left")

    @property
    def _rate(self) -> float:
        return self._done / max(1e-9, time.monotonic() - self._began)

    @property
    def _rate_text(self) -> str:
        return f"{self._rate:,.0f} {self._unit}/s"


def duration(seconds: float) -> str:
    """Says a time shortly.

    Example:
        >>> duration(59), duration(3725)
        ('0:59', '1:02:05')
    """
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"
