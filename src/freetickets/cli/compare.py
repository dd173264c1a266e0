"""Compare finished runs in the terminal: the main table, and differences with p-values.

freetickets compare runs/dense runs/edst --reference runs/dense
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..report.run import RunSummary
    from ..report.tables import RunRow


def run(parsed: argparse.Namespace) -> Any:
    """Prints the main table, and how the runs differ from the reference."""
    from ..evaluation.results import plain
    from ..report.comparison import differences
    from .tables import print_differences

    runs, reference, rows = read_and_print(parsed)
    found = {}
    task = reference.results.task
    if task.has_classes and reference.has_predictions and len(runs) > 1:
        base, labels = reference.load_ensemble(), reference.load_predictions().labels
        found = {
            run.name: differences(run.load_ensemble(), base, labels)
            for run in runs
            if run is not reference and run.has_predictions
        }
    if parsed.json:
        told = []
        for name, each in found.items():
            scores = {key: asdict(score) for key, score in each.scores.items()}
            told.append({"run": name, **scores, "mcnemar": each.mcnemar})
        shown = [row.as_dict() for row in rows]
        return plain({"reference": reference.name, "rows": shown, "differences": told})
    if found:
        print_differences(reference.name, found)
    elif not task.has_classes:
        print(f"no differences to show: they are computed for classes, not for {task.name}")
    elif len(runs) > 1:
        print("no differences to show: run evaluate for each run first, to save its predictions")
    return None


def read_and_print(parsed: argparse.Namespace) -> tuple[list[RunSummary], RunSummary, list[RunRow]]:
    """Reads the runs and prints the main table; returns them, the reference and the rows."""
    from ..report.comparison import find_reference
    from ..report.run import read_runs
    from ..report.tables import make_rows
    from .tables import print_comparison

    runs = read_runs(parsed.run_folders)
    reference = find_reference(runs, parsed.reference)
    rows = make_rows(runs)
    if not parsed.json:
        print_comparison(rows, runs[0].results.task.scores)
    return runs, reference, rows
