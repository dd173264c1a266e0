"""The main table as plain data: one row a run, for the page, the terminal and JSON alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .run import RunSummary


@dataclass(frozen=True)
class Row:
    """One run in numbers; the names of the fields are the keys of `report --json`.

    Attributes:
        run: The name of the run.
        folder: Where it lies.
        method: The name of its method.
        description: The method with its main options.
        model: The network.
        dataset: What it was tested on.
        samples: The size of that test.
        tickets: How many members it has (M).
        sparsity: Of each member (S).
        member_accuracy: The mean accuracy of the members.
        member_nll: Their mean negative log-likelihood.
        member_ece: Their mean expected calibration error.
        accuracy: Of the ensemble.
        nll: Of the ensemble.
        ece: Of the ensemble.
        train_flops: As a multiple of one dense training.
        growth_flops: What dense gradients for growth add to that.
        test_flops: As a multiple of one dense network's prediction.
        training_runs: How many trainings that made, as the paper counts them.
        seconds: Time in training steps.
        ticket_mb: All members on disk.
    """

    run: str
    folder: str
    method: str
    description: str
    model: str
    dataset: str
    samples: int
    tickets: int
    sparsity: float
    member_accuracy: float
    member_nll: float
    member_ece: float
    accuracy: float
    nll: float
    ece: float
    train_flops: float
    growth_flops: float
    test_flops: float
    training_runs: float
    seconds: float
    ticket_mb: float


@dataclass(frozen=True)
class Column:
    """How a number of each row is shown.

    Attributes:
        key: The field of the row.
        title: Above the column, under its group.
        form: How the number is written, as in an f-string.
        group: What this column and its neighbours are about.
        better: `max` or `min`: which value of the column is the best.
        short: The title where there is room for the main columns only; None leaves it out there.
    """

    key: str
    title: str
    form: str
    group: str
    better: Callable[[Iterable[float]], float] = min
    short: str | None = None

    def value(self, row: Row) -> float:
        """The number that a row has in this column."""
        number: float = getattr(row, self.key)
        return number

    def text(self, row: Row) -> str:
        """That number as it is shown."""
        return format(self.value(row), self.form)

    def best(self, rows: Sequence[Row]) -> str | None:
        """The best value as it is shown; None if the rows show no difference."""
        finite = [row for row in rows if math.isfinite(self.value(row))]
        if len({self.text(row) for row in rows}) < 2 or not finite:
            return None
        best = self.better(self.value(row) for row in finite)
        return format(best, self.form)


COLUMNS = (
    Column("member_accuracy", "accuracy", ".2%", "member mean", max, short="member\nacc."),
    Column("member_nll", "NLL", ".4f", "member mean"),
    Column("member_ece", "ECE", ".4f", "member mean"),
    Column("accuracy", "accuracy", ".2%", "ensemble", max, short="acc."),
    Column("nll", "NLL", ".4f", "ensemble", short="NLL"),
    Column("ece", "ECE", ".4f", "ensemble", short="ECE"),
    Column("train_flops", "training", ".3f", "FLOPs, × one dense model", short="train\nx"),
    Column("growth_flops", "growth", ".4f", "FLOPs, × one dense model"),
    Column("test_flops", "test", ".3f", "FLOPs, × one dense model", short="test\nx"),
    Column("training_runs", "runs", "g", "training"),
    Column("seconds", "seconds", ",.0f", "training", short="train\ns"),
    Column("ticket_mb", "MB", ",.2f", "tickets", short="disk\nMB"),
)


def make_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """The rows of the main table, in the order of the runs."""
    return [
        Row(
            run=run.name,
            folder=str(run.folder),
            method=run.config.method,
            description=run.description,
            model=run.config.model,
            dataset=run.dataset,
            samples=run.samples,
            tickets=run.ledger.members,
            sparsity=run.ledger.phases[-1].sparsity,
            member_accuracy=run.member_mean.accuracy,
            member_nll=run.member_mean.nll,
            member_ece=run.member_mean.ece,
            accuracy=run.ensemble.accuracy,
            nll=run.ensemble.nll,
            ece=run.ensemble.ece,
            train_flops=run.ledger.relative_flops,
            growth_flops=run.ledger.relative_growth_flops,
            test_flops=run.ledger.relative_test_flops,
            training_runs=run.ledger.runs,
            seconds=run.ledger.seconds,
            ticket_mb=run.ledger.ticket_bytes / 1e6,
        )
        for run in runs
    ]
