"""Compare finished runs: a table here, and one HTML page with figures.

freetickets report runs/edst runs/dense --output report.html
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..report import Column, Row

_WIDTH = 100
_NAMES_WIDTH = 30  # of the two columns that may wrap


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folders", nargs="+", metavar="RUN", help="the folders of runs")
    parser.add_argument(
        "--output",
        "-o",
        default="report.html",
        metavar="FILE",
        help="where the page goes (default: %(default)s)",
    )


def run(parsed: argparse.Namespace) -> None:
    """Prints the main table and writes the page."""
    from ..report import comparison_page, make_rows, read_runs
    from ..storage import write_atomic

    runs = read_runs(parsed.run_folders)
    rows = make_rows(runs)
    if not parsed.json:
        print_comparison(rows)
    write_atomic(Path(parsed.output), comparison_page(runs).html().encode())
    if parsed.json:
        print(json.dumps({"output": parsed.output, "rows": list(map(asdict, rows))}, indent=2))
    else:
        print(f"saved in {parsed.output}")


def print_comparison(rows: Sequence[Row]) -> None:
    """Prints the main columns of the comparison, as many as leave room for the names."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    # What is piped has no width of its own.
    console.width = min(_WIDTH, console.width) if console.is_terminal else _WIDTH
    # Text, not markup: a run may be named "[red]".
    title = f"{rows[0].dataset}, {rows[0].samples:,} test samples: scores of the ensembles"
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    lines = [[Text(row.run), Text(row.description)] for row in rows]
    for name in ("run", "method"):
        table.add_column(name, vertical="bottom", overflow="fold")
    for column in _columns_within(console.width - _NAMES_WIDTH, rows):
        table.add_column(column.short or "", justify="right", vertical="bottom", no_wrap=True)
        best = column.best(rows)
        for row, line in zip(rows, lines, strict=True):
            text = column.text(row)
            line.append(Text(text, style="bold" if text == best else ""))
    for line in lines:
        table.add_row(*line)
    console.print(table)


def _columns_within(width: int, rows: Sequence[Row]) -> list[Column]:
    """The main columns, first to last, as far as they fit."""
    from ..report import COLUMNS

    fitting = []
    for column in COLUMNS:
        if column.short is None:
            continue
        texts = [*column.short.split("\n"), *(column.text(row) for row in rows)]
        width -= max(map(len, texts)) + 2
        if width < 0:
            break
        fitting.append(column)
    return fitting
