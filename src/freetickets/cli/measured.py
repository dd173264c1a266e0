"""The tables that `reproduce` prints: measured beside the paper's."""

from __future__ import annotations

from statistics import mean, stdev

from rich.console import Console
from rich.table import Table

from ..experiments import Experiment, Row, is_percentage
from ..experiments.results import Results


def print_measured(experiment: Experiment, results: Results) -> None:
    """Prints an experiment: for each number the mean and deviation over seeds, and the paper's."""
    table = Table(title=f"{experiment.name}: {experiment.title} ({experiment.paper})")
    table.add_column("")
    for column in experiment.columns:
        table.add_column(f"{_heading(column)}\n(paper)", justify="right")
    for row in experiment.rows:
        label = row.label if row.dataset in row.label else f"{row.label}, {row.dataset}"
        numbers = [_number(row, column, results) for column in experiment.columns]
        table.add_row(label, *numbers)
    Console(highlight=False).print(table)


def _heading(column: str) -> str:
    """The words of a column that tell it from its neighbours.

    Example:
        >>> _heading("ood.svhn.auroc"), _heading("c_nll")
        ('svhn auroc', 'c_nll')
    """
    return " ".join(column.split(".")[-2:]) if column.startswith("ood") else column.split(".")[-1]


def _number(row: Row, column: str, results: Results) -> str:
    values = results.values(row, column)
    paper = row.expected(column)
    measured = "-"
    if values:
        measured = _text(mean(values), column)
        if len(values) > 1:
            measured += f" ± {_text(stdev(values), column)}"
    return measured if paper is None else f"{measured}\n({_text(paper, column)})"


def _text(value: float, column: str) -> str:
    return f"{100 * value:.2f}" if is_percentage(column) else f"{value:.3f}"
