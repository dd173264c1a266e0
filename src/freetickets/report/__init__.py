"""Reports: finished runs side by side, as tables and as one self-contained HTML page."""

from ..evaluation.results import Evaluation
from .analysis import Analysis, analyse
from .comparison import comparison_page
from .export import as_csv, as_latex, as_markdown, write_tables
from .intervals import Differences, differences, intervals
from .page import Page
from .parts import Cell, Details, Figure, Folded, Section, Table
from .run import RunSummary, read_run, read_runs
from .sections.comparison import Comparison, find_reference
from .tables import (
    Column,
    Row,
    columns_of,
    main_columns,
    main_table,
    make_rows,
    mark_of,
    more_columns,
)

__all__ = [
    "Analysis",
    "Cell",
    "Column",
    "Comparison",
    "Details",
    "Differences",
    "Evaluation",
    "Figure",
    "Folded",
    "Page",
    "Row",
    "RunSummary",
    "Section",
    "Table",
    "analyse",
    "as_csv",
    "as_latex",
    "as_markdown",
    "columns_of",
    "comparison_page",
    "differences",
    "find_reference",
    "intervals",
    "main_columns",
    "main_table",
    "make_rows",
    "mark_of",
    "more_columns",
    "read_run",
    "read_runs",
    "write_tables",
]
