"""The page of any scale is made from its records, with or without the runs."""

import importlib.util
from pathlib import Path

import pytest

from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, save

from ..experiments.invented import invent

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "write_results.py"
    spec = importlib.util.spec_from_file_location("write_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scale", ["medium", "search"])
def test_the_page_of_a_grid_has_a_table_for_each_stage(tool, tmp_path, scale):
    grid = find_grid(scale)
    kept = tmp_path / "results" / scale
    for task in grid.tasks(grid.experiments[:1]):
        save(kept, {**invent(task.cell, task.seed, accuracy=0.8125), "scale": scale})
    tool.main(["--scale", scale, "--root", str(tmp_path)])
    page = (tmp_path / "docs" / f"results-{scale}.md").read_text()
    for stage in grid.experiments:
        assert stage.title.split(",")[0] in page
    assert "81.25" in page
    lines = (kept / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + len(grid.tasks(grid.experiments[:1]))


def test_records_are_copied_from_the_runs(tool, tmp_path):
    runs = tmp_path / "runs" / "medium"
    grid = find_grid("medium")
    task = grid.tasks(grid.experiments)[0]
    save(runs, {**invent(task.cell, task.seed), "scale": "medium"})
    page = tool.write_page("medium", runs, tmp_path)
    assert page == tmp_path / "docs" / "results-medium.md"
    assert list(Results.load(tmp_path / "results" / "medium").records) == [(task.cell.name, 0)]
