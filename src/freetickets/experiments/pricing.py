"""Price lists: what experiments will cost, row by row, beside what the paper says."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from .experiment import Cell, Experiment
from .grid import CellTask
from .runner import Runner

if TYPE_CHECKING:
    from ..training.ledger import Ledger

_STEPS = 5  # that are timed


@dataclass(frozen=True)
class Price:
    """What one cell of a row costs."""

    experiment: str
    label: str  # of the row
    choice: str  # what tells the cell from others with the same label: its data, an option
    cell: str
    data: str  # what stands for the data set
    model: str
    relative_flops: float  # of training, as a multiple of one dense training
    paper: float | None  # what the paper says of that
    derivable: bool  # whether a count can equal the paper's
    flops: float  # of training
    seconds: float | None  # that one training will take, as far as can be told
    seeds: int  # how often the cell is trained
    finished: int  # how often it was

    @property
    def name(self) -> str:
        """What people read: the row and what else its cell is."""
        return self.label if self.choice == "" else f"{self.label}, {self.choice}"

    @property
    def difference(self) -> float | None:
        """How far the count is above the paper's."""
        return None if self.paper is None else self.relative_flops - self.paper


@dataclass(frozen=True)
class PriceList:
    """What experiments cost; a cell that several rows share stands in each, and is paid once."""

    scale: str
    prices: tuple[Price, ...]  # one for each cell of each row
    tasks: int  # trainings in all
    finished: int  # how many of them are done
    flops: float  # of those that are left
    seconds: float | None  # that those will take, if anybody knows

    def as_dict(self) -> dict[str, Any]:
        """All numbers as plain values, with stable keys."""
        prices = [{**asdict(each), "difference": each.difference} for each in self.prices]
        return {**asdict(self), "prices": prices}


def price_list(
    experiments: Sequence[Experiment],
    runner: Runner,
    tasks: Sequence[CellTask],
    throughput: float | None = None,
) -> PriceList:
    """Prices experiments without training, and without their data.

    Without a throughput (FLOPs a second), finished cells and a short measurement tell the time, but
    for the paper's own settings, which no device that could be measured here is meant for.
    """
    records = {task: runner.result(task) for task in tasks}
    found = [record for record in records.values() if record is not None]
    guesses = throughput is not None or runner.scale.name != "paper"
    estimator = Estimator(runner, throughput, found)
    by_cell: dict[Cell, list[CellTask]] = {}
    for task in tasks:
        by_cell.setdefault(task.cell, []).append(task)
    ledgers = {cell: runner.price(own[0]) for cell, own in by_cell.items()}
    seconds = {
        cell: estimator.seconds(own[0], ledgers[cell]) if guesses else None
        for cell, own in by_cell.items()
    }

    prices = []
    for experiment in experiments:
        several = len({row.dataset for row in experiment.rows}) > 1
        for row, cell in ((each, cell) for each in experiment.rows for cell in each.cells):
            if (own := by_cell.get(cell)) is None:
                continue
            substitute = runner.substitute(own[0])
            varied = [f"{name} {cell.options[name]:g}" for name in row.over]
            price = Price(
                experiment=experiment.name,
                label=row.label,
                choice=", ".join([*([cell.dataset] if several else []), *varied]),
                cell=cell.name,
                data=substitute.data.text,
                model=substitute.model or cell.model,
                relative_flops=ledgers[cell].relative_flops,
                paper=row.paper.get("train_flops"),
                derivable="train_flops" not in row.underivable,
                flops=ledgers[cell].flops,
                seconds=seconds[cell],
                seeds=len(own),
                finished=sum(records[task] is not None for task in own),
            )
            prices.append(price)
    left = [task for task in tasks if records[task] is None]
    times = [seconds[task.cell] or 0.0 for task in left]
    return PriceList(
        scale=runner.scale.name,
        prices=tuple(prices),
        tasks=len(tasks),
        finished=len(found),
        flops=sum(ledgers[task.cell].flops for task in left),
        seconds=sum(times) if guesses else None,
    )


class Estimator:
    """Guesses the seconds of a training, by what is known best.

    That is a throughput that was given; or what finished cells took, of the same data and network;
    or a few dense steps that are timed here. Sparse steps are taken to last as long as dense ones,
    so the guess is rather too long.
    """

    def __init__(
        self,
        runner: Runner,
        throughput: float | None = None,
        finished: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._runner, self._throughput = runner, throughput
        self._step_seconds: dict[tuple[str, str], float] = {}
        speeds: dict[tuple[str, str], list[float]] = {}
        for record in finished:
            ledger = record["ledger"]
            if ledger["flops"] and ledger["seconds"]:
                speed = ledger["seconds"] / ledger["flops"]
                speeds.setdefault((record["data"], record["model"]), []).append(speed)
        self._recorded = {key: median(each) for key, each in speeds.items()}

    def seconds(self, task: CellTask, ledger: Ledger) -> float:
        """How long a training will take."""
        growth = math.fsum(phase.growth_flops for phase in ledger.phases)
        if self._throughput is not None:
            return (ledger.flops + growth) / self._throughput
        substitute = self._runner.substitute(task)
        key = (substitute.data.text, substitute.model or task.cell.model)
        if key in self._recorded:
            return self._recorded[key] * ledger.flops
        if key not in self._step_seconds:
            self._step_seconds[key] = self._time_step(task)
        first = ledger.phases[0]
        dense_steps = ledger.relative_flops * ledger.dense_epochs * first.steps / first.epochs
        steps = sum(phase.steps for phase in ledger.phases)
        return max(steps, dense_steps) * self._step_seconds[key]

    def _time_step(self, task: CellTask) -> float:
        """Seconds of one dense step, forward and backward."""
        import torch
        from torch.nn.functional import cross_entropy

        from ..models import create_model
        from .substitutes import outline

        config = self._runner.config(task)
        spec = outline(self._runner.substitute(task).data, config.data_dir)
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
