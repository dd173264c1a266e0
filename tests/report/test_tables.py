import math
from dataclasses import replace

import pytest

from freetickets.evaluation.results import choose_corruptions
from freetickets.report import (
    columns_of,
    main_columns,
    main_table,
    make_rows,
    mark_of,
    more_columns,
    read_run,
)
from freetickets.tasks import CLASSIFICATION

COLUMNS = main_columns(CLASSIFICATION.scores)
MORE_COLUMNS = more_columns(CLASSIFICATION.scores)


def with_numbers(row, **numbers):
    return replace(row, numbers={**row.numbers, **numbers})


def chosen(runs):
    return choose_corruptions(run.results for run in runs)


@pytest.fixture
def rows(runs):
    return make_rows(runs)[::-1]  # dense comes first in the table, edst was written first


def column(key):
    return next(column for column in (*COLUMNS, *MORE_COLUMNS) if column.key == key)


def test_a_row_has_the_numbers_of_its_run(rows):
    row = rows[0].as_dict()
    row.pop("folder")
    assert row == pytest.approx(
        {
            "run": "edst",
            "method": "edst",
            "description": "edst (M=2, S=0.8)",
            "kind": "one-pass",
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
            "corruptions": None,
            **dict.fromkeys(("c_accuracy", "c_nll", "c_ece", "c_ece_pooled")),
            **dict.fromkeys(("a_accuracy", "a_nll", "a_ece")),
            "train_flops": 0.4,
            "growth_flops": 0.003,
            "test_flops": 0.4,
            "training_runs": 1,
            "seconds": 12.0,
            "ticket_mb": 2.5,
        }
    )


def test_every_column_shows_a_number_of_the_row(rows):
    shown = columns_of(rows, [*COLUMNS, *MORE_COLUMNS])
    assert [each.cell(rows[0]).text for each in shown] == [
        *("85.00%", "0.4500", "0.0200", "0.400", "0.400", "1", "12"),
        *("75.00%", "0.5500", "0.0300", "0.0030", "2.50"),
    ]


def test_columns_that_no_run_has_numbers_for_are_left_out(rows, full_runs):
    assert "c_nll" not in [each.key for each in columns_of(rows, COLUMNS)]
    with_corruptions = [each.key for each in columns_of(make_rows(full_runs), COLUMNS)]
    assert {"c_accuracy", "c_nll", "c_ece", "c_ece_pooled"} < set(with_corruptions)
    assert "a_accuracy" not in with_corruptions


def test_the_best_is_the_highest_accuracy_and_the_lowest_of_all_else(rows):
    shown = columns_of(rows, [*COLUMNS, *MORE_COLUMNS])
    assert {each.key: each.best(rows) for each in shown} == {
        "accuracy": "85.00%",
        "nll": "0.4500",
        "ece": "0.0200",
        "train_flops": "0.400",
        "test_flops": "0.400",
        "training_runs": None,
        "seconds": "6",
        "member_accuracy": "82.00%",
        "member_nll": "0.4800",
        "member_ece": None,
        "growth_flops": "0.0000",
        "ticket_mb": "2.50",
    }


def test_nothing_is_best_among_what_looks_alike(rows):
    alike = [rows[0], with_numbers(rows[0], accuracy=0.850001)]
    assert column("accuracy").best(alike) is None
    assert column("accuracy").best(rows[:1]) is None


def test_what_is_not_finite_is_not_best(rows):
    one, other = (
        with_numbers(row, nll=nll) for row, nll in zip(rows, (math.nan, 2.0), strict=True)
    )
    assert column("nll").best([one, other]) == "2.0000"
    assert column("nll").best([one, with_numbers(other, nll=math.inf)]) is None


def test_what_was_not_measured_is_not_best(rows):
    three = [with_numbers(rows[0], c_nll=nll) for nll in (None, 2.0, 3.0)]
    assert column("c_nll").best(three) == "2.0000"
    assert column("c_nll").cell(three[0]).text == "–"


def test_only_runs_of_one_kind_compete(rows):
    one = with_numbers(replace(rows[0], run="better"), accuracy=0.9)
    dense = with_numbers(rows[1], accuracy=0.99)
    several = with_numbers(replace(rows[0], kind="multi-pass"), accuracy=0.95)
    other = with_numbers(several, accuracy=0.96)
    table = [rows[0], one, dense, several, other]
    marks = [mark_of(row, column("accuracy"), table) for row in table]
    assert marks == ["", "best", "", "", "second"]


@pytest.mark.parametrize(
    ("method", "passes", "members", "sparsity", "kind"),
    [
        ("dense", 1, 1, 0.0, "dense"),
        ("dense", 4, 4, 0.0, "dense-ensemble"),
        ("dense-ensemble", 4, 4, 0.0, "dense-ensemble"),
        ("mimo", 1, 3, 0.0, "one-pass"),
        ("edst", 1, 3, 0.8, "one-pass"),
        ("treenet", 1.5, 3, 0.0, "multi-pass"),
        ("dst", 3, 3, 0.8, "multi-pass"),
    ],
)
def test_rows_are_grouped_as_the_paper_does(write_run, method, passes, members, sparsity, kind):
    phase = {"run": 1, "phase": "train", "epochs": 1.0, "steps": 1, "sparsity": sparsity}
    phase |= {"explorations": 0, "flops": 1.0, "growth_flops": 0.0, "seconds": 1.0}
    ledger = {"runs": passes, "members": members, "phases": [phase]}
    run = read_run(write_run(config={"method": method, "options": {}}, ledger=ledger))
    assert make_rows([run])[0].kind == kind


def test_corruptions_are_those_of_the_set_that_most_runs_have(full_runs):
    assert chosen(full_runs).name == "all19"
    assert make_rows(full_runs)[0].corruptions == "all19"
    fewer = [_with_sets(run, ["common15"]) for run in full_runs[:3]]
    assert chosen([*fewer, full_runs[3]]).name == "common15"
    assert chosen(fewer[:1]).name == "common15"
    assert chosen([_with_sets(run, []) for run in full_runs]) is None


def test_corrupted_columns_hold_the_means(full_runs):
    edst = next(row for row in make_rows(full_runs) if row.run == "edst")
    shift = full_runs[3].results.shift["cifar10-c"]
    assert edst.numbers["c_accuracy"] == pytest.approx(shift.scores["accuracy"].mean())
    assert edst.numbers["c_nll"] == pytest.approx(shift.scores["nll"].mean())
    assert edst.numbers["c_ece"] == pytest.approx(shift.scores["ece"].mean())


def test_a_table_has_a_cell_for_each_column_and_a_row_for_each_run(full_runs):
    table = main_table(make_rows(full_runs), COLUMNS)
    assert {len(row) for row in table.rows} == {len(table.header)}
    assert sum(span for _, span in table.groups) == len(table.header)
    assert sum(count for _, count in table.row_groups) == len(full_runs)


def _with_sets(run, names):
    shift = run.results.shift["cifar10-c"]
    kept = replace(shift, means={name: shift.means[name] for name in names})
    return replace(run, results=replace(run.results, shift={"cifar10-c": kept}))


def _with_types(run, count, severities=5):
    """The run as if it had been tested on other corruptions, in no set that has a name."""
    shift = run.results.shift["cifar10-c"]
    cut = {key: values[:count, :severities] for key, values in shift.scores.items()}
    given = replace(
        shift,
        types=shift.types[:count],
        severities=shift.severities[:severities],
        means={"given": shift.means["all19"]},
        scores=cut,
    )
    return replace(run, results=replace(run.results, shift={"cifar10-c": given}))


def test_means_over_different_corruptions_are_in_no_column_together(full_runs):
    same = [_with_types(run, 3) for run in full_runs[:2]]
    rows = make_rows([*same, _with_types(full_runs[2], 4), _with_types(full_runs[3], 3, 2)])
    measured = {row.run: row.numbers["c_accuracy"] is not None for row in rows}
    assert measured == {"dense": True, "dense-ensemble": True, "dst": False, "edst": False}
    assert chosen(same).types == same[0].results.shift["cifar10-c"].types


def test_corruptions_are_those_of_the_runs_own_test_set(full_runs):
    run = full_runs[0]
    own = run.results.shift["cifar10-c"]
    other = replace(own, means={})
    both = replace(run, results=replace(run.results, shift={"c-c": other, "cifar10-c": own}))
    assert make_rows([both])[0].numbers["c_accuracy"] == own.means["all19"]["accuracy"]


def test_where_one_run_only_was_measured_none_is_the_best(full_runs):
    rows = [replace(row, kind="one-pass") for row in make_rows(full_runs)[:2]]
    accuracy = column("c_accuracy")
    assert sorted(mark_of(row, accuracy, rows) for row in rows) == ["", "best"]
    pair = [rows[0], with_numbers(rows[1], c_accuracy=None)]
    assert [mark_of(row, accuracy, pair) for row in pair] == ["", ""]


def test_a_score_that_is_no_number_is_a_dash(rows):
    assert column("nll").cell(with_numbers(rows[0], nll=math.nan)).text == "–"
