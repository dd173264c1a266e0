"""Write the page of what `freetickets reproduce` measured at a scale: write_results.py [FOLDER].

    python tools/write_results.py --scale medium                   # docs/results.md
    python tools/write_results.py runs/reproduce/small             # docs/results-small.md

FOLDER is an output of reproduce with its runs: its records are copied into results/SCALE, and the
figures are drawn. Without it the page is made again from results/SCALE, and keeps the figures that
need the runs. What the page says besides is in results/SCALE/comments.yaml.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from freetickets.experiments.claims import Verdict, judge
from freetickets.experiments.evidence import Evidence
from freetickets.experiments.experiment import Row
from freetickets.experiments.findings import Finding
from freetickets.experiments.grid import find_grid
from freetickets.experiments.page import write
from freetickets.experiments.results import Results
from freetickets.experiments.timing import COLUMNS

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
    name = "results" if scale == "medium" else f"results-{scale}"
    page, images = root / "docs" / f"{name}.md", root / "docs" / "images" / name
    if runs is not None:
        shutil.rmtree(kept / "results", ignore_errors=True)
        shutil.copytree(runs / "results", kept / "results")
    told = kept / "comments.yaml"
    comments = yaml.safe_load(told.read_text()) if told.exists() else {}
    grid = find_grid(scale)
    results = Results.load(runs or kept, grid.timing)
    verdicts = judge(grid.experiments, results, grid.claims)
    with tempfile.TemporaryDirectory() as folder:
        write(grid.experiments, results, folder, comments, FIGURES, verdicts)
        made = Path(folder)
        text = (made / "results.md").read_text().replace("](images/", f"](images/{name}/")
        text = re.sub(r"docs/((?:results|reproduce)[\w-]*\.md)", r"[\1](\1)", text)
        if runs is None and page.exists():
            text = keep_figures(page.read_text(), text)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / "cells.csv", kept / "cells.csv")
        (kept / "claims.json").write_text(as_json(verdicts, Evidence(results)))
        if (made / "images").is_dir():
            if runs is not None:
                shutil.rmtree(images, ignore_errors=True)
            shutil.copytree(made / "images", images, dirs_exist_ok=True)
    return page


def as_json(verdicts: Iterable[Verdict], evidence: Evidence) -> str:
    """Every finding with the cells and columns that it is about, for programs."""

    def side(row: Row | None, column: str) -> dict[str, Any] | None:
        if row is None:
            return None
        joined = None if row.of is None else row.of.name
        told = {"cells": [cell.name for cell in row.cells], "members": row.members, "of": joined}
        return told | ({"seconds": evidence.rounds(row, column)} if column in COLUMNS else {})

    def finding(each: Finding) -> dict[str, Any]:
        about, it = each.about, each.estimate
        column = about.columns[0]
        shown = (
            None if it is None else [float(f"{x:.6g}") for x in (it.value, it.error, it.degrees)]
        )
        return {
            "one": side(about.one, column), "other": side(about.other, about.versus or column),
            "columns": about.columns,
            "versus": about.versus, "claimed": about.claimed, "outcome": each.outcome,
            "value, error, freedom": shown,
        }  # fmt: skip

    found = [
        {"claim": it.claim.says, "dataset": it.dataset, "outcome": it.outcome,
         "findings": [finding(each) for each in it.findings]}
        for it in verdicts
    ]  # fmt: skip
    lines = (json.dumps(each).replace("Infinity", "null") for each in found)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def keep_figures(before: str, text: str) -> str:
    """Puts the figures of an earlier page where they stood, if the new one could not draw them."""
    figure = re.compile(r"^### .*\n\n!\[.*\]\((.*)\)\n\n\*.*\*\n?", re.MULTILINE)
    section = re.compile(r"^(?=## )", re.MULTILINE)
    earlier = {part.partition("\n")[0]: part for part in section.split(before)}
    parts = section.split(text)
    for number, part in enumerate(parts):
        found = figure.finditer(earlier.get(part.partition("\n")[0], ""))
        kept = [each[0].strip() for each in found if each[1] not in text]
        parts[number] = "\n\n".join([part.rstrip(), *kept]) + "\n\n"
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    main()
