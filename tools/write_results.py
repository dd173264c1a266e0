"""Write the page of what `freetickets reproduce` measured at a scale: write_results.py [FOLDER].

    python tools/write_results.py runs/reproduce/small             # docs/results.md
    python tools/write_results.py --scale medium                   # docs/results-medium.md

FOLDER is an output of reproduce with its runs: its records are copied into results/SCALE, and the
figures are drawn. Without it the page is made anew from results/SCALE, but for the figures, which
need the runs. What the page says besides is in results/SCALE/comments.yaml.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from freetickets.experiments.grid import find_grid
from freetickets.experiments.page import write
from freetickets.experiments.results import Results

ROOT = Path(__file__).resolve().parents[1]
# A page on the web should not weigh more than it tells: the others are in results.html.
FIGURES = (
    "cost", "members", "severity", "sparsity", "ensemble-size", "features", "trajectories",
    "disagreement", "classes", "roc", "attack-fgsm",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Copy the results, write the page, put its parts where they belong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--scale", help="(default: the last part of FOLDER, or small)")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the checkout")
    parsed = parser.parse_args(arguments)
    scale = parsed.scale or (parsed.runs.name if parsed.runs else "small")
    write_page(scale, parsed.runs, parsed.root)


def write_page(scale: str, runs: Path | None, root: Path) -> Path:
    """Write the page of one scale; returns where."""
    kept = root / "results" / scale
    name = "results" if scale == "small" else f"results-{scale}"
    page, images = root / "docs" / f"{name}.md", root / "docs" / "images" / name
    if runs is not None:
        shutil.rmtree(kept / "results", ignore_errors=True)
        shutil.copytree(runs / "results", kept / "results")
    told = kept / "comments.yaml"
    comments = yaml.safe_load(told.read_text()) if told.exists() else {}
    experiments = find_grid(scale).experiments
    with tempfile.TemporaryDirectory() as folder:
        write(experiments, Results.load(runs or kept), folder, comments, FIGURES)
        made = Path(folder)
        text = (made / "results.md").read_text()
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text.replace("](images/", f"](images/{name}/"))
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / "cells.csv", kept / "cells.csv")
        if runs is not None and (made / "images").is_dir():
            shutil.rmtree(images, ignore_errors=True)
            shutil.copytree(made / "images", images)
    return page


if __name__ == "__main__":
    main()
