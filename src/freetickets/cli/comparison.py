"""Comparisons on a terminal: the main table, and how runs differ from a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ..report import Differences, RunRow, TableColumn
    from ..tasks import Score

_WIDTH = 100
_NAMES_WIDTH = 44  # at most, of the two columns that may wrap
_STYLES = {"": "", "best": "bold", "second": "bold blue"}


def print_comparison(rows: Sequence[RunRow], scores: Sequence[Score]) -> None:
    """Prints the main columns of the comparison, as many as leave room for the names."""
    from rich.text import Text

    from ..report import mark_of

    console = _console()
    # Text, not markup: a run may be named "[red]".
    title = f"{rows[0].dataset}, {rows[0].samples:,} test samples: scores of the ensembles"
    table = _table(title)
    lines = [[Text(row.run), Text(row.description)] for row in rows]
    for name in ("run", "method"):
        table.add_column(name, vertical="bottom", overflow="fold")
    names = sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True))
    for column in _columns_within(console.width - min(names, _NAMES_WIDTH), rows, scores):
        table.add_column(column.short or "", justify="right", vertical="bottom", no_wrap=True)
        for row, line in zip(rows, lines, strict=True):
            line.append(Text(column.cell(row).text, style=_STYLES[mark_of(row, column, rows)]))
    for before, row, line in zip([None, *rows], rows, lines, strict=False):
        if before is not None and before.kind != row.kind:
            table.add_section()
        table.add_row(*line)
    console.print(table)


def print_differences(reference: str, differences: Mapping[str, Differences]) -> None:
    """Prints how each run differs from the reference, and how likely that is chance."""
    from rich.text import Text

    from ..metrics.score import MAIN_SCORES, p_text
    from ..report import TableCell

    table = _table(f"differences from {reference}, and their two-sided p-values")
    table.add_column("run", vertical="bottom", overflow="fold")
    titles = [title for score in MAIN_SCORES for title in (score.short, "p")]
    for title in (*titles[:2], "McNemar\np", *titles[2:]):
        table.add_column(title, justify="right", vertical="bottom", no_wrap=True)
    for run, found in differences.items():
        cells = []
        for score in MAIN_SCORES:
            it = found.scores[score.key]
            cells += [TableCell.of(it.value, f"+{score.form}").text, p_text(it.p)]
        table.add_row(Text(run), *cells[:2], p_text(found.mcnemar), *cells[2:])
    _console().print(table)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # What is piped has no width of its own.
    console.width = min(_WIDTH, console.width) if console.is_terminal else _WIDTH
    return console


def _table(title: str) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    return Table(title=Text(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _columns_within(
    width: int, rows: Sequence[RunRow], scores: Sequence[Score]
) -> list[TableColumn]:
    """The main columns as far as they fit; those that weigh least are the first to have room."""
    from ..report import columns_of, main_columns, more_columns

    columns = columns_of(rows, [*main_columns(scores), *more_columns(scores)])
    shown = [column for column in columns if column.short is not None]
    fitting = []
    for column in sorted(shown, key=lambda column: column.weight):
        texts = [*(column.short or "").split("\n"), *(column.cell(row).text for row in rows)]
        width -= max(map(len, texts)) + 2
        if width < 0:
            break
        fitting.append(column)
    return [column for column in shown if column in fitting]
