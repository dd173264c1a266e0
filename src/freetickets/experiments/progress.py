"""What a person sees while cells are trained: a bar over all, a line for each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..progress import Display, duration

if TYPE_CHECKING:
    from ..training.progress import Reporter


class CellProgress(Display):
    """Counts cells; the time left is guessed by what cells cost, as they differ a lot."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.finished = 0  # not counting those that were done before
        self._place = self._total = 0
        self._weights: list[float] = []
        self._spent = self._began = 0.0

    @contextmanager
    def over(self, weights: Sequence[float], done: Sequence[bool]) -> Iterator[None]:
        """Shows the work on cells of these costs, of which some are done already."""
        self._weights = [cost for cost, was in zip(weights, done, strict=True) if not was]
        self._total, self._place = len(weights), sum(done)
        self._began = time.monotonic()
        if self._place:
            self.line(f"{self._place} of {self._total} cells are finished already")
        self._start_bar("cells", self._total, self._place)
        try:
            yield
        finally:
            self.stop()

    def begin(self, name: str) -> None:
        """Says which cell comes next."""
        self._update_bar(self._place, "", name)
        self.announce(f"[{self._place + 1}/{self._total}] {name} ...")

    def end(self, name: str, news: str) -> None:
        """Says that a cell is finished, and what came out."""
        self.finished += 1
        self._next()
        rate = (time.monotonic() - self._began) / self._spent if self._spent else 0.0
        left = duration(rate * sum(self._weights))
        self.line(f"[{self._place}/{self._total}] {name}: {news}, {left} left")

    def fail(self, name: str, reason: str) -> None:
        """Says that a cell could not be finished, even when quiet."""
        self._next()
        self.warn(f"[{self._place}/{self._total}] {name} failed: {reason}")

    def inside(self) -> Reporter:
        """What shows the steps of one training, beside the bar over all cells."""
        from ..training.progress import Reporter
        from ..training.state import Clock, Tally

        outer = self

        class Inside(Reporter):
            def step(self, clock: Clock, phase: str, tally: Tally) -> None:
                share = f"{clock.done / clock.total:.0%}"
                outer._update_bar(outer._place, share, None, f"{phase}, loss {tally.loss:.3f}")

        return Inside(quiet=True)

    def _next(self) -> None:
        self._spent += self._weights.pop(0)
        self._place += 1
