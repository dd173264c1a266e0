from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from freetickets.report import COLUMNS, make_rows


@pytest.fixture
def rows(runs):
    return make_rows(runs)


def column(key):
    return next(column for column in COLUMNS if column.key == key)


def test_a_row_has_the_numbers_of_its_run(rows):
    row = asdict(rows[0])
    row.pop("folder")
    assert row == pytest.approx(
        {
            "run": "edst",
            "method": "edst",
            "description": "edst (M=2, S=0.8)",
            "model": "mlp-30",
            "dataset": "tiny",
            "samples": 1234,
            "tickets": 2,
            "sparsity": 0.8,
            "member_accuracy": 0.75,
            "member_nll": 0.55,
            "member_ece": 0.03,
            "accuracy": 0.85,
            "nll": 0.45,
            "ece": 0.02,
            "train_flops": 0.4,
            "growth_flops": 0.003,
            "test_flops": 0.4,
            "training_runs": 1,
            "seconds": 12.0,
            "ticket_mb": 2.5,
        }
    )


def test_every_column_shows_a_number_of_the_row(rows):
    assert [each.text(rows[0]) for each in COLUMNS] == [
        *("75.00%", "0.5500", "0.0300", "85.00%", "0.4500", "0.0200"),
        *("0.400", "0.0030", "0.400", "1", "12", "2.50"),
    ]


def test_the_best_is_the_highest_accuracy_and_the_lowest_of_all_else(rows):
    assert {each.key: each.best(rows) for each in COLUMNS} == {
        "member_accuracy": "82.00%",
        "member_nll": "0.4800",
        "member_ece": None,
        "accuracy": "85.00%",
        "nll": "0.4500",
        "ece": "0.0200",
        "train_flops": "0.400",
        "growth_flops": "0.0000",
        "test_flops": "0.400",
        "training_runs": None,
        "seconds": "6",
        "ticket_mb": "2.50",
    }


def test_nothing_is_best_among_what_looks_alike(rows):
    alike = [rows[0], replace(rows[0], accuracy=0.850001)]
    assert column("accuracy").best(alike) is None
    assert column("accuracy").best(rows[:1]) is None


def test_what_is_not_finite_is_not_best(rows):
    one, other = (replace(row, nll=nll) for row, nll in zip(rows, (math.nan, 2.0), strict=True))
    assert column("nll").best([one, other]) == "2.0000"
    assert column("nll").best([one, replace(other, nll=math.inf)]) is None
