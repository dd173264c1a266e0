"""The trainer: executes any plan, saves as it goes, and resumes where it was stopped."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batches import Batches
from ..errors import DivergedError, FreeTicketsError, StoppedError
from ..kernels.choices import difference
from ..methods.plan import Phase, Plan, Run
from ..methods.timeline import Span, Timeline, warn_of_few_explorations
from ..predictions import trajectory_files
from ..seeds import derive
from ..sparsity.criteria import initial_topology
from ..sparsity.topology import Topology
from ..ticket import Ticket
from .compute import Compute
from .folder import RunFolder
from .interrupt import StopRequest
from .log import LogRow
from .optimizer import TrainingOptions
from .progress import Reporter
from .session import Session, load_weights, prepare_on
from .stage import Stage
from .state import Clock, State, Tally, Validation
from .trajectory import Recorder, forget_trajectory

# A mean loss above so many times that of guessing has diverged, finite though it may be.
_DIVERGED = 10

# Training batches that a criterion looks at, to choose a topology before any training.
_CRITERION_BATCHES = 4


class Trainer:
    """Executes a plan.

    Args:
        plan: What to train.
        build: Returns a freshly initialised network; called once a run, with torch seeded.
        batches: Returns the training batches of a run, given its seed.
        validation: Batches of held-out samples, or None.
        compute: The device, the precision and the processes, which have met. Each rank gives its
            own slices of the batches; the first one reads and writes the output folder.
        options: How to train, beyond the plan.
        output: The run's folder: tickets, log and checkpoints go there, and a run that was stopped
            is resumed from there. None keeps the tickets in memory only.
        describe: What each ticket is to say of its model and data.
        reporter: Shows the progress.
        checkpoint_seconds: At most this much work is lost when the process is killed.
        recorder: Stores the trajectory, if one is wanted.
        only: The one run of the plan to train, counted from 0, in a folder of its own whose first
            checkpoint says what came before; None for all.
    """

    def __init__(
        self,
        plan: Plan,
        build: Callable[[], nn.Module],
        batches: Callable[[int], Batches],
        validation: Batches | None = None,
        *,
        compute: Compute | None = None,
        options: TrainingOptions | None = None,
        output: Path | None = None,
        describe: Mapping[str, Any] | None = None,
        reporter: Reporter | None = None,
        checkpoint_seconds: float = 60.0,
        recorder: Recorder | None = None,
        only: int | None = None,
    ) -> None:
        if validation is None and any(
            _selects_best(phase) for run in plan.runs for phase in run.phases
        ):
            raise FreeTicketsError(
                "the plan collects the best ticket on validation data: hold some out"
            )
        self._plan = plan
        self._build = build
        self._batches = batches
        self._validation = validation
        self._compute = compute or Compute()
        self._ranks = self._compute.ranks
        self._options = options or TrainingOptions()
        self._task = self._options.task
        self._describe = dict(describe or {})
        self._reporter = reporter if reporter and self._ranks.first else Reporter(quiet=True)
        self._checkpoint_seconds = checkpoint_seconds
        self._recorder = recorder
        self._only = only
        self._end = len(plan.runs) if only is None else only + 1
        self._folder = (
            RunFolder(output, plan, self._describe, self._reporter.warn)
            if output is not None
            else None
        )
        self._last_save = time.monotonic()
        self._stop = StopRequest()
        self._state = State()
        self._tickets: list[Ticket] = []

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
        with self._stop, torch.random.fork_rng(devices=[]):
            try:
                while self._state.run < self._end:
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
        network = self._build()
        topology = None
        if saved is not None:
            with self._restoring():
                # Before its topology: it may be another one's.
                load_weights(network, saved["network"])
                topology = saved["sparsifier"] and saved["sparsifier"]["topology"]
        elif run.start is not None:
            network.load_state_dict(self._remembered(run.start.weights).state)
        else:
            prepare_on(network, batches)
        if saved is None and state.run == 0 and self._only is None and self._ranks.first:
            warn_of_few_explorations(self._plan, len(batches), self._reporter.warn)
        self._ranks.share_network(network.to(self._compute.device))
        session = Session(
            self._plan,
            run,
            timeline,
            network,
            self._compute,
            self._options,
            topology if saved is not None else self._first_topology(run, network, batches),
            state.choices,
        )
        if (warning := difference(state.choices, session.choices)) is not None:
            self._reporter.warn(warning)
        if saved is not None:
            with self._restoring():
                session.load_state_dict(saved)
        first = self._only or 0
        lengths = [
            Timeline(each, len(batches)).steps for each in self._plan.runs[first : self._end]
        ]
        clock = Clock(sum(lengths[: state.run - first]) + state.step, sum(lengths))
        self._reporter.start(clock.done, clock.total)
        began = state.step
        while state.step < timeline.steps:
            epoch, first = divmod(state.step, len(batches))
            for number, (inputs, labels) in enumerate(batches.epoch(epoch, start=first), first):
                span, samples = timeline.span(state.step + 1), batches.size(number)
                if state.step in (began, span.start):
                    left = span.end - state.step
                    epochs = round(left / len(batches), 2)
                    self._reporter.phase(state.run + 1, span.phase.name, epochs, left, clock)
                self._train_step(session, span, inputs, labels, samples, batches.factor(number))
                clock.tick(samples)
                self._reporter.step(clock, span.phase.name, state.tally)
                if state.step == span.end or state.step % len(batches) == 0:
                    self._close_epoch(session, span, batches, clock)
                if state.step == timeline.steps:
                    break
                if self._ranks.any(self._stop.made or self._save_is_due()):
                    self._save(session)
        state.run, state.step = state.run + 1, 0
        if all(later.start is None for later in self._plan.runs[state.run :]):
            state.shelf = {}  # else each further checkpoint would hold what nobody takes
        self._save(None)
        self._reporter.stop()

    def _first_topology(self, run: Run, network: nn.Module, batches: Batches) -> Topology | None:
        """The topology that a run starts with; None for a random one, or none at all."""
        if run.start is not None:
            return self._remembered(run.start.topology).topology
        sparse, first = self._plan.sparse, run.phases[0]
        sparsity = first.sparsity if first.pruning is None else first.pruning.initial
        if sparse.criterion == "random" or sparsity == 0:
            return None
        chosen = initial_topology(
            sparse.criterion,
            network,
            sparsity,
            list(itertools.islice(batches.whole().epoch(0), _CRITERION_BATCHES)),
            distribution=sparse.distribution,
            exclude=sparse.exclude,
            loss=partial(self._task.batch_loss, training=False),
            seed=derive(run.seed, "topology"),
        )
        return {name: mask for name, mask in chosen.items() if not mask.all()}

    def _restoring(self) -> AbstractContextManager[None]:
        assert self._folder is not None
        return self._folder.restoring()

    def _remembered(self, name: str) -> Ticket:
        return Ticket.unpack(self._state.shelf[name])

    def _train_step(
        self,
        session: Session,
        span: Span,
        inputs: Tensor,
        labels: Tensor,
        samples: int,
        factor: float,
    ) -> None:
        """Takes a step with this rank's slice of a batch of so many samples."""
        state, device = self._state, self._compute.device
        began = time.perf_counter()
        ends = state.step + 1 == span.end
        state.step += 1
        try:
            means = session.step(
                state.step,
                inputs.to(device, non_blocking=True),
                labels.to(device, non_blocking=True),
                keep_gradients=ends and any(e.needs_gradients for e in span.phase.at_end),
                factor=factor,
            )
        except DivergedError:  # an exploration saw it first
            self._check_finite(session, False)
            raise
        state.tally.add(self._ranks.sum(means) * (samples / self._ranks.world), samples)
        # On an accelerator, looking at the loss would wait for the device at every step.
        if device.type == "cpu" or state.step % 50 == 0:
            self._check_finite(session, math.isfinite(state.tally.loss))
        key = (state.run + 1, span.phase.name)
        state.seconds[key] = state.seconds.get(key, 0.0) + time.perf_counter() - began

    def _check_finite(self, session: Session, finite: bool) -> None:
        state = self._state
        if not finite:
            raise FreeTicketsError(
                f"the loss or a weight is not finite at step {state.step} of run {state.run + 1} "
                f"(lr {session.timeline.lr(state.step):g}): lower --lr or check the data; "
                "earlier checkpoints and tickets are kept"
            )

    def _check_learning(self, session: Session, targets: Tensor) -> None:
        """Raises if the mean loss since the last row of the log is far worse than a guess."""
        state, loss = self._state, self._state.tally.loss
        guess = self._task.guess(targets, session.outputs)
        if loss > _DIVERGED * guess:
            raise FreeTicketsError(
                f"the training has diverged: its loss is {loss:.3g} in the mean of the epoch that "
                f"ends at step {state.step} of run {state.run + 1} (guessing: {guess:.3g}; "
                f"lr {session.timeline.lr(state.step):g}): lower --lr or scale the inputs; earlier "
                "checkpoints and tickets are kept"
            )

    def _close_epoch(self, session: Session, span: Span, batches: Batches, clock: Clock) -> None:
        """Validates, handles the events of a phase that ends here, and writes the log's row."""
        state, ends = self._state, self._state.step == span.end
        running = self._task.running
        self._ranks.share_buffers(session.network)
        score = self._validate(session)
        losses = (state.tally.loss, score.loss or 0.0)
        self._check_finite(session, all(map(math.isfinite, losses)) and session.finite)
        self._check_learning(session, batches.split.labels)
        pruning = session.timeline.pruning(span)
        complete = pruning is None or state.step >= pruning.end  # a ticket has its full sparsity
        better = score.score is not None and running.is_better(score.score, state.best_score)
        chosen = _selects_best(span.phase) and complete and better
        if chosen:
            weights, topology = session.network.state_dict(), session.topology
            state.best = self._ticket(session, span, score, weights, topology).pack()
            state.best_score = score.score
        if self._recorder is not None:  # before an escape or a pruning changes the network
            record = self._recorder.close_epoch
            self._ranks.from_first(lambda: record(session, span, state, chosen))
        events = span.phase.at_end if ends else ()
        for number, event in enumerate(events):
            place = derive(session.run.seed, "event", state.step, number)
            stage = Stage(
                session,
                batches,
                torch.Generator().manual_seed(place),
                self._build,
                state,
                partial(self._ticket, session, span, score),
                self._collect,
            )
            if (line := event.happen(stage)) is not None:
                self._reporter.line(line)
        row = LogRow(
            run=state.run + 1,
            phase=span.phase.name,
            epoch=session.timeline.epoch(state.step),
            step=state.step,
            lr=session.timeline.lr(state.step),
            train_loss=state.tally.loss,
            train_score=self._task.logged(state.tally.score),
            validation_loss=score.loss,
            validation_score=score.score,
            itop_rate=session.sparsifier.itop_rate if session.sparsifier else None,
            events=" ".join(event.event for event in events),
            seconds=sum(state.seconds.values()),
        )
        state.rows.append(row.named(running.key))
        state.tally = Tally()
        self._reporter.epoch(row, clock, running)
        if self._folder is not None and self._ranks.first:
            self._folder.write_log(state.rows)
        if ends:
            self._save(session)

    def _validate(self, session: Session) -> Validation:
        if self._validation is None:
            return Validation()
        device = self._compute.device
        tally = Tally()
        for inputs, labels in self._validation.epoch(0):
            if len(labels):  # else the batch is smaller than the number of ranks
                tally.add(session.score(inputs.to(device), labels.to(device)), len(labels))
        sums, samples = self._ranks.sum(tally.sums.to(device)), len(self._validation.split)
        tally = Tally(sums, samples)
        return Validation(tally.loss, self._task.logged(tally.score))

    # ---- tickets

    def _ticket(
        self,
        session: Session,
        span: Span,
        score: Validation,
        weights: Mapping[str, Tensor],
        topology: Topology,
    ) -> Ticket:
        """A network, with all that is known of how it came to be."""
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
            "epoch": session.timeline.epoch(state.step),
            "sparsity": session.sparsifier.sparsity if session.sparsifier else 0.0,
            "validation_loss": score.loss,
            f"validation_{self._task.running.key}": score.score,
        }
        return Ticket.of(weights, topology, info)

    def _collect(self, ticket: Ticket) -> str:
        state = self._state
        state.best, state.best_score = None, None
        state.tickets += 1
        ticket.info["number"] = state.tickets
        self._tickets.append(ticket)
        if self._folder is not None:
            save = self._folder.save_ticket
            self._ranks.from_first(lambda: save(ticket))
        return f"ticket {state.tickets} of {self._plan.tickets} collected"

    # ---- saving and going on

    def _save_is_due(self) -> bool:
        return self._ranks.first and time.monotonic() - self._last_save > self._checkpoint_seconds

    def _save(self, session: Session | None) -> None:
        """Writes a checkpoint; if someone asked to stop, this is the moment."""
        state = self._state
        if session is not None and session.choices is not None:
            state.choices = session.choices.state_dict()
        if self._folder is not None:
            save = self._folder.save
            self._ranks.from_first(lambda: save(state, session.state_dict() if session else None))
        self._last_save = time.monotonic()
        if self._ranks.any(self._stop.made) and state.run < self._end:
            raise StoppedError(
                f"stopped in run {state.run + 1} after step {state.step}; "
                + (
                    f"everything is saved in {self._folder.path}: run the same command again to "
                    "continue"
                    if self._folder is not None
                    else "without an output folder nothing is saved"
                )
            )

    def _resume(self) -> Mapping[str, Any] | None:
        """Takes up the newest checkpoint, if there is one, which the first rank reads."""
        self._state, session, self._tickets = self._ranks.from_first(self._read)
        return session

    def _read(self) -> tuple[State, Mapping[str, Any] | None, list[Ticket]]:
        """Reads the newest checkpoint, if there is one, and the tickets collected before it."""
        folder = self._folder
        if folder is None:
            return State(), None, []
        saved = folder.load()
        if saved is None:
            forget_trajectory(folder.path)  # of a run that was here before and can't be resumed
            return State(), None, []
        state, session = saved
        numbers = range(self._plan.tickets_before(self._only or 0) + 1, state.tickets + 1)
        tickets = [folder.load_ticket(number) for number in numbers]
        folder.write_log(state.rows)
        folder.write_choices(state.choices)
        if state.run < self._end:
            if self._only is None or session is not None:  # else it is only about to begin
                self._reporter.line(
                    f"resuming run {state.run + 1} after step {state.step}, "
                    f"{state.tickets} of {self._plan.tickets} tickets collected"
                )
        elif self._recorder is not None and not trajectory_files(folder.path):
            self._reporter.warn(
                "the run is finished, so no trajectory is stored: train with another --output"
            )
        return state, session, tickets


def _selects_best(phase: Phase) -> bool:
    return any(event.selects_best for event in phase.at_end)
