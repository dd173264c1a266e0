"""The tables that `reproduce` prints: measured beside the paper's, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..experiments import Experiment
from ..experiments.claims import judge
from ..experiments.results import Results
from ..experiments.tables import measured_table, verdict_table
from ..report.parts import Table as Part

_WIDTH = 150  # where there is no terminal; the paper's main tables have nine columns
_STYLES = {"": "", "best": "bold", "second": "bold blue"}


def print_measured(experiments: Sequence[Experiment], results: Results) -> None:
    """Prints each experiment, the mean and deviation over seeds, and what becomes of the claims."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH)
    for experiment in experiments:
        title = f"{experiment.name}: {experiment.title} ({experiment.paper})"
        console.print(_table(title, measured_table(experiment, results)))
    verdicts = [(each, verdict) for each in experiments for verdict in judge(each, results)]
    if verdicts:
        console.print(_table("claims of the paper", verdict_table(verdicts)))


def _table(title: str, part: Part) -> Table:
    table = Table(title=title)
    for column, heading in enumerate(part.header):
        table.add_column(heading, justify="right" if part.is_numeric(column) else "left")
    for group, rows in part.parts():
        if group:
            table.add_row(Text(group, style="italic"))
        for row in rows:
            table.add_row(*(Text(cell.text, style=_STYLES[cell.mark]) for cell in row))
        table.add_section()
    return table
