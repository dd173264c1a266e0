"""What the pages show is what the records say, and the main table keeps its promise."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from freetickets.experiments import experiment_names, load, needed
from freetickets.experiments.claims import judge
from freetickets.experiments.findings import tally
from freetickets.experiments.grid import find_grid
from freetickets.experiments.results import Results, as_csv
from freetickets.experiments.tables import measured_table
from freetickets.report.export import as_markdown

from ..tools.loading import load_script

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "small"


@pytest.fixture(scope="module")
def results():
    return Results.load(KEPT)


@pytest.mark.parametrize("name", experiment_names())
def test_the_page_shows_the_committed_numbers_of_each_table(results, name):
    page = (ROOT / "docs" / "results-small.md").read_text()
    assert as_markdown(measured_table(load(name), results)).rstrip() in page


def test_each_cell_of_each_table_was_measured(results):
    assert not [c.name for c in needed(map(load, experiment_names())) if not results.seeds(c)]


def test_the_main_table_has_three_seeds_of_all_methods(results):
    rows = load("cifar10").rows
    assert len({cell for row in rows for cell in row.cells}) == 12
    for row in rows:
        assert results.seeds(row.cells[0]) == [0, 1, 2], row.label


def test_edst_beats_the_dense_model_beyond_noise_at_a_fraction_of_its_flops(results):
    verdict = judge([load("cifar10")], results)[0]
    for score in ("Acc", "NLL"):
        found = next(f for f in verdict.findings if f.about.what.endswith(score))
        assert "(M=3)" in found.about.what
        assert found.outcome == "supported"
        assert found.noise.startswith("3 seeds")
    edst = next(row for row in load("cifar10").rows if row.label.startswith("EDST Ensemble (M=3)"))
    assert max(results.values(edst, "train_flops")) <= 0.62


def test_the_table_of_cells_is_that_of_the_records(results):
    assert (KEPT / "cells.csv").read_text() == as_csv(results)


def test_the_page_of_medium_shows_what_its_records_say():
    grid, page = find_grid("medium"), (ROOT / "docs" / "results.md").read_text()
    kept = ROOT / "results" / "medium"
    with (kept / "cells.csv").open() as file:  # what came since is not on the page yet
        shown = {(row["cell"], int(row["seed"])) for row in csv.DictReader(file)}
    every = Results.load(kept, grid.timing)
    medium = replace(every, records={key: every.records[key] for key in shown})
    for stage in grid.experiments:
        assert as_markdown(measured_table(stage, medium)).rstrip() in page


@pytest.mark.parametrize(("scale", "page"), [("small", "results-small"), ("medium", "results")])
def test_a_second_script_finds_the_verdicts_that_the_page_shows(scale, page, tmp_path):
    kept, text = ROOT / "results" / scale, (ROOT / "docs" / f"{page}.md").read_text()
    told = json.loads((kept / "claims.json").read_text())
    counts = tally(each["outcome"] for each in told)
    assert f"**Of {len(told)} checks: {counts}.**" in text
    script = load_script("tools/check_claims.py")
    assert script.main([str(kept)]) == 0
    # It would have noticed.
    decided = next(each for each in told if each["outcome"] == "supported")
    decided["outcome"] = decided["findings"][0]["outcome"] = "contradicted"
    (tmp_path / "results").symlink_to(kept / "results")
    (tmp_path / "cells.csv").symlink_to(kept / "cells.csv")
    (tmp_path / "claims.json").write_text(json.dumps(told))
    assert script.main([str(tmp_path)]) == 1
