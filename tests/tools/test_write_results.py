"""The page of any scale is made from its records, with or without the runs."""

import pytest

from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, save

from ..experiments.invented import invent
from .loading import load_script

TOOL = load_script("tools/write_results.py")


@pytest.mark.parametrize("scale", ["medium", "search"])
def test_the_page_of_a_grid_has_a_table_for_each_stage(tmp_path, scale):
    grid = find_grid(scale)
    runs, kept = (tmp_path / name / scale for name in ("runs", "results"))
    for task in grid.tasks(grid.experiments[:1]):
        save(runs, {**invent(task.cell, task.seed, accuracy=0.8125), "scale": scale})
    page = TOOL.write_page(scale, runs, tmp_path)
    assert page == tmp_path / "docs" / f"results-{scale}.md"
    assert Results.load(kept).records == Results.load(runs).records  # copied, too
    page = page.read_text()
    for stage in grid.experiments:
        assert stage.title.split(",")[0] in page
    assert "81.25" in page
    lines = (kept / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + len(grid.tasks(grid.experiments[:1]))
