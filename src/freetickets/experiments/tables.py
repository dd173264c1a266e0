"""Tables: what was measured beside what the paper says, and the footnotes to both."""

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from ..metrics.score import Column, column_of
from ..report.parts import ABSENT, Table, TableCell
from .claims import Verdict
from .experiment import Experiment, Row, title_of_data
from .findings import SIGNS, marked
from .results import Record, Results

CORRECTED, UNDERIVABLE, STARRED = "†", "‡", "*"
_JOINED = "\N{NO-BREAK SPACE}"  # lest a line end where it reads badly
# Behind the point, as the paper prints them; 2 for shares in per cent, 4 for OoD sets, else 3.
_DIGITS = {
    "tickets": 0, "sparsity": 2, "train_flops": 2, "growth_flops": 4, "test_flops": 2,
    "training_runs": 1, "seconds": 0, "ticket_mb": 2,
}  # fmt: skip


def measured_table(experiment: Experiment, results: Results) -> Table:
    """A table of the paper with our own numbers, and the paper's in brackets."""
    order = list(dict.fromkeys(row.dataset for row in experiment.rows))
    shown = sorted([*experiment.beside, *experiment.rows], key=lambda row: order.index(row.dataset))
    columns = [_column(key) for key in experiment.columns if _is_shown(key, shown, results)]
    rows = []
    for row in shown:
        label = row.label.replace(") (", f"){_JOINED}(")
        label += f"{_JOINED}{STARRED}" if row.starred else ""
        # Not all numbers are measured of every run: how many seeds each has at least.
        counts = [len(values) for key in experiment.columns if (values := results.values(row, key))]
        seeds = TableCell(str(min(counts)), min(counts)) if counts else TableCell("not run yet")
        rows.append([TableCell(label), seeds, *(_cell(results, row, each) for each in columns)])
    plain = ("tickets", "sparsity")
    arrows = ["" if column.key in plain else _JOINED + column.arrow for column in columns]
    titles = [column.title + arrow for column, arrow in zip(columns, arrows, strict=True)]
    groups = itertools.groupby(row.dataset for row in shown)
    datasets = [(title_of_data(name), len(list(alike))) for name, alike in groups]
    row_groups = datasets if len(datasets) > 1 else ()
    return Table(["method", "seeds", *titles], rows, row_groups=row_groups)


def _is_shown(key: str, rows: Sequence[Row], results: Results) -> bool:
    """Whether a column has anything to show: not each data set has each set of unknown images."""
    return not key.startswith("ood.") or any(
        key in row.paper or results.values(row, key) for row in rows
    )


def footnotes(experiment: Experiment, results: Results) -> list[str]:
    """What the signs of a table mean, and what is to be known of it."""
    lines = _class_notes(experiment, results)
    if any(row.starred for row in experiment.rows):
        lines.append(f"{STARRED} The paper took these numbers from another publication.")
    wrong: dict[str, list[str]] = {}  # by the reason, where
    ours: dict[str, list[str]] = {}
    for column, each in experiment.corrected.items():
        words = f'{_column(column).title} (printed "{each.printed}")'
        wrong.setdefault(each.why, []).append(words)
    for row in experiment.rows:
        for column, each in row.corrected.items():
            words = f"{row.label} on {title_of_data(row.dataset)}, {_column(column).title} "
            words += f"(printed {each.printed}, taken {row.paper[column]})"
            wrong.setdefault(each.why, []).append(words)
        for column, why in row.underivable.items():
            ours.setdefault(why, []).append(f"{row.label}, {_column(column).title}")
    for sign, found in (
        (f"{CORRECTED} Corrected", wrong),
        (f"{UNDERIVABLE} Not derivable by our own count", ours),
    ):
        lines += [f"{sign}: {', '.join(where)}: {why}." for why, where in found.items()]
    return [*lines, *experiment.notes]


def substitutes_table(experiments: Sequence[Experiment], results: Results) -> Table:
    """Which data and network stood for the paper's, and what that took."""
    models = {row.dataset: row.model for each in experiments for row in each.rows}
    kinds: dict[tuple[str, str, str], list[Record]] = {}
    for record in results.records.values():
        if record.get("dataset") in models:
            key = (record["dataset"], str(record.get("data")), str(record.get("model")))
            kinds.setdefault(key, []).append(record)
    rows = []
    for (dataset, data, model), records in sorted(kinds.items()):
        images = TableCell(data, below=data.partition(": ")[2])
        counts = (len({record["cell"] for record in records}), len(records))
        cells = [
            TableCell(title_of_data(dataset)),
            TableCell(models[dataset]),
            images,
            TableCell(model),
        ]
        cells += [TableCell(str(count), count) for count in counts]
        rows.append([*cells, *(TableCell.of(hours, ".2f") for hours in total_hours(records))])
    header = ["paper's data", "paper's network", "data", "network", "cells", "runs"]
    return Table([*header, "training h", "evaluation h"], rows)


def total_hours(records: Iterable[Record]) -> list[float]:
    """The hours of training and of evaluation that records took."""
    told, parts = [record.get("seconds", {}) for record in records], ("training", "evaluation")
    return [math.fsum(each.get(part, 0.0) for each in told) / 3600 for part in parts]


def substitute_notes(results: Results) -> list[str]:
    """What runs say of sets that stood for others, or were left out, each once."""
    told = ((each.get("dataset"), each.get("notes", ())) for each in results.records.values())
    return sorted(
        {f"{title_of_data(str(dataset))}: {note}" for dataset, notes in told for note in notes}
    )


def verdict_table(verdicts: Iterable[Verdict], effects: bool = False) -> Table:
    """All claims, each with where it was checked and what came out; with effects, by how much."""
    found = list(verdicts)
    datasets = list(dict.fromkeys(verdict.dataset for verdict in found))
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for verdict in found:
        where = f" ({'; '.join(verdict.where)})" if any(verdict.where) else ""
        told = [marked(verdict.outcome).replace(" ", _JOINED) + where]
        if effects:
            measured = verdict.outcome != "not measured"
            told = [*told, *_effects(verdict)] if measured else ["not run yet"]
        text = "\n".join(told)
        lines.setdefault((verdict.claim.asked, verdict.claim.says), {})[verdict.dataset] = text
    empty = ABSENT if effects else ""
    rows = [
        [TableCell(says), *(TableCell(by.get(dataset, empty)) for dataset in datasets)]
        for (_, says), by in lines.items()
    ]
    groups = itertools.groupby(asked for asked, _ in lines)
    asking = [(f"the {asked}'s question", len(list(alike))) for asked, alike in groups]
    return Table(
        ["claim", *map(title_of_data, datasets)], rows, row_groups=asking if effects else ()
    )


def printed_against(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The claims that the paper's own numbers do not bear out, by their direction alone."""
    for verdict in verdicts:
        for each in verdict.findings:
            if each.printed == "contradicted":
                numbers = " against ".join(f"{side:g}" for side in each.about.sides)
                where = f"{'; '.join(verdict.where)}, {title_of_data(verdict.dataset)}"
                yield f"{verdict.claim.says} ({where}): {each.about.what} {numbers}"


def _effects(verdict: Verdict) -> Iterator[str]:
    """By how much the sides differ, each with its interval."""
    ones = {each.about.one.label for each in verdict.findings}
    others = {each.about.other.label for each in verdict.findings if each.about.other is not None}
    pairs = itertools.groupby(verdict.findings, lambda it: (it.about.one, it.about.other))
    for (one, other), own in pairs:
        names = [one.label] if len(ones) > 1 else []
        names += [f"against {other.label}"] if other is not None and len(others) > 1 else []
        if names:
            yield f"{' '.join(names)}:"
        for each in own:
            number = (
                each.effect.removesuffix(each.about.form.unit) if each.estimate else "not run yet"
            )
            number = number.replace(", ", f",{_JOINED}")
            yield f"{SIGNS[each.outcome]}{_JOINED}{each.about.title} {number}"


def _class_notes(experiment: Experiment, results: Results) -> list[str]:
    if "diversity.disagreement_by_class." not in " ".join(experiment.columns):
        return []
    names = {cell.name: row.dataset for row in experiment.rows for cell in row.cells}
    records = ((names.get(cell), each) for (cell, _), each in results.records.items())
    found = {(dataset, str(each.get("data"))) for dataset, each in records if dataset}
    return [
        f"Columns are named after the classes of {dataset}; the measurements are for the classes "
        f"with the same numbers in {data}."
        for dataset, data in sorted(found)
        if data != dataset
    ]


def _column(key: str) -> Column:
    column = column_of(key)
    assert column is not None, f"experiments have no column {key}"
    return column


def _cell(results: Results, row: Row, column: Column) -> TableCell:
    """A number: shares in per cent, and the paper's with the digits that it is printed with."""
    digits = _DIGITS.get(column.key, 4 if column.key.startswith("ood.") else 3)
    least, unit = (1, 100) if column.is_share else (digits, 1)
    digits = 2 if column.is_share else digits
    text, value = ABSENT, None
    if values := results.values(row, column.key):
        value = statistics.fmean(values)
        text = f"{unit * value:.{digits}f}"
        if len(values) > 1 and not _is_count(column.key):
            text += f" ±{_JOINED}{unit * statistics.stdev(values):.{digits}f}"
    printed = row.paper.get(column.key)
    if column.key == "train_flops" and row.dense_flops is not None:
        theirs = f"[{row.dense_flops:.1e} FLOPs]".replace("+", "")
    elif printed is not None:
        sign = CORRECTED if column.key in row.corrected else ""
        sign += UNDERIVABLE if column.key in row.underivable else ""
        digits = max(len(repr(float(printed)).partition(".")[2]), least) if least else 0
        theirs = f"[{printed:.{digits}f}{sign}]"
    else:
        return TableCell(text, value)
    return TableCell(f"{text} {theirs}", value, below=theirs)


def _is_count(column: str) -> bool:
    return column in ("tickets", "sparsity", "training_runs") or column.endswith("flops")
