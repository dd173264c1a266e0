"""Price lists: what experiments will cost, row by row, beside what the paper says."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
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

    The time is told by a throughput (FLOPs a second), finished cells or a short measurement.
    """
    records = {task: runner.result(task) for task in tasks}
    left = [task for task, record in records.items() if record is None]
    by_cell: dict[Cell, list[CellTask]] = {}
    for task in tasks:
        by_cell.setdefault(task.cell, []).append(task)
    ledgers = {cell: runner.price(own[0]) for cell, own in by_cell.items()}
    seconds: dict[Cell, float | None] = dict.fromkeys(by_cell)
    if throughput is not None or runner.scale.name != "paper":
        guess = _estimator(runner, throughput, [found for found in records.values() if found])
        seconds = {cell: guess(own[0], ledgers[cell]) for cell, own in by_cell.items()}

    prices = []
    for experiment in experiments:
        several = len({row.dataset for row in experiment.rows}) > 1
        for row, cell in ((each, cell) for each in experiment.rows for cell in each.cells):
            if (own := by_cell.get(cell)) is None:
                continue
            substitute = runner.substitute(own[0])
            varied = [f"{name} {cell.options[name]:g}" for name in row.over]
            price = Price(
                experiment=experiment.name, label=row.label,
                choice=", ".join([*([cell.dataset] if several else []), *varied]), cell=cell.name,
                data=substitute.data.text, model=substitute.model or cell.model,
                relative_flops=ledgers[cell].relative_flops, paper=row.paper.get("train_flops"),
                derivable="train_flops" not in row.underivable, flops=ledgers[cell].flops,
                seconds=seconds[cell], seeds=len(own),
                finished=sum(records[task] is not None for task in own),
            )  # fmt: skip
            prices.append(price)
    flops = sum(ledgers[task.cell].flops for task in left)
    times = [each for task in left if (each := seconds[task.cell]) is not None]
    time_left = None if None in seconds.values() else sum(times)
    done = len(tasks) - len(left)
    return PriceList(runner.scale.name, tuple(prices), len(tasks), done, flops, time_left)


def _estimator(
    runner: Runner, throughput: float | None, finished: Sequence[Mapping[str, Any]]
) -> Callable[[CellTask, Ledger], float]:
    """Guesses seconds by what is known best; sparse steps count as dense ones: rather too long."""
    speeds: dict[tuple[str, str], list[float]] = {}
    for record in finished:
        if (ledger := record["ledger"])["flops"] and ledger["seconds"]:
            speed = ledger["seconds"] / ledger["flops"]
            speeds.setdefault((record["data"], record["model"]), []).append(speed)
    step_seconds: dict[tuple[str, str], float] = {}

    def seconds(task: CellTask, ledger: Ledger) -> float:
        if throughput is not None:
            growth = math.fsum(phase.growth_flops for phase in ledger.phases)
            return (ledger.flops + growth) / throughput
        substitute = runner.substitute(task)
        key = (substitute.data.text, substitute.model or task.cell.model)
        if key in speeds:
            return median(speeds[key]) * ledger.flops
        if key not in step_seconds:
            step_seconds[key] = _time_step(runner, task)
        first = ledger.phases[0]
        dense_steps = ledger.relative_flops * ledger.dense_epochs * first.steps / first.epochs
        return max(sum(phase.steps for phase in ledger.phases), dense_steps) * step_seconds[key]

    return seconds


def _time_step(runner: Runner, task: CellTask) -> float:
    """Seconds of one dense step, forward and backward."""
    import torch
    from torch.nn.functional import cross_entropy

    from ..models import create_model

    job = runner.outline(task)
    batch = job.config.batch_size or 1
    model = create_model(job.config.model, job.spec.shape, len(job.spec.classes))
    inputs = torch.randn(batch, *job.spec.shape, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(batch) % len(job.spec.classes)
    times = []
    for _ in range(_STEPS):
        began = time.perf_counter()
        cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - began)
    return min(times)
