"""The page of any scale is made from its records, with or without the runs."""

import json

import pytest

from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, save

from ..experiments.invented import invent
from .loading import load_script

TOOL = load_script("tools/write_results.py")


@pytest.mark.parametrize("scale", ["medium", "search"])
def test_the_page_of_a_grid_has_a_table_for_each_stage(tmp_path, scale):
    grid = find_grid(scale)
    kept = tmp_path / "results" / scale
    for task in grid.tasks(grid.experiments[:1]):
        save(kept, {**invent(task.cell, task.seed, accuracy=0.8125), "scale": scale})
    TOOL.main(["--scale", scale, "--root", str(tmp_path)])
    name = "results" if scale == "medium" else f"results-{scale}"
    page = (tmp_path / "docs" / f"{name}.md").read_text()
    for stage in grid.experiments:
        assert stage.title.split(",")[0] in page
    assert "81.25" in page
    told = json.loads((kept / "claims.json").read_text())
    assert [each["claim"] for each in told[:1]] == [it.says for it in grid.claims.values()][:1]
    for each in told[:1]:  # all cells are called by their names
        assert each["findings"][0]["one"]["cells"] == ["few-cifar10-edst"]
        assert each["findings"][0]["columns"] == ["accuracy"]
    lines = (kept / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + len(grid.tasks(grid.experiments[:1]))


def test_records_are_copied_from_the_runs(tmp_path):
    runs = tmp_path / "runs" / "medium"
    grid = find_grid("medium")
    task = grid.tasks(grid.experiments)[0]
    save(runs, {**invent(task.cell, task.seed), "scale": "medium"})
    page = TOOL.write_page("medium", runs, tmp_path)
    assert page == tmp_path / "docs" / "results.md"
    assert list(Results.load(tmp_path / "results" / "medium").records) == [(task.cell.name, 0)]


def test_figures_that_need_runs_stay_where_they_stood():
    figure = "### Drawn\n\n![Drawn](images/results-small/a.svg)\n\n*As it was.*"
    before = f"# Page\n\n## One\n\nold\n\n## Two\n\nold\n\n{figure}\n\n## Gone\n"
    after = "# Page\n\n## One\n\nnew\n\n## Two\n\nnew\n\n## Three\n\nnew\n"
    kept = TOOL.keep_figures(before, after)
    assert kept == after.replace("## Three", f"{figure}\n\n## Three")
    assert TOOL.keep_figures(kept, kept) == kept
