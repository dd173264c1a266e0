"""Write docs/results.md from what `freetickets reproduce` measured: write_results.py [FOLDER].

FOLDER is an output of reproduce with its runs, as runs/reproduce/small: its results are copied into
results/small, and the figures are drawn. Without it the page is made anew from results/small, but
for the figures, which need the runs. What the page says besides is in results/small/comments.yaml.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from freetickets.experiments import experiment_names, load
from freetickets.experiments.page import write
from freetickets.experiments.results import Results

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "results" / "small"
PAGE = ROOT / "docs" / "results.md"
IMAGES = PAGE.parent / "images" / "results"
# A page on the web should not weigh more than it tells: the others are in results.html.
FIGURES = (
    "cost", "members", "severity", "sparsity", "ensemble-size", "features", "trajectories",
    "disagreement", "classes", "roc", "attack-fgsm",
)  # fmt: skip


def main(runs: Path | None) -> None:
    """Copy the results, write the page, put its parts where they belong."""
    if runs is not None:
        shutil.rmtree(KEPT / "results", ignore_errors=True)
        shutil.copytree(runs / "results", KEPT / "results")
    comments = yaml.safe_load((KEPT / "comments.yaml").read_text())
    experiments = [load(name) for name in experiment_names()]
    with tempfile.TemporaryDirectory() as folder:
        write(experiments, Results.load(runs or KEPT), folder, comments, FIGURES)
        made = Path(folder)
        text = (made / "results.md").read_text()
        PAGE.write_text(text.replace("](images/", "](images/results/"))
        shutil.copy(made / "cells.csv", KEPT / "cells.csv")
        if runs is not None:
            shutil.rmtree(IMAGES, ignore_errors=True)
            shutil.copytree(made / "images", IMAGES)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
