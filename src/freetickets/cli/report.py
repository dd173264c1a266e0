"""Compare finished runs on one HTML page with figures, and save its tables as files.

freetickets report runs/edst runs/dense --output report.html
"""

import argparse
from pathlib import Path
from typing import Any

from . import compare


def run(parsed: argparse.Namespace) -> Any:
    """Prints the main table and writes the page and its tables."""
    from ..errors import FreeTicketsError
    from ..evaluation.results import plain
    from ..report.export import write_tables
    from ..report.page import comparison_page
    from ..storage import write_atomic

    output = Path(parsed.output)
    # Mistakes are told before the work begins.
    if output.is_dir():
        hint = f"name a file, such as {output / 'report.html'}"
        raise FreeTicketsError(f"{output} is a folder: {hint}")
    runs, _, rows = compare.read_and_print(parsed)
    page = comparison_page(runs, parsed.reference)
    tables = Path(parsed.tables or output.with_name(f"{output.stem}-tables"))
    write_atomic(output, page.html().encode())
    write_tables(page, tables)
    if not parsed.json:
        print(f"saved in {output}, tables in {tables}")
    shown = [row.as_dict() for row in rows]
    return plain({"output": str(output), "tables": str(tables), "rows": shown})
