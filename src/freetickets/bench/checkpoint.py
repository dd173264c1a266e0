"""What checkpoints cost beside the training that they save, at the default interval.

They are written where temporary files are: TMPDIR names another disk.
"""

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..config import Config
from ..data import get_spec, load
from ..methods.timeline import Timeline
from ..models import create_model
from ..ticket import Ticket
from ..training.folder import Checkpoints, pack_checkpoint
from ..training.job import Job
from ..training.parallel import Compute
from ..training.session import Session
from ..training.state import State, columns
from .timing import Ratio, Settings, Timing, compare, interleave

_MODEL = "wrn-16-4"


def overhead(settings: Settings) -> Iterator[Ratio | str]:
    """The checkpoints of an epoch of EDST on CIFAR-10 against the steps of that epoch."""
    training = Training(settings.tiny(_MODEL), settings.batch_or(128))
    every = Config().checkpoint_seconds
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder), print)
        sides = {"save": lambda: checkpoints.save(training.tree()), "step": training.step}
        timings = interleave(sides, settings.repeats)
        size = max(file.stat().st_size for file in Path(folder).iterdir())
    save, step = timings["save"], timings["step"]
    steps = training.steps_per_epoch
    epoch = Timing(steps * step.median, steps * step.fastest)
    saves = epoch.median / every * save.median, epoch.fastest / every * save.fastest
    yield compare(
        f"checkpoints every {every:g} s / the epoch that they save ({training.model}, CIFAR-10, "
        f"batch {training.batch}, EDST, masked)",
        {"saves": Timing(*saves, settings.repeats), "steps": epoch},
        (0.02, None),
    )
    yield (
        f"a save takes {save.median:.4g} s (best {save.fastest:.4g}) and {size / 1e6:.4g} MB; an "
        f"epoch of {steps} steps, {step.median:.4g} s each, takes "
        f"{epoch.median:.4g} s and has {epoch.median / every:.4g} saves"
    )


class Training:
    """EDST in its last epoch, on images of noise, with all that a checkpoint then holds.

    Tickets that were collected are files of their own, written once. The best ticket of the phase,
    which the paper's preset keeps, is in every checkpoint.
    """

    def __init__(self, model: str, batch: int) -> None:
        spec = get_spec("cifar10")
        config = Config(dataset=spec.name, model=model, preset="paper", batch_size=batch)
        self.model, self.batch = model, batch
        self.steps_per_epoch = math.ceil(spec.train_size / batch)
        self._plan = Job(config.resolved(spec), spec, lambda: load(spec, "train")).plan
        run = self._plan.runs[0]
        torch.manual_seed(0)
        self._inputs = torch.randn(batch, *spec.shape)
        self._labels = torch.randint(len(spec.classes), (batch,))
        timeline = Timeline(run, self.steps_per_epoch)
        network = create_model(model, spec.shape, len(spec.classes))
        settings = Config(backend="masked", momentum=0.9)
        self._session = Session(self._plan, run, timeline, network, Compute(), settings, spec.task)
        self._last_step = timeline.steps
        self.step()  # which makes the momentum
        best = Ticket.of(self._session.network.state_dict(), self._session.topology, {})
        self._state = State(
            step=self._last_step,
            tickets=self._plan.tickets - 1,
            best=best.pack(),
            rows=[dict.fromkeys(columns("accuracy"), 1 / 3)] * math.ceil(run.epochs),
        )

    def step(self) -> None:
        """Takes one step."""
        self._session.step(self._last_step, self._inputs, self._labels, keep_gradients=False)

    def tree(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return pack_checkpoint(self._plan, {}, self._state, self._session.state_dict())
