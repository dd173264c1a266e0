"""What docs/results.md shows is what results/small says, and its main table keeps its promise."""

from pathlib import Path

import pytest

from freetickets.experiments import experiment_names, load, needed
from freetickets.experiments.claims import judge
from freetickets.experiments.results import Results, as_csv
from freetickets.experiments.tables import measured_table
from freetickets.report.export import as_markdown

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "results" / "small"


@pytest.fixture(scope="module")
def results():
    return Results.load(KEPT)


@pytest.mark.parametrize("name", experiment_names())
def test_the_page_shows_the_committed_numbers_of_each_table(results, name):
    page = (ROOT / "docs" / "results.md").read_text()
    assert as_markdown(measured_table(load(name), results)).rstrip() in page


def test_each_cell_of_each_table_was_measured(results):
    assert not [c.name for c in needed(map(load, experiment_names())) if not results.seeds(c)]


def test_the_main_table_has_three_seeds_of_all_methods(results):
    rows = load("cifar10").rows
    assert len({cell for row in rows for cell in row.cells}) == 12
    for row in rows:
        assert results.seeds(row.cells[0]) == [0, 1, 2], row.label


def test_edst_beats_the_dense_model_beyond_noise_at_a_fraction_of_its_flops(results):
    verdict = next(v for v in judge(load("cifar10"), results) if v.statement.startswith("EDST and"))
    for score in ("Acc", "NLL"):
        found = next(f for f in verdict.findings if "(M=3)" in f.what and f.what.endswith(score))
        assert found.outcome == "supported"
        assert found.noise == "3 seeds"
    edst = next(row for row in load("cifar10").rows if row.label.startswith("EDST Ensemble (M=3)"))
    assert max(results.values(edst, "train_flops")) <= 0.62


def test_the_table_of_cells_is_that_of_the_records(results):
    assert (KEPT / "cells.csv").read_text() == as_csv(results)
