"""Reports: finished runs side by side, as a table and as one self-contained HTML page."""

from .comparison import comparison_page
from .page import Page
from .parts import Cell, Details, Figure, Section, Table
from .run import RunSummary, read_run, read_runs
from .tables import COLUMNS, Column, Row, make_rows

__all__ = [
    "COLUMNS",
    "Cell",
    "Column",
    "Details",
    "Figure",
    "Page",
    "Row",
    "RunSummary",
    "Section",
    "Table",
    "comparison_page",
    "make_rows",
    "read_run",
    "read_runs",
]
