"""Price lists: what experiments will cost, row by row, beside what the paper says."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from .experiment import Cell, Experiment, Row
from .grid import CellTask
from .runner import Runner

if TYPE_CHECKING:
    from ..training.ledger import Ledger

_STEPS = 5  # that are timed


@dataclass(frozen=True)
class Price:
    """What one cell of a row costs.

    Attributes:
        experiment: The table or figure.
        label: The row.
        choice: What tells the cell from others with the same label: its data, an option.
        cell: The name of the cell.
        data: What stands for the data set.
        model: The network.
        relative_flops: Of training, as a multiple of one dense training.
        paper: What the paper says of that; None if nothing.
        derivable: Whether a count can equal the paper's.
        flops: Of training.
        seconds: That one training will take, as far as can be told.
        seeds: How often the cell is trained.
        finished: How often it was.
    """

    experiment: str
    label: str
    choice: str
    cell: str
    data: str
    model: str
    relative_flops: float
    paper: float | None
    derivable: bool
    flops: float
    seconds: float | None
    seeds: int
    finished: int

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
    """What experiments cost; a cell that several rows share stands in each, and is paid once.

    Attributes:
        scale: The name of the scale.
        prices: One for each cell of each row.
        tasks: How many trainings there are in all.
        finished: How many of them are done.
        flops: Of those that are left.
        seconds: That those will take; None if nobody knows.
    """

    scale: str
    prices: tuple[Price, ...]
    tasks: int
    finished: int
    flops: float
    seconds: float | None

    def as_dict(self) -> dict[str, Any]:
        """All numbers as plain values, with stable keys."""
        return {
            **asdict(self),
            "prices": [{**asdict(each), "difference": each.difference} for each in self.prices],
        }


def price_list(
    experiments: Sequence[Experiment],
    runner: Runner,
    tasks: Sequence[CellTask],
    throughput: float | None = None,
) -> PriceList:
    """Prices experiments without training, and without their data.

    Args:
        experiments: The tables and figures.
        runner: Knows the settings and what is finished.
        tasks: What has to be trained.
        throughput: FLOPs a second of the device; if it is not given, finished cells and a short
            measurement tell the time, but for the paper's own settings, which no device that could
            be measured here is meant for.
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

    def price(experiment: Experiment, row: Row, cell: Cell) -> Price:
        own = by_cell[cell]
        substitute = runner.substitute(own[0])
        return Price(
            experiment=experiment.name,
            label=row.label,
            choice=", ".join([*_datasets(experiment, cell), *_varied(row, cell)]),
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

    left = [task for task in tasks if records[task] is None]
    times = [seconds[task.cell] or 0.0 for task in left]
    return PriceList(
        scale=runner.scale.name,
        prices=tuple(
            price(experiment, row, cell)
            for experiment in experiments
            for row in experiment.rows
            for cell in row.cells
            if cell in by_cell
        ),
        tasks=len(tasks),
        finished=len(found),
        flops=sum(ledgers[task.cell].flops for task in left),
        seconds=sum(times) if guesses else None,
    )


def _datasets(experiment: Experiment, cell: Cell) -> list[str]:
    several = {row.dataset for row in experiment.rows}
    return [cell.dataset] if len(several) > 1 else []


def _varied(row: Row, cell: Cell) -> list[str]:
    return [f"{name} {cell.options[name]:g}" for name in row.over]


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

    def seconds(self, task: CellTask, ledger: Ledger) -> float:
        """How long a training will take."""
        growth = math.fsum(phase.growth_flops for phase in ledger.phases)
        if self._throughput is not None:
            return (ledger.flops + growth) / self._throughput
        substitute = self._runner.substitute(task)
        model = substitute.model or task.cell.model
        recorded = self._recorded.get(f"{substitute.data.text}|{model}")
        if recorded is not None:
            return recorded * ledger.flops
        key = (substitute.data.text, model)
        if key not in self._step_seconds:
            self._step_seconds[key] = self._time_step(task)
        dense_steps = ledger.relative_flops * self._dense_steps(ledger)
        steps = sum(phase.steps for phase in ledger.phases)
        return max(steps, dense_steps) * self._step_seconds[key]

    def _dense_steps(self, ledger: Ledger) -> float:
        first = ledger.phases[0]
        return ledger.dense_epochs * first.steps / first.epochs

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
