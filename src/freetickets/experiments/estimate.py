"""Estimates: how long tasks will take, before they are trained."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from .runner import Runner
from .tasks import Task

if TYPE_CHECKING:
    from ..training.ledger import Ledger

_STEPS = 5  # that are timed


class Estimator:
    """Guesses the seconds of a training, by what is known best.

    That is a throughput that was given; or what finished cells took, of the same data and network;
    or a few dense steps that are timed here. Sparse steps are taken to last as long as dense ones,
    so the guess is rather too long.

    Args:
        runner: Knows the tasks.
        throughput: FLOPs a second of the device that will train.
        finished: Results of finished cells.
    """

    def __init__(
        self,
        runner: Runner,
        throughput: float | None = None,
        finished: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._runner = runner
        self._throughput = throughput
        self._step_seconds: dict[tuple[str, str], float] = {}
        speeds: dict[str, list[float]] = {}
        for record in finished:
            ledger = record["ledger"]
            if ledger["flops"] and ledger["seconds"]:
                key = f"{record['data']}|{record['model']}"
                speeds.setdefault(key, []).append(ledger["seconds"] / ledger["flops"])
        self._recorded = {key: median(each) for key, each in speeds.items()}

    def seconds(self, task: Task, ledger: Ledger) -> float:
        """How long a training will take."""
        growth = math.fsum(phase.growth_flops for phase in ledger.phases)
        if self._throughput is not None:
            return (ledger.flops + growth) / self._throughput
        stand = self._runner.stand(task)
        model = stand.model or task.cell.model
        recorded = self._recorded.get(f"{stand.data.text}|{model}")
        if recorded is not None:
            return recorded * ledger.flops
        key = (stand.data.text, model)
        if key not in self._step_seconds:
            self._step_seconds[key] = self._time_step(task)
        dense_steps = ledger.relative_flops * self._dense_steps(ledger)
        steps = sum(phase.steps for phase in ledger.phases)
        return max(steps, dense_steps) * self._step_seconds[key]

    def _dense_steps(self, ledger: Ledger) -> float:
        first = ledger.phases[0]
        return ledger.dense_epochs * first.steps / first.epochs

    def _time_step(self, task: Task) -> float:
        """Seconds of one dense step, forward and backward."""
        import torch
        from torch.nn.functional import cross_entropy

        from ..models import create_model
        from .stand_ins import outline

        config = self._runner.config(task)
        spec = outline(self._runner.stand(task).data, config.data_dir)
        batch = config.batch_size or 1
        model = create_model(config.model, spec.shape, len(spec.classes))
        inputs = torch.randn(batch, *spec.shape, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(batch) % len(spec.classes)
        times = []
        for _ in range(_STEPS):
            began = time.perf_counter()
            cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            times.append(time.perf_counter() - began)
        return min(times)
