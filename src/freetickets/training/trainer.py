"""The trainer: executes any plan, saves as it goes, and resumes where it was stopped."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from ..data.batches import Batches
from ..errors import FreeTicketsError
from ..methods.plan import Collect, Escape, Plan
from ..methods.timeline import Span, Timeline
from ..seeds import derive
from ..storage import write_atomic
from ..ticket import Ticket, ticket_path
from .checkpoint import Checkpoints
from .optimizer import OptimizerOptions
from .progress import Reporter
from .session import Session

LOG_COLUMNS = (
    "run", "phase", "epoch", "step", "lr", "train_loss", "train_accuracy", "validation_loss",
    "validation_accuracy", "itop_rate", "events", "seconds",
)  # fmt: skip


class StoppedError(FreeTicketsError):
    """The run was interrupted; everything is saved and it can go on."""


@dataclass
class _State:
    """Where a plan's execution stands; all of it goes into checkpoints."""

    run: int = 0
    step: int = 0
    tickets: int = 0
    tally: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    best_accuracy: float = -1.0
    best: dict[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)


class Trainer:
    """Executes a plan.

    Args:
        plan: What to train.
        build: Returns a freshly initialised network; called once a run, with torch seeded.
        batches: Returns the training batches of a run, given its seed.
        validation: Batches of held-out samples, or None.
        fabric: The device, the precision and the processes.
        optimizer: How weights are updated.
        label_smoothing: Of the cross-entropy.
        output: The run's folder: tickets, log and checkpoints go there, and a run that was stopped
            is resumed from there. None keeps the tickets in memory only.
        describe: What each ticket is to say of its model and data.
        reporter: Shows the progress.
        checkpoint_seconds: At most this much work is lost when the process is killed.
    """

    def __init__(
        self,
        plan: Plan,
        build: Callable[[], nn.Module],
        batches: Callable[[int], Batches],
        validation: Batches | None = None,
        *,
        fabric: Fabric | None = None,
        optimizer: OptimizerOptions | None = None,
        label_smoothing: float = 0.0,
        output: Path | None = None,
        describe: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
        checkpoint_seconds: float = 60.0,
    ) -> None:
        self._plan = plan
        self._build = build
        self._batches = batches
        self._validation = validation
        self._fabric = fabric or Fabric(accelerator="cpu", devices=1)
        self._optimizer = optimizer or OptimizerOptions()
        self._label_smoothing = label_smoothing
        self._output = output
        self._describe = dict(describe or {})
        self._reporter = reporter or Reporter(quiet=True)
        self._checkpoint_seconds = checkpoint_seconds
        self._checkpoints = (
            Checkpoints(output / "checkpoint", self._reporter.warn) if output is not None else None
        )
        if validation is None and any(
            event == Collect("best") for phase in plan.runs[0].phases for event in phase.at_end
        ):
            raise FreeTicketsError(
                "the paper preset collects the best ticket on validation data: hold some out"
            )
        self._state = _State()
        self._tickets: list[Ticket] = []
        self._stop = False

    @property
    def seconds(self) -> dict[tuple[int, str], float]:
        """The time spent in the steps of each (run, phase) so far."""
        return dict(self._state.seconds)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The log: one row an epoch, and one at the end of a phase."""
        return list(self._state.rows)

    def train(self) -> list[Ticket]:
        """Trains what is left of the plan and returns all its tickets.

        Raises:
            StoppedError: Ctrl-C or SIGTERM; everything is saved.
        """
        saved = self._resume()
        with self._stop_between_steps(), torch.random.fork_rng(devices=[]):
            try:
                while self._state.run < len(self._plan.runs):
                    self._train_run(saved)
                    saved = None
            finally:
                self._reporter.stop()
        return self._tickets

    # ---- one run

    def _train_run(self, saved: Mapping[str, Any] | None) -> None:
        state, run = self._state, self._plan.runs[self._state.run]
        batches = self._batches(run.seed)
        timeline = Timeline(run, len(batches))
        torch.manual_seed(derive(run.seed, "init"))
        session = Session(
            run,
            timeline,
            self._build(),
            self._fabric,
            self._optimizer,
            self._plan.sparse,
            self._label_smoothing,
        )
        if saved is not None:
            session.load_state_dict(saved)
        clock = _Clock(self._done(timeline), self._total(timeline))
        self._reporter.start(clock.done, clock.total)
        last_save = time.monotonic()
        while state.step < timeline.steps:
            epoch, first = divmod(state.step, len(batches))
            for inputs, labels in batches.epoch(epoch, start=first):
                span = timeline.spans[timeline.span_index(state.step + 1)]
                began = time.perf_counter()
                self._train_step(session, span, inputs, labels)
                elapsed = time.perf_counter() - began
                key = (state.run + 1, span.phase.name)
                state.seconds[key] = state.seconds.get(key, 0.0) + elapsed
                clock.tick(len(labels))
                self._reporter.step(
                    clock.done, span.phase.name, clock.samples_per_second, self._mean_loss()
                )
                if state.step == span.end or state.step % len(batches) == 0:
                    self._close_epoch(session, span, len(batches), clock)
                if state.step == timeline.steps:
                    break
                if self._stop or time.monotonic() - last_save > self._checkpoint_seconds:
                    self._save(session)
                    last_save = time.monotonic()
        state.run, state.step = state.run + 1, 0
        self._save(None)
        self._reporter.stop()

    def _train_step(self, session: Session, span: Span, inputs: Tensor, labels: Tensor) -> None:
        state, device = self._state, self._fabric.device
        ends_with_escape = state.step + 1 == span.end and any(
            isinstance(event, Escape) for event in span.phase.at_end
        )
        sums = session.step(
            state.step + 1,
            inputs.to(device, non_blocking=True),
            labels.to(device, non_blocking=True),
            keep_gradients=ends_with_escape,
        )
        state.step += 1
        state.tally = state.tally.to(device)
        state.tally[:2] += sums
        state.tally[2] += len(labels)
        # On an accelerator, looking at the loss would wait for the device at every step.
        if device.type == "cpu" or state.step % 50 == 0 or state.step == span.end:
            self._check_finite(session)

    def _check_finite(self, session: Session) -> None:
        if not math.isfinite(self._mean_loss()):
            state = self._state
            raise FreeTicketsError(
                f"the loss is not finite at step {state.step} of run {state.run + 1} "
                f"(lr {session.timeline.lr(state.step):g}): lower --lr or check the data; "
                "earlier checkpoints and tickets are kept"
            )

    def _mean_loss(self) -> float:
        return float(self._state.tally[0] / self._state.tally[2])

    def _close_epoch(
        self, session: Session, span: Span, steps_per_epoch: int, clock: _Clock
    ) -> None:
        """Validates, handles the events of a phase that ends here, and writes the log's row."""
        state = self._state
        self._check_finite(session)
        loss, accuracy = self._validate(session)
        ends = state.step == span.end
        if accuracy is not None and any(event == Collect("best") for event in span.phase.at_end):
            self._keep_best(session, span, loss, accuracy, steps_per_epoch)
        events = list(span.phase.at_end) if ends else []
        for event in events:
            if isinstance(event, Collect):
                self._collect(session, span, event, loss, accuracy, steps_per_epoch)
            else:
                session.escape(event.rate)
                self._reporter.line(f"escape: {event.rate:.0%} of the active weights replaced")
        train_loss, correct, seen = state.tally.tolist()
        row = {
            "run": state.run + 1,
            "phase": span.phase.name,
            "epoch": state.step / steps_per_epoch,
            "step": state.step,
            "lr": session.timeline.lr(state.step),
            "train_loss": train_loss / seen,
            "train_accuracy": correct / seen,
            "validation_loss": loss,
            "validation_accuracy": accuracy,
            "itop_rate": session.sparsifier.itop_rate if session.sparsifier else None,
            "events": " ".join(type(event).__name__.lower() for event in events),
            "seconds": sum(state.seconds.values()),
        }
        state.rows.append(row)
        state.tally = torch.zeros(3, dtype=torch.float64)
        self._reporter.epoch(row, clock.done / clock.total, clock.seconds_left)
        self._write_log()
        if ends:
            self._save(session)

    def _validate(self, session: Session) -> tuple[float | None, float | None]:
        if self._validation is None:
            return None, None
        device = self._fabric.device
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        for inputs, labels in self._validation.epoch(0):
            sums += session.score(inputs.to(device), labels.to(device))
        loss, correct = (sums / len(self._validation.split)).tolist()
        return loss, correct

    # ---- tickets

    def _keep_best(
        self,
        session: Session,
        span: Span,
        loss: float | None,
        accuracy: float,
        steps_per_epoch: int,
    ) -> None:
        if accuracy > self._state.best_accuracy:
            ticket = self._take(session, span, loss, accuracy, steps_per_epoch)
            self._state.best, self._state.best_accuracy = ticket.pack(), accuracy

    def _collect(
        self,
        session: Session,
        span: Span,
        event: Collect,
        loss: float | None,
        accuracy: float | None,
        steps_per_epoch: int,
    ) -> None:
        state = self._state
        if event.select == "best" and state.best is not None:
            ticket = Ticket.unpack(state.best)
        else:
            ticket = self._take(session, span, loss, accuracy, steps_per_epoch)
        state.best, state.best_accuracy = None, -1.0
        state.tickets += 1
        ticket.info["number"] = state.tickets
        self._tickets.append(ticket)
        if self._output is not None:
            ticket.save(ticket_path(self._output, state.tickets))
        self._reporter.line(f"ticket {state.tickets} of {self._plan.tickets} collected")

    def _take(
        self,
        session: Session,
        span: Span,
        loss: float | None,
        accuracy: float | None,
        steps_per_epoch: int,
    ) -> Ticket:
        """The network as it is now, with all that is known of how it came to be."""
        state = self._state
        info = {
            **self._describe,
            "method": self._plan.method,
            "combine": self._plan.combine,
            "tickets": self._plan.tickets,
            "run": state.run + 1,
            "seed": session.run.seed,
            "phase": span.phase.name,
            "step": state.step,
            "epoch": state.step / steps_per_epoch,
            "sparsity": session.sparsifier.sparsity if session.sparsifier else 0.0,
            "validation_loss": loss,
            "validation_accuracy": accuracy,
        }
        return Ticket.of(session.network.state_dict(), session.topology, info)

    # ---- saving and going on

    def _save(self, session: Session | None) -> None:
        if self._checkpoints is None:
            if self._stop:
                raise StoppedError("stopped; nothing is saved without an output folder")
            return
        state = {name: getattr(self._state, name) for name in _State.__dataclass_fields__}
        self._checkpoints.save(
            {
                "plan": _fingerprint(self._plan),
                "state": state,
                "session": session.state_dict() if session is not None else None,
            }
        )
        if self._stop:
            raise StoppedError(
                f"stopped in run {self._state.run + 1} after step {self._state.step}; all is saved "
                f"in {self._output}: run the same command again to go on"
            )

    def _resume(self) -> Mapping[str, Any] | None:
        """Reads the newest checkpoint, if there is one, and the tickets collected before it."""
        saved = self._checkpoints.load() if self._checkpoints is not None else None
        if saved is None:
            return None
        assert self._output is not None
        if saved["plan"] != _fingerprint(self._plan):
            raise FreeTicketsError(
                f"{self._output} was started with another plan: use the same settings to go on, or "
                "another --output to start anew"
            )
        self._state = _State(**saved["state"])
        numbers = range(1, self._state.tickets + 1)
        self._tickets = [Ticket.load(ticket_path(self._output, number)) for number in numbers]
        self._write_log()
        if self._state.run < len(self._plan.runs):
            self._reporter.line(
                f"resuming run {self._state.run + 1} after step {self._state.step}, "
                f"{self._state.tickets} of {self._plan.tickets} tickets collected"
            )
        session: Mapping[str, Any] | None = saved["session"]
        return session

    def _write_log(self) -> None:
        if self._output is None:
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, LOG_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._state.rows)
        write_atomic(self._output / "log.csv", text.getvalue().encode())

    def _done(self, timeline: Timeline) -> int:
        return self._state.run * timeline.steps + self._state.step

    def _total(self, timeline: Timeline) -> int:
        return len(self._plan.runs) * timeline.steps

    @contextlib.contextmanager
    def _stop_between_steps(self) -> Iterator[None]:
        """Lets Ctrl-C and SIGTERM end the training after the step under way, with all saved.

        A second Ctrl-C ends it at once.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # signals reach the main thread only
            return

        def stop(number: int, frame: FrameType | None) -> None:
            if self._stop and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._stop = True

        kinds = (signal.SIGINT, signal.SIGTERM)
        before = {kind: signal.signal(kind, stop) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)


class _Clock:
    """Counts steps and foresees the end."""

    def __init__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._began, self._first = time.monotonic(), done
        self._samples = 0

    def tick(self, samples: int) -> None:
        self.done += 1
        self._samples += samples

    @property
    def samples_per_second(self) -> float:
        return self._samples / max(1e-9, time.monotonic() - self._began)

    @property
    def seconds_left(self) -> float:
        elapsed = time.monotonic() - self._began
        return elapsed / max(1, self.done - self._first) * (self.total - self.done)


def _fingerprint(plan: Plan) -> str:
    return json.dumps(asdict(plan), sort_keys=True)
