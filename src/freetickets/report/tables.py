"""The main table as plain data: one row a run, for the page, the terminal, files and JSON alike."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..evaluation.results import CorruptionSet, choose_corruptions
from ..metrics.score import COSTS, KINDS, LEDGER_FACTS, POOLED, Column, Score, columns_of_kind
from .parts import Mark, Table, TableCell, row
from .run import RunSummary

# The groups of rows, in the paper's order, and how the best of a group is marked there.
GROUPS = {"dense": "single dense model", "one-pass": "one-pass", "multi-pass": "multi-pass"}
GROUPS["dense-ensemble"] = "dense ensemble"
_MARKS: dict[str, Mark] = {"one-pass": "best", "multi-pass": "second"}


@dataclass(frozen=True)
class RunRow:
    """One run in numbers; names of fields and columns are the keys of `report --json`.

    FLOPs are multiples of one dense network's, seconds those in training steps, MB of all members.
    """

    run: str
    folder: str
    method: str
    description: str
    kind: str  # of the rows in `GROUPS`
    model: str
    dataset: str
    samples: int
    tickets: int
    sparsity: float
    corruptions: str | None  # the set that columns with c_ are means over
    numbers: Mapping[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """The row as plain data, its numbers beside the rest."""
        found = dict(vars(self))
        return found | found.pop("numbers")


@dataclass(frozen=True)
class TableColumn(Column):
    """How a number is shown; `short` is its title where there is little room, None leaves it out.

    The higher the weight, the sooner it is left out.
    """

    group: str = ""
    short: str | None = None
    weight: int = 0

    def cell(self, row: RunRow, mark: Mark = "") -> TableCell:
        """The number that a row has in this column."""
        return TableCell.of(row.numbers.get(self.key), self.form, mark)

    def best(self, rows: Sequence[RunRow]) -> str | None:
        """The best value as it is shown; None if the rows that were measured do not differ."""
        cells = [self.cell(row) for row in rows if row.numbers.get(self.key) is not None]
        finite = [it.value for it in cells if it.value is not None and math.isfinite(it.value)]
        if len({cell.text for cell in cells}) < 2 or not finite:
            return None
        return format(self.better(finite), self.form)


_DENSE = "FLOPs, × dense"
# Of each cost: the title under its group, the group, the title in a narrow table, the weight.
_COST_TITLES: dict[str, tuple[str, str, str | None, int]] = {
    "train_flops": ("training", _DENSE, "train\nx", 0),
    "test_flops": ("test", _DENSE, "test\nx", 1),
    "training_runs": ("runs", "training", "runs", 1),
    "seconds": ("seconds", "training", "train\ns", 0),
    "growth_flops": ("growth", _DENSE, None, 0),
    "ticket_mb": ("MB", "disk", "disk\nMB", 3),
}


def main_columns(scores: Sequence[Score]) -> list[TableColumn]:
    """The columns of the paper's table, where ensembles have these scores."""
    own = [_column(score, score.short, "ensemble", score.short) for score in scores]
    natural = [_column(it, it.title, KINDS["a"][1], it.title, 3) for it in columns_of_kind("a")]
    natural[0] = replace(natural[0], weight=1)
    costs = _costs("train_flops", "test_flops", "training_runs", "seconds")
    return [*own, *shift_columns(), *natural, *costs]


def more_columns(scores: Sequence[Score]) -> list[TableColumn]:
    """What the paper's table does not have; of the members' scores the first is a main one."""
    pairs = zip(columns_of_kind("member", scores), scores, strict=True)
    members = [_column(it, score.short, KINDS["member"][1], None, 2) for it, score in pairs]
    members[0] = replace(members[0], short=f"member\n{scores[0].short}")
    return [*members, *_costs("growth_flops", "ticket_mb")]


def shift_columns() -> list[TableColumn]:
    """The scores on corrupted samples."""
    group = KINDS["c"][1]
    return [
        _column(it, "pooled", group) if it is POOLED else _column(it, it.title, group, it.title)
        for it in columns_of_kind("c")
    ]


def _costs(*keys: str) -> list[TableColumn]:
    costs = {column.key: column for column in COSTS}
    return [_column(costs[key], *_COST_TITLES[key]) for key in keys]


def _column(
    column: Column, title: str, group: str, short: str | None = None, weight: int = 0
) -> TableColumn:
    key, form, better = column.key, column.form, column.higher_is_better
    return TableColumn(key, title, form, better, group, short, weight)


def columns_of(rows: Sequence[RunRow], columns: Sequence[TableColumn]) -> list[TableColumn]:
    """The columns in which some row has a number."""
    return [it for it in columns if any(row.numbers.get(it.key) is not None for row in rows)]


def make_rows(runs: Sequence[RunSummary]) -> list[RunRow]:
    """The rows of the main table, by kind as the paper has them, else in the order of the runs."""
    corruptions = choose_corruptions(run.results for run in runs)
    rows = [_row(run, corruptions) for run in runs]
    return sorted(rows, key=lambda row: list(GROUPS).index(row.kind))


def main_table(rows: Sequence[RunRow], columns: Sequence[TableColumn]) -> Table:
    """A table of runs in the paper's form: the main columns, or others."""
    columns = columns_of(rows, columns)
    cells = [
        row(it.run, it.description, *(each.cell(it, mark_of(it, each, rows)) for each in columns))
        for it in rows
    ]
    header = ["run", "method", *(f"{column.title} {column.arrow}" for column in columns)]
    groups = itertools.groupby(column.group for column in columns)
    kinds = itertools.groupby(GROUPS[row.kind] for row in rows)
    above = [("", 2), *((name, len(list(alike))) for name, alike in groups)]
    return Table(header, cells, above, [(name, len(list(alike))) for name, alike in kinds])


def mark_of(row: RunRow, column: TableColumn, rows: Sequence[RunRow]) -> Mark:
    """How a number stands out: as the best of the rows of its kind."""
    if row.kind not in _MARKS:
        return ""
    best = column.best([other for other in rows if other.kind == row.kind])
    return _MARKS[row.kind] if best == column.cell(row).text else ""


def kind_of(run: RunSummary) -> str:
    """The group of rows that a run belongs to; one-pass is one training, as the paper counts."""
    is_dense = all(phase.sparsity == 0 for phase in run.ledger.phases)
    if run.config.method in ("dense", "dense-ensemble") and is_dense:
        return "dense" if run.ledger.members == 1 else "dense-ensemble"
    return "one-pass" if run.ledger.runs == 1 else "multi-pass"


def _row(run: RunSummary, corruptions: CorruptionSet | None) -> RunRow:
    results, ledger = run.results, run.ledger
    is_shown = corruptions is not None and results.means(corruptions) is not None
    keys = [score.key for score in results.task.scores]
    numbers: dict[str, float | None] = {f"member_{key}": results.member_mean[key] for key in keys}
    numbers |= {key: results.ensemble[key] for key in keys}
    for it in columns_of_kind("c"):
        numbers[it.key] = results.value(it.key, corruptions) if is_shown else None
    numbers |= {it.key: results.value(it.key) for it in columns_of_kind("a")}
    numbers |= {key: getattr(ledger, fact) / unit for key, (fact, unit) in LEDGER_FACTS.items()}
    return RunRow(
        run=run.name, folder=str(run.folder), method=run.config.method, description=run.description,
        kind=kind_of(run), model=run.config.model, dataset=results.dataset, samples=results.samples,
        tickets=ledger.members, sparsity=ledger.phases[-1].sparsity,
        corruptions=corruptions.name if corruptions and is_shown else None, numbers=numbers,
    )  # fmt: skip
