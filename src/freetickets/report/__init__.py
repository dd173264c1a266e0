"""Reports: finished runs side by side, as tables and as one self-contained HTML page."""

from ..evaluation.results import Evaluation
from .analysis import Analysis, Differences, analyse, differences
from .comparison import Comparison, find_reference
from .export import as_csv, as_latex, as_markdown, write_tables
from .page import Page, comparison_page
from .parts import Details, Figure, Folded, Section, Table, TableCell
from .run import RunSummary, read_run, read_runs
from .tables import (
    RunRow,
    TableColumn,
    columns_of,
    main_columns,
    main_table,
    make_rows,
    mark_of,
    more_columns,
)

__all__ = [
    "Analysis",
    "Comparison",
    "Details",
    "Differences",
    "Evaluation",
    "Figure",
    "Folded",
    "Page",
    "RunRow",
    "RunSummary",
    "Section",
    "Table",
    "TableCell",
    "TableColumn",
    "analyse",
    "as_csv",
    "as_latex",
    "as_markdown",
    "columns_of",
    "comparison_page",
    "differences",
    "find_reference",
    "main_columns",
    "main_table",
    "make_rows",
    "mark_of",
    "more_columns",
    "read_run",
    "read_runs",
    "write_tables",
]
