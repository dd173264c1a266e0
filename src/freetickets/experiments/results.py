"""Results: what was measured of each cell and seed, and the numbers that tables show of it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.spec import get_spec
from ..errors import FreeTicketsError, NewerFileError
from ..metrics import pearson, spearman
from ..metrics.score import LEDGER_FACTS
from ..reading import Allow, Count, Natural, read, read_json
from ..seal import digest_file, seal_values
from .experiment import Cell, Needs, Row
from .timing import COLUMNS, StepTimes

if TYPE_CHECKING:
    from ..evaluation.results import Evaluation
    from .answers import Answers

Record = Mapping[str, Any]

_DIGITS = 8  # of each number in a file: more than any test set can tell

# Whose first k members are what the method with k of them would have made, at k shares of the cost.
_INDEPENDENT = ("dst", "static", "dense-ensemble")
_CSV_COLUMNS = (
    "accuracy", "nll", "ece", "member_accuracy", "member_nll", "member_ece",
    "c_accuracy", "c_nll", "c_ece", "c_ece_pooled", "a_accuracy", "a_nll", "a_ece",
    "diversity.disagreement", "diversity.kl", "attacks.fgsm.min", "attacks.fgsm.mean",
    "train_flops", "growth_flops", "test_flops", "training_runs",
)  # fmt: skip


@dataclass(frozen=True)
class _Costs:
    """The types of a record's ledger."""

    members: Count
    relative_flops: float | None = None
    relative_growth_flops: float | None = None
    relative_test_flops: float | None = None
    runs: float | None = None
    flops: float | None = None
    seconds: float | None = None
    ticket_bytes: float | None = None


@dataclass(frozen=True)
class _Record:
    """The types of what a file of results says; it may say more."""

    cell: str
    seed: Natural
    method: str
    options: Mapping[str, Any]
    ledger: _Costs
    metrics: Mapping[str, Any]
    first: Mapping[str, Mapping[str, Any]]
    data: str | None = None
    model: str | None = None
    needs: Needs = field(default_factory=Needs)
    row_members: tuple[Count, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    answers: str | None = None


@dataclass(frozen=True)
class Results:
    """What was measured at one scale: records by cell and seed; `folder` is None in memory."""

    records: Mapping[tuple[str, int], Record] = field(default_factory=dict)
    folder: Path | None = None
    timing: StepTimes | None = None  # of steps, for seconds that no other work has lengthened
    _evaluations: dict[tuple[str, int], Evaluation] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def load(cls, folder: str | Path, timing: StepTimes | None = None) -> Results:
        """Reads all results of a scale from its folder, `<output>/<scale>`."""
        folder, records = Path(folder), {}
        for path in sorted((folder / "results").glob("*/*.json")):
            again = "remove it, and 'freetickets reproduce' makes it again"
            if (record := read_record(path)) is None:
                raise FreeTicketsError(f"{path} is damaged: {again}")
            cell, seed = key = record["cell"], record["seed"]
            if path != record_path(folder, cell, seed):
                raise FreeTicketsError(f"{path} is of another cell or seed {key}: {again}")
            records[key] = record
        return cls(records, folder, timing)

    def get(self, cell: Cell, seed: int) -> Record | None:
        """What was measured of a cell; None if nothing was."""
        return self.records.get((cell.name, seed))

    def seeds(self, cell: Cell) -> list[int]:
        """The seeds that a cell was measured with."""
        return sorted(seed for name, seed in self.records if name == cell.name)

    def run_folder(self, cell: Cell, seed: int) -> Path | None:
        """The folder of a run, with its predictions; None if it is not there."""
        folder = None if self.folder is None else run_folder(self.folder, cell, seed)
        return folder if folder and (folder / "metrics.json").is_file() else None

    def value(self, row: Row, column: str, seed: int) -> float | None:
        """A number of a row; None where it was not measured."""
        if column.startswith("correlation."):
            return self._correlation(row.cells, column, seed)
        several = len(row.cells) > 1
        return None if several else self.number(row.cells[0].name, column, seed, row.members)

    def by_seed(self, row: Row, column: str) -> dict[int, float]:
        """A number of a row for each seed that it was measured with."""
        seeds = sorted({seed for cell in row.cells for seed in self.seeds(cell)})
        found = ((seed, self.value(row, column, seed)) for seed in seeds)
        return {seed: value for seed, value in found if value is not None}

    def values(self, row: Row, column: str) -> list[float]:
        """The same numbers alone, in the order of the seeds."""
        return list(self.by_seed(row, column).values())

    def number(self, cell: str, column: str, seed: int, members: int | None = None) -> float | None:
        """A number of a cell, or of its first `members`; None where it was not measured."""
        if (record := self.records.get((cell, seed))) is None:
            return None
        if column in COLUMNS:
            return None if self.timing is None else self.timing.seconds(record, column)
        if (key := (cell, seed)) not in self._evaluations:
            self._evaluations[key] = evaluation_of(record)
        return value_of(record, column, members, self._evaluations[key])

    def _correlation(self, cells: Sequence[Cell], column: str, seed: int) -> float | None:
        sides = [
            [value for each in cells if (value := self.number(each.name, score, seed)) is not None]
            for score in ("member_accuracy", "accuracy")
        ]
        if len(cells) < 3 or any(len(side) < len(cells) or len({*side}) < 2 for side in sides):
            return None
        return (pearson if column == "correlation.pearson" else spearman)(*sides)


def evaluation_of(record: Record) -> Evaluation:
    """The scores of a record; an error where one is missing, not of its type or its range."""
    from ..evaluation.results import Evaluation  # which needs torch

    return Evaluation.of(record["metrics"])


def value_of(
    record: Record, column: str, members: int | None = None, evaluation: Evaluation | None = None
) -> float | None:
    """A number of one run, or of its first `members`; None where it was not measured."""
    size = int(record["ledger"]["members"])
    if members == size:
        members = None
    if column == "tickets":
        return float(members or size)
    if column == "sparsity":
        return _number(record["options"].get("sparsity", 0.0))
    if column in LEDGER_FACTS:
        fact, unit = LEDGER_FACTS[column]
        if (cost := _number(record["ledger"].get(fact))) is None:
            return None
        cost /= unit
        if members is None:
            return cost
        divisible = column in ("test_flops", "ticket_mb") or record["method"] in _INDEPENDENT
        return cost * members / size if divisible else None
    part, *words = column.split(".")
    if members is not None:
        keys = [part, *words] if part in ("ood", "attacks") else [column.rpartition(".")[2]]
        if part == "ood":
            keys.insert(2, "max_probability")
        found = record["first"].get(str(members))
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return _number(found)
    if words and words[0] == "disagreement_by_class":
        # Where other data stand for CIFAR-100, the class of the same number stands for its class.
        number = get_spec("cifar100").classes.index(words[1])
        column = f"{part}.{words[0]}.{number}"
    return (evaluation or evaluation_of(record)).value(column)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def run_folder(folder: str | Path, cell: Cell, seed: int) -> Path:
    """Where a scale keeps the run of a cell."""
    return Path(folder) / "cells" / cell.name / str(seed)


def record_path(folder: str | Path, cell: Cell | str, seed: int) -> Path:
    """Where a scale keeps what was measured of a cell."""
    name = cell if isinstance(cell, str) else cell.name
    return Path(folder) / "results" / name / f"{seed}.json"


def answers_path(path: Path) -> Path:
    """Where the answers to each image lie, beside their record."""
    return path.with_suffix(".npz")


def save(folder: str | Path, record: Record, answers: Answers | None = None) -> Path:
    """Writes what was measured of a cell and its answers, whole or not at all; returns where."""
    from ..storage import write_atomic  # which needs torch

    path = record_path(folder, str(record["cell"]), int(record["seed"]))
    if answers is not None:  # first: a record that is there is complete
        record = {**record, "answers": answers.save(answers_path(path))}
    values = seal_values(_plain(record))
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
    write_atomic(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return path


def read_record(path: Path) -> dict[str, Any] | None:
    """What `save` wrote; None if it or its answers are not there, or are damaged."""
    try:
        values = read_json(path)
        told: _Record = read(_Record, values, allow=Allow.RECORD)
        if told.answers is not None and digest_file(answers_path(path)) != told.answers:
            return None
    except NewerFileError:
        raise
    except (FreeTicketsError, OSError):
        return None
    return values


def read_answers(folder: str | Path, record: Record) -> Answers:
    """The answers to each image that belong to a record; an error if it was made without any."""
    from .answers import Answers

    path = record_path(folder, str(record["cell"]), int(record["seed"]))
    if record.get("answers") is None:
        raise FreeTicketsError(f"{path} has no answers to each image: it is older than those")
    return Answers.load(answers_path(path), record["answers"])


def as_csv(results: Results) -> str:
    """One line for each cell and seed with its main numbers; what was not measured is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    words, parts = ("cell", "seed", "data", "model", "method"), ("training", "evaluation")
    titles = (*words, "members", "sparsity", *_CSV_COLUMNS, *(f"{part}_seconds" for part in parts))
    writer.writerow(titles)
    for _, record in sorted(results.records.items()):
        seconds, evaluation = record.get("seconds", {}), evaluation_of(record)
        columns = ("tickets", "sparsity", *_CSV_COLUMNS)
        numbers = [value_of(record, column, None, evaluation) for column in columns]
        numbers += [seconds.get(part) for part in parts]
        shown = ("" if each is None else f"{each:.6g}" for each in numbers)
        writer.writerow([*(record.get(word) for word in words), *shown])
    return file.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value
