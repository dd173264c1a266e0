"""The trainer: executes any plan, saves as it goes, and resumes where it was stopped."""

import itertools
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import hold_out, take
from ..data.batches import Batch, Batches
from ..errors import DivergedError, FreeTicketsError, StoppedError
from ..kernels.choices import difference
from ..methods.plan import Phase, Run
from ..methods.timeline import Span, Timeline, warn_of_few_explorations
from ..predictions import trajectory_files
from ..seeds import derive
from ..sparsity.criteria import initial_topology
from ..sparsity.topology import Topology
from ..storage import write_json
from ..ticket import Ticket, ticket_path
from .folder import RunFolder, write_settings
from .interrupt import StopRequest
from .job import PARTS, Job
from .parallel import make_compute
from .progress import Reporter
from .session import Session, Stage, first_sparsity, load_weights, prepare_on
from .state import Clock, LogRow, State, Tally, Validation
from .trajectory import Recorder, forget_trajectory

_RUINED = "the loss or a weight is not finite"
_DIVERGED = 10  # times the loss of guessing, finite though it may be
_CRITERION_BATCHES = 4  # what a topology is chosen by, before any training


class Trainer:
    """Executes the plan of a job; `state` says how far it is.

    `only` is the one run of the plan to train, counted from 0, in a folder of its own whose first
    checkpoint says what came before. Without an output folder tickets are kept in memory only.
    """

    def __init__(self, job: Job, reporter: Reporter, only: int | None = None) -> None:
        config, spec, self.plan = job.config, job.spec, job.plan
        self.build, self._task, self._only = job.build_transformed, job.task, only
        output = Path(config.output) if config.output else None
        if output is not None:
            config.check_same(output)
            if (output / PARTS).exists():
                raise FreeTicketsError(f"{output} was started side by side: use --jobs 1, or more")
        self._compute = make_compute(config.device, config.amp)
        self._ranks = ranks = self._compute.ranks
        if config.sync_batchnorm:
            if self._compute.device.type == "cpu":
                raise FreeTicketsError("--sync-batchnorm is for accelerators: use another --device")
            convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
            self.build = lambda: convert(job.build_transformed())
        with ranks.one_before_the_others():
            data, own = job.load_data()  # which may have to be fetched, once a machine
        train, held_out = hold_out(data, config.validation or 0.0) if own is None else (data, own)
        train = take(train, config.train_samples)
        size, augmentation = config.batch_size or 1, config.augmentation or "none"
        shared: dict[str, Any] = {"mean": spec.mean, "std": spec.std, "workers": config.workers}
        shared |= {"rank": ranks.rank, "world": ranks.world}
        batches: Callable[..., Batches] = partial(Batches, **shared)
        self._batches = partial(batches, train, size, augmentation=augmentation)
        self._validation = batches(held_out, 4 * size, shuffle=False) if held_out else None
        self._ledger = job.price(len(train))
        wanted = bool(config.trajectory)
        self._recorder = Recorder(config, spec, self.plan.combine) if wanted else None
        phases = [phase for run in self.plan.runs for phase in run.phases]
        if self._validation is None and any(map(_selects_best, phases)):
            raise FreeTicketsError("the plan chooses tickets by validation data: hold some out")
        self._config, self._describe = config, job.describe(data, own)
        self._reporter = reporter if ranks.first else Reporter(quiet=True)
        self._end = len(self.plan.runs) if only is None else only + 1
        self._folder: RunFolder | None = None
        if output is not None:
            self._folder = RunFolder(output, self.plan, self._describe, self._reporter.warn)
        self._last_save, self._stop = time.monotonic(), StopRequest()
        self.state, self._tickets = State(), list[Ticket]()

    def train(self) -> list[Ticket]:
        """Trains what is left of the plan and returns all its tickets; see `StopRequest`."""
        written = self._folder.path if self._folder is not None and self._ranks.first else None
        if written is not None:
            write_settings(self._config, written)
        try:
            self.state, saved, self._tickets = self._ranks.from_first(self._read)
            with self._stop, torch.random.fork_rng(devices=[]):
                while self.state.run < self._end:
                    self._train_run(saved)
                    saved = None
        finally:
            self._reporter.stop()
            if written is not None and (seconds := self.state.seconds):
                costs = self._ledger.with_seconds(seconds).as_dict()
                write_json(written / "ledger.json", {**costs, "settings": self._config.identity})
        return self._tickets

    # ---- one run

    def _train_run(self, saved: Mapping[str, Any] | None) -> None:
        state, run = self.state, self.plan.runs[self.state.run]
        restoring = self._folder.restoring if self._folder is not None else nullcontext
        batches = self._batches(seed=run.seed)
        timeline = Timeline(run, len(batches))
        torch.manual_seed(derive(run.seed, "init"))
        network = self.build()
        if saved is not None:
            with restoring():
                # Before its topology: it may be another one's.
                load_weights(network, saved["network"])
                topology = saved["sparsifier"] and saved["sparsifier"]["topology"]
        elif run.start is not None:
            network.load_state_dict(Ticket.unpack(state.shelf[run.start.weights]).state)
        else:
            prepare_on(network, batches)
        if saved is None and state.run == 0 and self._only is None and self._ranks.first:
            warn_of_few_explorations(self.plan, len(batches), self._reporter.warn)
        self._ranks.share_network(network.to(self._compute.device))
        if saved is None:
            topology = self._first_topology(run, network, batches)
        own = (self.plan, run, timeline, network, self._compute, self._config, self._task)
        session = Session(*own, topology, state.choices)
        if (warning := difference(state.choices, session.choices)) is not None:
            self._reporter.warn(warning)
        if saved is not None:
            with restoring():
                session.load_state_dict(saved)
        begin = self._only or 0
        lengths = [Timeline(each, len(batches)).steps for each in self.plan.runs[begin : self._end]]
        clock = Clock(sum(lengths[: state.run - begin]) + state.step, sum(lengths))
        self._reporter.start(clock.done, clock.total)
        began = state.step
        while state.step < timeline.steps:
            epoch, first = divmod(state.step, len(batches))
            for number, batch in enumerate(batches.epoch(epoch, start=first), first):
                span, samples = timeline.span(state.step + 1), batches.size(number)
                if state.step in (began, span.start):
                    left = span.end - state.step
                    epochs = round(left / len(batches), 2)
                    self._reporter.phase(state.run + 1, span.phase.name, epochs, left, clock)
                self._train_step(session, span, batch, samples, batches.factor(number))
                clock.tick(samples)
                self._reporter.step(clock, span.phase.name, state.tally)
                if state.step == span.end or state.step % len(batches) == 0:
                    self._close_epoch(session, span, batches, clock)
                if state.step == timeline.steps:
                    break
                waited = time.monotonic() - self._last_save
                is_due = self._ranks.first and waited > self._config.checkpoint_seconds
                if self._ranks.any(self._stop.made or is_due):
                    self._save(session)
        state.run, state.step = state.run + 1, 0
        if all(later.start is None for later in self.plan.runs[state.run :]):
            state.shelf = {}  # else each further checkpoint would hold what nobody takes
        self._save(None)
        self._reporter.stop()

    def _first_topology(self, run: Run, network: nn.Module, batches: Batches) -> Topology | None:
        if run.start is not None:
            return Ticket.unpack(self.state.shelf[run.start.topology]).topology
        sparse, sparsity = self.plan.sparse, first_sparsity(run)
        if sparse.criterion == "random" or sparsity == 0:
            return None
        chosen = initial_topology(
            sparse.criterion, network, sparsity,
            list(itertools.islice(batches.whole().epoch(0), _CRITERION_BATCHES)),
            distribution=sparse.distribution, exclude=sparse.exclude,
            loss=partial(self._task.batch_loss, training=False), seed=derive(run.seed, "topology"),
        )  # fmt: skip
        return {name: mask for name, mask in chosen.items() if not mask.all()}

    def _train_step(
        self, session: Session, span: Span, batch: Batch, samples: int, factor: float
    ) -> None:
        state, device = self.state, self._compute.device
        began = time.perf_counter()
        state.step += 1
        ends = state.step == span.end
        try:
            means = session.step(
                state.step,
                *(each.to(device, non_blocking=True) for each in batch),
                keep_gradients=ends and any(e.needs_gradients for e in span.phase.at_end),
                factor=factor,
            )
        except DivergedError as error:  # an exploration saw it first
            raise self._failed(session) from error
        state.tally.add(self._ranks.sum(means) * (samples / self._ranks.world), samples)
        # On an accelerator, looking at the loss would wait for the device at every step.
        looks = device.type == "cpu" or state.step % 50 == 0
        if looks and not math.isfinite(state.tally.loss):
            raise self._failed(session)
        key = (state.run + 1, span.phase.name)
        state.seconds[key] = state.seconds.get(key, 0.0) + time.perf_counter() - began

    def _failed(
        self, session: Session, what: str = _RUINED, advice: str = "check the data"
    ) -> FreeTicketsError:
        state, lr = self.state, session.timeline.lr(self.state.step)
        return FreeTicketsError(
            f"{what} at step {state.step} of run {state.run + 1} (lr {lr:g}): lower --lr or "
            f"{advice}; earlier checkpoints and tickets are kept"
        )

    def _close_epoch(self, session: Session, span: Span, batches: Batches, clock: Clock) -> None:
        """Validates, handles the events of a phase that ends here, and writes the log's row."""
        state, ends = self.state, self.state.step == span.end
        running, loss = self._task.running, state.tally.loss
        self._ranks.share_buffers(session.network)
        score = self._validate(session)
        if not (math.isfinite(loss) and math.isfinite(score.loss or 0.0) and session.finite):
            raise self._failed(session)
        if loss > _DIVERGED * (guess := self._task.guess(batches.split.labels, session.outputs)):
            found = f"{loss:.3g} (guessing: {guess:.3g}) in the mean of the epoch that ends"
            what = f"the training has diverged: its loss is {found}"
            raise self._failed(session, what, "scale the inputs")
        pruning = session.timeline.pruning(span)
        complete = pruning is None or state.step >= pruning.end  # a ticket has its full sparsity
        better = score.score is not None and running.is_better(score.score, state.best_score)
        chosen = _selects_best(span.phase) and complete and better
        take = partial(self._ticket, session, span, score)
        if chosen:
            state.best = take(session.network.state_dict(), session.topology).pack()
            state.best_score = score.score
        if (recorder := self._recorder) is not None:  # before an event changes the network
            self._ranks.from_first(lambda: recorder.close_epoch(session, span, state, chosen))
        events = span.phase.at_end if ends else ()
        for number, event in enumerate(events):
            seed = derive(session.run.seed, "event", state.step, number)
            own = torch.Generator().manual_seed(seed)
            stage = Stage(session, batches, own, self, take)
            if (line := event.happen(stage)) is not None:
                self._reporter.line(line)
        timeline, sparsifier = session.timeline, session.sparsifier
        row = LogRow(
            state.run + 1, span.phase.name, timeline.epoch(state.step), state.step,
            timeline.lr(state.step), loss, self._task.logged(state.tally.score), *score,
            sparsifier.itop_rate if sparsifier else None, " ".join(event.event for event in events),
            sum(state.seconds.values()),
        )  # fmt: skip
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
        device, tally = self._compute.device, Tally()
        for inputs, labels in self._validation.epoch(0):
            if len(labels):  # else the batch is smaller than the number of ranks
                tally.add(session.score(inputs.to(device), labels.to(device)), len(labels))
        tally = Tally(self._ranks.sum(tally.sums.to(device)), len(self._validation.split))
        return Validation(tally.loss, self._task.logged(tally.score))

    # ---- tickets

    def _ticket(
        self, session: Session, span: Span, score: Validation, weights: Mapping[str, Tensor],
        topology: Topology,
    ) -> Ticket:  # fmt: skip
        state, plan = self.state, self.plan
        info = {
            **self._describe, "method": plan.method, "combine": plan.combine,
            "tickets": plan.tickets, "run": state.run + 1, "seed": session.run.seed,
            "phase": span.phase.name, "step": state.step,
            "epoch": session.timeline.epoch(state.step),
            "sparsity": session.sparsifier.sparsity if session.sparsifier else 0.0,
            "validation_loss": score.loss, f"validation_{self._task.running.key}": score.score,
        }  # fmt: skip
        return Ticket.of(weights, topology, info)

    def collect(self, ticket: Ticket) -> str:
        """Adds a ticket to those of the plan, and saves it; returns a line for people."""
        state = self.state
        state.best, state.best_score = None, None
        state.tickets += 1
        ticket.info["number"] = state.tickets
        self._tickets.append(ticket)
        if (folder := self._folder) is not None:
            path = ticket_path(folder.path, state.tickets)
            self._ranks.from_first(lambda: ticket.save(path))
        return f"ticket {state.tickets} of {self.plan.tickets} collected"

    # ---- saving and going on

    def _save(self, session: Session | None) -> None:
        """Writes a checkpoint; if someone asked to stop, this is the moment."""
        state, folder = self.state, self._folder
        if session is not None and session.choices is not None:
            state.choices = session.choices.state_dict()
        where = "without an output folder nothing is saved"
        if folder is not None:
            live = session.state_dict() if session is not None else None
            self._ranks.from_first(lambda: folder.save(state, live))
            where = f"everything is saved in {folder.path}: run the same command again to continue"
        self._last_save = time.monotonic()
        if self._ranks.any(self._stop.made) and state.run < self._end:
            raise StoppedError(f"stopped in run {state.run + 1} after step {state.step}; {where}")

    def _read(self) -> tuple[State, Mapping[str, Any] | None, list[Ticket]]:
        """Reads the newest checkpoint, if there is one, and the tickets collected before it."""
        folder = self._folder
        saved = folder.load() if folder is not None else None
        if folder is None or saved is None:
            if folder is not None:  # of a run that was here before and can't be resumed
                forget_trajectory(folder.path)
            return State(), None, []
        state, session = saved
        numbers = range(self.plan.tickets_before(self._only or 0) + 1, state.tickets + 1)
        tickets = [folder.load_ticket(number) for number in numbers]
        folder.write_log(state.rows)
        folder.write_choices(state.choices)
        if state.run < self._end:
            if self._only is None or session is not None:  # else it is only about to begin
                self._reporter.line(
                    f"resuming run {state.run + 1} after step {state.step}, "
                    f"{state.tickets} of {self.plan.tickets} tickets collected"
                )
        elif self._recorder is not None and not trajectory_files(folder.path):
            self._reporter.warn("it is finished, so no trajectory is stored: use another --output")
        return state, session, tickets


def _selects_best(phase: Phase) -> bool:
    return any(event.selects_best for event in phase.at_end)
