"""The main table as plain data: one row a run, for the page, the terminal, files and JSON alike."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..evaluation.results import CorruptionSet, Shift, choose_corruptions
from ..tasks import Score
from .parts import Cell, Table
from .run import RunSummary

# The groups of rows, in the paper's order, and how the best of a group is marked there.
KINDS = {
    "dense": "single dense model",
    "one-pass": "one-pass",
    "multi-pass": "multi-pass",
    "dense-ensemble": "dense ensemble",
}
_MARKS: dict[str, Literal["best", "second"]] = {"one-pass": "best", "multi-pass": "second"}


@dataclass(frozen=True)
class Row:
    """One run in numbers; names of fields and scores are the keys of `report --json`.

    Attributes:
        run: The name of the run.
        folder: Where it lies.
        method: The name of its method.
        description: The method with its main options.
        kind: The group of rows that it belongs to, a key of `KINDS`.
        model: The network.
        dataset: What it was tested on.
        samples: The size of that test.
        tickets: How many members it has (M).
        sparsity: Of each member (S).
        scores: Of the ensemble by the keys of the task's scores, such as "accuracy"; and the mean
            of its members', as "member_accuracy".
        corruptions: The set of corruptions that the next columns are of; None without.
        c_accuracy: Of the ensemble on corrupted samples: the mean over types and severities.
        c_nll: The same of the NLL.
        c_ece: The same of the ECE.
        c_ece_pooled: The ECE of all corrupted samples together.
        a_accuracy: Of the ensemble on ImageNet-A, among its 200 classes.
        a_nll: The same of the NLL.
        a_ece: The same of the ECE.
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
    kind: str
    model: str
    dataset: str
    samples: int
    tickets: int
    sparsity: float
    scores: Mapping[str, float]
    corruptions: str | None
    c_accuracy: float | None
    c_nll: float | None
    c_ece: float | None
    c_ece_pooled: float | None
    a_accuracy: float | None
    a_nll: float | None
    a_ece: float | None
    train_flops: float
    growth_flops: float
    test_flops: float
    training_runs: float
    seconds: float
    ticket_mb: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, its scores beside the other numbers."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            found |= value if name == "scores" else {name: value}
        return found


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
        weight: The higher, the sooner it is left out where there is no room.
    """

    key: str
    title: str
    form: str
    group: str
    better: Callable[[Iterable[float]], float] = min
    short: str | None = None
    weight: int = 0

    def value(self, row: Row) -> float | None:
        """The number that a row has in this column."""
        return row.as_dict().get(self.key)

    def text(self, row: Row) -> str:
        """That number as it is shown."""
        return Cell.of(self.value(row), self.form).text

    def best(self, rows: Sequence[Row]) -> str | None:
        """The best value as it is shown; None if the rows that were measured do not differ."""
        measured = {self.text(row): value for row in rows if (value := self.value(row)) is not None}
        finite = list(filter(math.isfinite, measured.values()))
        if len(measured) < 2 or not finite:
            return None
        return format(self.better(finite), self.form)


_DENSE = "FLOPs, × dense"


def main_columns(scores: Sequence[Score]) -> list[Column]:
    """The columns of the paper's table, where ensembles have these scores."""
    return [*_score_columns(scores, "ensemble"), *_SHIFT_AND_COST]


def more_columns(scores: Sequence[Score]) -> list[Column]:
    """What the paper's table does not have."""
    return [*_score_columns(scores, "member mean"), *_SIZES]


def _score_columns(scores: Sequence[Score], group: str) -> list[Column]:
    """One column for each score of a task; of members, the first is a main one."""
    own = group == "ensemble"
    columns = []
    for score in scores:
        short = f"member\n{score.short}" if score is scores[0] else None
        columns.append(
            Column(
                score.key if own else f"member_{score.key}",
                f"{score.short} {'↑' if score.higher_is_better else '↓'}",
                score.form,
                group,
                max if score.higher_is_better else min,
                short=score.short if own else short,
                weight=0 if own else 2,
            )
        )
    return columns


_SHIFT_AND_COST = (
    Column("c_accuracy", "cAcc ↑", ".2%", "corrupted", max, short="cAcc"),
    Column("c_nll", "cNLL ↓", ".4f", "corrupted", short="cNLL"),
    Column("c_ece", "cECE ↓", ".4f", "corrupted", short="cECE"),
    Column("c_ece_pooled", "pooled ↓", ".4f", "corrupted"),
    Column("a_accuracy", "aAcc ↑", ".2%", "ImageNet-A", max, short="aAcc", weight=1),
    Column("a_nll", "aNLL ↓", ".4f", "ImageNet-A", short="aNLL", weight=3),
    Column("a_ece", "aECE ↓", ".4f", "ImageNet-A", short="aECE", weight=3),
    Column("train_flops", "training ↓", ".3f", _DENSE, short="train\nx"),
    Column("test_flops", "test ↓", ".3f", _DENSE, short="test\nx", weight=1),
    Column("training_runs", "runs ↓", "g", "training", short="runs", weight=1),
    Column("seconds", "seconds ↓", ",.0f", "training", short="train\ns"),
)
_SIZES = (
    Column("growth_flops", "growth ↓", ".4f", _DENSE),
    Column("ticket_mb", "MB ↓", ",.2f", "disk", short="disk\nMB", weight=3),
)


def columns_of(rows: Sequence[Row], columns: Sequence[Column]) -> list[Column]:
    """The columns in which some row has a number."""
    return [column for column in columns if any(column.value(row) is not None for row in rows)]


def make_rows(runs: Sequence[RunSummary]) -> list[Row]:
    """The rows of the main table, by kind as the paper has them, else in the order of the runs."""
    corruptions = choose_corruptions(run.results for run in runs)
    kinds = list(KINDS)
    rows = [_row(run, corruptions) for run in runs]
    return sorted(rows, key=lambda row: kinds.index(row.kind))


def main_table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """A table of runs in the paper's form: the main columns, or others."""
    columns = columns_of(rows, columns)
    cells = [
        [
            Cell(row.run),
            Cell(row.description),
            *(
                Cell.of(column.value(row), column.form, mark_of(row, column, rows))
                for column in columns
            ),
        ]
        for row in rows
    ]
    groups = _lengths(column.group for column in columns)
    kinds = [(KINDS[kind], count) for kind, count in _lengths(row.kind for row in rows)]
    header = ["run", "method", *(column.title for column in columns)]
    return Table(header, cells, [("", 2), *groups], kinds)


def _lengths(names: Iterable[str]) -> list[tuple[str, int]]:
    """How often each name follows itself."""
    return [(name, len(list(alike))) for name, alike in itertools.groupby(names)]


def mark_of(row: Row, column: Column, rows: Sequence[Row]) -> Literal["", "best", "second"]:
    """How a number stands out: as the best of the rows of its kind."""
    if row.kind not in _MARKS:
        return ""
    best = column.best([other for other in rows if other.kind == row.kind])
    return _MARKS[row.kind] if best == column.text(row) else ""


def kind_of(run: RunSummary) -> str:
    """The group of rows that a run belongs to; one-pass is one training, as the paper counts."""
    is_dense = all(phase.sparsity == 0 for phase in run.ledger.phases)
    if run.config.method in ("dense", "dense-ensemble") and is_dense:
        return "dense" if run.ledger.members == 1 else "dense-ensemble"
    return "one-pass" if run.ledger.runs == 1 else "multi-pass"


def corrupted(run: RunSummary) -> Shift | None:
    """What a run scored on the corrupted samples of its own test set."""
    return run.results.corrupted


def _row(run: RunSummary, corruptions: CorruptionSet | None) -> Row:
    means = run.results.means(corruptions) if corruptions else None
    keys = [score.key for score in run.task.scores]
    under_shift = [f"c_{key}" for key in ("accuracy", "nll", "ece", "ece_pooled")]
    found = [*under_shift, "a_accuracy", "a_nll", "a_ece"]
    return Row(
        run=run.name,
        folder=str(run.folder),
        method=run.config.method,
        description=run.description,
        kind=kind_of(run),
        model=run.config.model,
        dataset=run.dataset,
        samples=run.samples,
        tickets=run.ledger.members,
        sparsity=run.ledger.phases[-1].sparsity,
        scores={f"member_{key}": run.member_mean[key] for key in keys}
        | {key: run.ensemble[key] for key in keys},
        corruptions=corruptions.name if corruptions and means else None,
        **{key: run.results.value(key, corruptions) for key in found},
        train_flops=run.ledger.relative_flops,
        growth_flops=run.ledger.relative_growth_flops,
        test_flops=run.ledger.relative_test_flops,
        training_runs=run.ledger.runs,
        seconds=run.ledger.seconds,
        ticket_mb=run.ledger.ticket_bytes / 1e6,
    )
