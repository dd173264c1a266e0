"""Stores what a network says of some test samples while it trains; nothing is chosen by it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import Config
from ..data import Batches, DatasetSpec, load
from ..errors import FreeTicketsError
from ..methods.timeline import Span
from ..predictions import Predictions, trajectory_file, trajectory_files
from .session import Session
from .state import State

_SAMPLES = 1000
_SEED = 2022  # one choice for all runs, or they could not be laid out together


@dataclass(frozen=True)
class Recorder:
    """Stores a checkpoint of the trajectory every so many epochs, and at each ticket.

    A resumed run stores the same bytes again, as all that it stores is a function of the network
    and the step. So the interval may change midway: what was stored before stays.
    """

    folder: Path
    every: int
    batches: Batches
    info: dict[str, Any]

    def close_epoch(self, session: Session, span: Span, state: State, chosen: bool) -> None:
        """Stores what a network says at the end of an epoch or phase, if it is time to.

        Events are still to come; a chosen network, the phase's best so far, may be a ticket.
        """
        ticket_step = _ticket_step(span, state)
        due = state.step % (self.every * session.timeline.steps_per_epoch) == 0
        if not due and not chosen and ticket_step is None:
            return
        with torch.random.fork_rng(devices=[]):  # a network may draw even when it predicts
            parts = [session.predictions(inputs) for inputs, _ in self.batches.epoch(0)]
        info = {
            **self.info,
            "run": state.run + 1,
            "step": state.step,
            "epoch": session.timeline.epoch(state.step),
            "phase": span.phase.name,
            "ticket": state.tickets + 1,
            "collected": ticket_step == state.step,
            "ticket_step": ticket_step,
        }
        found = np.concatenate(parts)[None].astype(np.float32)
        predictions = Predictions(found, self.batches.split.labels.numpy(), info)
        predictions.save(trajectory_file(self.folder, state.run + 1, state.step))


def make_recorder(config: Config, spec: DatasetSpec, combine: str) -> Recorder | None:
    """Returns what stores the trajectory that the settings ask for; None if they don't."""
    if not config.trajectory:
        return None
    if config.output is None:
        raise FreeTicketsError("a trajectory is stored in the run's folder: give it as output")
    if not spec.test_size:
        raise FreeTicketsError(
            f"a trajectory follows a test set, and {spec.description} have none: train on a data "
            "set by name or on an .npz file"
        )
    if not spec.task.has_classes:
        raise FreeTicketsError(
            f"a trajectory is one of probabilities, and {config.task} has none: leave it out"
        )
    test = load(spec, "test", config.data_dir)
    order = np.random.default_rng(_SEED).permutation(len(test))
    samples = sorted(order[:_SAMPLES].tolist())
    batches = Batches(
        test.subset(samples),
        config.batch_size or _SAMPLES,
        mean=spec.mean,
        std=spec.std,
        shuffle=False,
        workers=config.workers,
    )
    info = {
        "kind": "trajectory",
        "dataset": spec.name,
        "split": "test",
        "method": config.method,
        "model": config.model,
        "combine": combine,
        "samples": samples,
    }
    return Recorder(Path(config.output), config.trajectory, batches, info)


def forget_trajectory(folder: Path) -> None:
    """Removes the trajectory of a run's folder."""
    for file in trajectory_files(folder):
        file.unlink()


def _ticket_step(span: Span, state: State) -> int | None:
    """The step whose network is collected as a ticket here; None if nothing is."""
    collects = [event for event in span.phase.at_end if event.tickets]
    if state.step != span.end or not collects:
        return None
    best = state.best if collects[0].selects_best else None
    return state.step if best is None else int(best["info"]["step"])
