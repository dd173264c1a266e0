"""What a person sees while a run trains."""

from ..progress import Display, duration
from ..tasks import Score
from .state import Clock, LogRow, Tally


class Reporter(Display):
    """Shows a run's progress: steps and losses below the bar, a line for each epoch."""

    def start(self, done: int, total: int) -> None:
        """Begins to show `total` steps of which some may be done already."""
        self._start_bar("steps", total, done)

    def phase(self, run: int, phase: str, epochs: float, steps: int, clock: Clock) -> None:
        """Says in a log what comes next: the first epoch may be long."""
        share = clock.done / clock.total
        self.announce(f"[{share:4.0%}] run {run} {phase}: {epochs:g} epochs, {steps:,} steps")

    def step(self, clock: Clock, phase: str, tally: Tally) -> None:
        """Shows one more step."""
        rate = f"{clock.samples_per_second:,.0f} samples/s"
        self._update_bar(clock.done, rate, phase, f"loss {tally.loss:.3f}")

    def epoch(self, row: LogRow, clock: Clock, running: Score) -> None:
        """Prints the line of an epoch, in 100 columns, with its running score."""
        scores = f"loss {_short(row.train_loss)} {running.text(row.train_score)}"
        if row.validation_loss is not None and row.validation_score is not None:
            scores += f"  val {_short(row.validation_loss)} {running.text(row.validation_score)}"
        self.line(
            f"[{clock.done / clock.total:4.0%}] run {row.run} {row.phase:9s} epoch "
            f"{row.epoch:6.2f} lr {row.lr:.2g}  {scores}  {duration(clock.seconds_left)} left"
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


def _short(loss: float) -> str:
    return f"{loss:.3f}" if loss < 10 else f"{loss:.3g}"
