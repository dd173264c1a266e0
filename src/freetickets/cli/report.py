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
    from ..report import Row


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
    """Prints the main columns of the comparison, in at most 100 columns of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ..report import COLUMNS

    columns = [(column, column.short) for column in COLUMNS if column.short]
    title = f"{rows[0].dataset}, {rows[0].samples:,} test samples"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("run", "method"):
        table.add_column(name, vertical="bottom", overflow="fold")
    for _, short in columns:
        table.add_column(short, justify="right", vertical="bottom", no_wrap=True)
    for row in rows:
        cells = [
            Text(column.text(row), style="bold" if column.text(row) == column.best(rows) else "")
            for column, _ in columns
        ]
        # Text, not markup: a run may be named "[red]".
        table.add_row(Text(row.run), Text(row.description), *cells)
    console = Console(highlight=False)
    console.print(table, width=min(100, console.width))
