"""Tables: what was measured beside what the paper says, and the footnotes to both."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence

from ..report.parts import ABSENT, Table, TableCell
from .claims import Verdict
from .evidence import marked
from .experiment import Experiment, Row
from .headings import Heading, heading_of
from .results import Record, Results
from .vocabulary import CLAIMS

CORRECTED, UNDERIVABLE, STARRED = "†", "‡", "*"
_JOINED = "\N{NO-BREAK SPACE}"  # lest a line end where it reads badly


def measured_table(experiment: Experiment, results: Results) -> Table:
    """A table of the paper with our own numbers, and the paper's in brackets."""
    arrows = {1: f"{_JOINED}↑", -1: f"{_JOINED}↓"}
    headings = {column: heading_of(column) for column in experiment.columns}
    plain = ("tickets", "sparsity")
    rows = [
        [
            TableCell(_label(row)),
            _seeds_cell(results, row, experiment.columns),
            *(_cell(results, row, column, headings[column]) for column in experiment.columns),
        ]
        for row in experiment.rows
    ]
    titles = [
        heading.title + ("" if column in plain else arrows[heading.better])
        for column, heading in headings.items()
    ]
    datasets = [
        (name, len(list(alike)))
        for name, alike in itertools.groupby(row.dataset for row in experiment.rows)
    ]
    several = len(datasets) > 1
    return Table(["method", "seeds", *titles], rows, row_groups=datasets if several else ())


def footnotes(experiment: Experiment, results: Results) -> list[str]:
    """What the signs of a table mean, and what is to be known of it."""
    lines = _class_notes(experiment, results)
    if any(row.starred for row in experiment.rows):
        lines.append(f"{STARRED} The paper took these numbers from another publication.")
    reasons: dict[str, list[str]] = {}
    for correction in experiment.corrections:
        words = f'{heading_of(correction.column).title} (printed "{correction.printed}")'
        reasons.setdefault(correction.why, []).append(words)
    for row in experiment.rows:
        for correction in row.corrections:
            words = (
                f"{row.label} on {row.dataset}, {heading_of(correction.column).title} "
                f"(printed {correction.printed}, taken {correction.used})"
            )
            reasons.setdefault(correction.why, []).append(words)
    lines += [
        f"{CORRECTED} Corrected: {', '.join(where)}: {why}." for why, where in reasons.items()
    ]
    reasons = {}
    for row in experiment.rows:
        for column, why in row.underivable.items():
            reasons.setdefault(why, []).append(f"{row.label}, {heading_of(column).title}")
    lines += [
        f"{UNDERIVABLE} Not to be had by our own count: {', '.join(where)}: {why}."
        for why, where in reasons.items()
    ]
    return [*lines, *experiment.notes]


def stands_table(experiments: Sequence[Experiment], results: Results) -> Table:
    """Which data and network stood for the paper's, and what that took."""
    models = {row.dataset: row.model for each in experiments for row in each.rows}
    kinds: dict[tuple[str, str, str], list[Record]] = {}
    for record in results.records.values():
        if record.get("dataset") in models:
            key = (record["dataset"], str(record.get("data")), str(record.get("model")))
            kinds.setdefault(key, []).append(record)
    rows = []
    for (dataset, data, model), records in sorted(kinds.items()):
        seconds = [record.get("seconds", {}) for record in records]
        training, evaluation = (
            math.fsum(each.get(part, 0.0) for each in seconds) / 3600
            for part in ("training", "evaluation")
        )
        count = len({record["cell"] for record in records})
        rows.append(
            [
                TableCell(dataset),
                TableCell(models[dataset]),
                TableCell(data, below=data.partition(": ")[2]),
                TableCell(model),
                TableCell(str(count), count),
                TableCell(str(len(records)), len(records)),
                TableCell.of(training, ".2f"),
                TableCell.of(evaluation, ".2f"),
            ]
        )
    header = ["paper's data", "paper's network", "data", "network", "cells", "runs"]
    return Table([*header, "training h", "evaluation h"], rows)


def stand_notes(results: Results) -> list[str]:
    """What runs say of sets that stood for others, or were left out, each once."""
    records = sorted(results.records.items())
    notes = dict.fromkeys(
        f"{record.get('dataset')}: {note}"
        for _, record in records
        for note in record.get("notes", ())
    )
    return sorted(notes)


def verdict_table(verdicts: Iterable[tuple[Experiment, Verdict]]) -> Table:
    """All claims, each with where it was checked and what came out."""
    found = list(verdicts)
    datasets = list(dict.fromkeys(verdict.dataset for _, verdict in found))
    lines: dict[str, dict[str, list[str]]] = {}
    for experiment, verdict in sorted(found, key=lambda each: list(CLAIMS).index(each[1].claim)):
        line = f"{experiment.paper}: {marked(verdict.outcome)}".replace(" ", _JOINED)
        lines.setdefault(verdict.statement, {}).setdefault(verdict.dataset, []).append(line)
    rows = [
        [
            TableCell(statement),
            *(TableCell("\n".join(where.get(dataset, ()))) for dataset in datasets),
        ]
        for statement, where in lines.items()
    ]
    return Table(["claim", *datasets], rows)


def _class_notes(experiment: Experiment, results: Results) -> list[str]:
    """Of which classes the numbers are, where other data stand for those of the columns."""
    if not any(
        column.startswith("diversity.disagreement_by_class.") for column in experiment.columns
    ):
        return []
    stands = {
        (row.dataset, str(record.get("data")))
        for row in experiment.rows
        for cell in row.cells
        for seed in results.seeds(cell)
        if (record := results.get(cell, seed)) is not None
    }
    return [
        f"Columns are named after the classes of {dataset}; what was measured is of the classes of "
        f"the same numbers in {data}."
        for dataset, data in sorted(stands)
        if data != dataset
    ]


def _label(row: Row) -> str:
    label = row.label.replace(") (", f"){_JOINED}(")
    return f"{label}{_JOINED}{STARRED}" if row.starred else label


def _seeds_cell(results: Results, row: Row, columns: Sequence[str]) -> TableCell:
    """How many seeds each number of a row has at least: not all are measured of every run."""
    counts = [len(values) for column in columns if (values := results.values(row, column))]
    return TableCell(str(min(counts)), min(counts)) if counts else TableCell(ABSENT)


def _cell(results: Results, row: Row, column: str, heading: Heading) -> TableCell:
    values = results.values(row, column)
    text, value = ABSENT, None
    if values:
        value = statistics.fmean(values)
        text = heading.text(value)
        if len(values) > 1 and not _is_count(column):
            text += f" ±{_JOINED}{heading.text(statistics.stdev(values))}"
    printed = row.paper.get(column)
    if column == "train_flops" and row.dense_flops is not None:
        theirs = f"[{row.dense_flops:.1e} FLOPs]".replace("+", "")
    elif printed is not None:
        sign = CORRECTED if column in {each.column for each in row.corrections} else ""
        sign += UNDERIVABLE if column in row.underivable else ""
        theirs = f"[{heading.printed(printed)}{sign}]"
    else:
        return TableCell(text, value)
    return TableCell(f"{text} {theirs}", value, below=theirs)


def _is_count(column: str) -> bool:
    return column in ("tickets", "sparsity", "training_runs") or column.endswith("flops")
