"""Stores what a network says of some test samples while it trains; nothing is chosen by it."""

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


class Recorder:
    """Stores a checkpoint of the trajectory every so many epochs, and at each ticket.

    A resumed run stores the same bytes again, as all that it stores is a function of the network
    and the step. So the interval may change midway: what was stored before stays.
    """

    def __init__(self, config: Config, spec: DatasetSpec, combine: str) -> None:
        if config.output is None:
            raise FreeTicketsError("a trajectory is stored in the run's folder: give it as output")
        if not spec.test_size:
            raise FreeTicketsError(f"a trajectory needs a test set; {spec.description} have none")
        if not spec.task.has_classes:
            raise FreeTicketsError(
                f"a trajectory is one of probabilities, and {config.task} has none: leave it out"
            )
        self._folder, self._every = Path(config.output), config.trajectory
        test = load(spec, "test", config.data_dir)
        samples = sorted(np.random.default_rng(_SEED).permutation(len(test))[:_SAMPLES].tolist())
        options: dict[str, Any] = {"shuffle": False, "workers": config.workers}
        options |= {"mean": spec.mean, "std": spec.std}
        self.batches = Batches(test.subset(samples), config.batch_size or _SAMPLES, **options)
        self.info: dict[str, Any] = {"kind": "trajectory", "dataset": spec.name, "split": "test"}
        self.info |= {"method": config.method, "model": config.model}
        self.info |= {"combine": combine, "samples": samples}

    def close_epoch(self, session: Session, span: Span, state: State, chosen: bool) -> None:
        """Stores what a network says at the end of an epoch or phase, if it is time to.

        Events are still to come; a chosen network, the phase's best so far, may be a ticket.
        """
        collects = [event for event in span.phase.at_end if event.tickets]
        ticket_step: int | None = None  # of the network that is collected here
        if state.step == span.end and collects:
            best = state.best if collects[0].selects_best else None
            ticket_step = state.step if best is None else int(best["info"]["step"])
        due = state.step % (self._every * session.timeline.steps_per_epoch) == 0
        if not due and not chosen and ticket_step is None:
            return
        with torch.random.fork_rng(devices=[]):  # a network may draw even when it predicts
            parts = [session.predictions(inputs) for inputs, _ in self.batches.epoch(0)]
        info = {
            **self.info, "run": state.run + 1, "step": state.step,
            "epoch": session.timeline.epoch(state.step), "phase": span.phase.name,
            "ticket": state.tickets + 1, "collected": ticket_step == state.step,
            "ticket_step": ticket_step,
        }  # fmt: skip
        found = np.concatenate(parts)[None].astype(np.float32)
        predictions = Predictions(found, self.batches.split.labels.numpy(), info)
        predictions.save(trajectory_file(self._folder, state.run + 1, state.step))


def forget_trajectory(folder: Path) -> None:
    """Removes the trajectory of a run's folder."""
    for file in trajectory_files(folder):
        file.unlink()
