"""The front of a scale with stages: what was found and what it cost, and what is still to come."""

import pytest

from freetickets.experiments.claims import judge
from freetickets.experiments.grid import find_grid
from freetickets.experiments.page import make_page, markdown
from freetickets.experiments.results import Results

from ..report.svg import texts
from .invented import invent

GRID = find_grid("medium")
STAGE = GRID.experiments[0]
EPOCHS = {"dense": (64.0, 0.0), "edst": (115.2, 0.8)}


@pytest.fixture(scope="module")
def page():
    """Of t1 alone, where EDST is better by two points and costs what its steps cost."""
    records = {}
    for cell in (row.cells[0] for row in STAGE.rows):
        for seed in range(3):
            better = 0.02 * (cell.method.name == "edst")
            given = {"accuracy": 0.8 + better + 0.001 * (seed + better) ** 2, "nll": 0.6 - better}
            record = invent(cell, seed, train_flops=1 - 20 * better, **given)
            epochs, sparsity = EPOCHS[cell.method.name]
            record["ledger"] |= {
                "dense_epochs": 64.0, "phases": [{"epochs": epochs, "sparsity": sparsity}]
            }  # fmt: skip
            records[cell.name, seed] = {**record, "model": "fast-64-128-128"}
    results = Results(records, timing=GRID.timing)
    verdicts = judge(GRID.experiments, results, GRID.claims)
    return make_page(GRID.experiments, results, verdicts, {"": "What was asked."})


def test_it_begins_with_the_question_the_finding_and_its_cost(page):
    text = markdown(page)
    order = [
        "What was asked.",
        "CIFAR-10, few images: EDST",
        "checks:",
        "| claim |",
        "## Contents",
        "T1",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    line = next(line for line in text.splitlines() if line.startswith("CIFAR-10, few images: EDST"))
    assert "against Dense: Acc +2.0" in line
    ratios = 1.8 * 0.3819, 1.8 * 0.3819 / 0.4159  # the medians of the newest timings
    assert line.endswith(
        f"It takes 0.60x the training FLOPs of Dense, {ratios[0]:.2f}x its seconds in PyTorch, "
        f"{ratios[1]:.2f}x its seconds on our kernels."
    )


def test_what_was_not_run_is_named_and_has_no_row(page):
    table, *_ = (part for part in page.sections[0].body.parts if hasattr(part, "rows"))
    assert list(table.header) == ["claim", "CIFAR-10, few images", "CIFAR-100, few images"]
    (waiting,) = (part for part in page.sections[0].body.parts if "Not run" in str(part)[:40])
    assert "all of CIFAR-100, many images" in waiting.body.text
    for claim in GRID.claims.values():
        shown = any(row[0].text == claim.says for row in table.rows)
        assert shown != (claim.says in waiting.body.text)


def test_the_figure_has_dense_on_both_kernels(page):
    (figure,) = (each.body for each in page.sections if getattr(each.body, "name", "") == "seconds")
    for panel in figure.panels:
        assert {"Dense", "PyTorch: Dense", "EDST (M=3) (S=0.8)"} <= set(texts(panel))
        assert "dense in PyTorch" in texts(panel)
