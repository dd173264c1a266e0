import math
from dataclasses import replace

import pytest

from freetickets.evaluation.results import choose_corruptions
from freetickets.report.run import read_run
from freetickets.report.tables import columns_of, main_columns, make_rows, mark_of, more_columns
from freetickets.tasks import CLASSIFICATION

from .fake_runs import shift_of, with_results

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


def test_rows_and_columns_have_the_numbers_of_their_runs_and_the_best(rows):
    row = rows[0].as_dict()
    row.pop("folder")
    assert row == pytest.approx({
        "run": "edst", "method": "edst", "description": "edst (M=2, S=0.8)", "kind": "one-pass",
        "model": "mlp-30", "dataset": "tiny", "samples": 1234, "tickets": 2, "sparsity": 0.8,
        "corruptions": None, "member_accuracy": 0.75, "member_nll": 0.55, "member_ece": 0.03,
        "accuracy": 0.85, "nll": 0.45, "ece": 0.02,
        **dict.fromkeys(("c_accuracy", "c_nll", "c_ece", "c_ece_pooled")),
        **dict.fromkeys(("a_accuracy", "a_nll", "a_ece")),
        "train_flops": 0.4, "growth_flops": 0.003, "test_flops": 0.4, "training_runs": 1,
        "seconds": 12.0, "ticket_mb": 2.5,
    })  # fmt: skip
    shown = columns_of(rows, [*COLUMNS, *MORE_COLUMNS])
    assert [each.cell(rows[0]).text for each in shown] == [
        *("85.00%", "0.4500", "0.0200", "0.400", "0.400", "1", "12"),
        *("75.00%", "0.5500", "0.0300", "0.0030", "2.50"),
    ]
    assert column("nll").cell(with_numbers(rows[0], nll=math.nan)).text == "–"
    shown = columns_of(rows, [*COLUMNS, *MORE_COLUMNS])
    assert {each.key: each.best(rows) for each in shown} == {
        "accuracy": "85.00%", "nll": "0.4500", "ece": "0.0200", "train_flops": "0.400",
        "test_flops": "0.400", "training_runs": None, "seconds": "6", "member_accuracy": "82.00%",
        "member_nll": "0.4800", "member_ece": None, "growth_flops": "0.0000", "ticket_mb": "2.50",
    }  # fmt: skip


def test_columns_without_numbers_are_left_out_and_means_over_others_apart(rows, full_runs):
    assert "c_nll" not in [each.key for each in columns_of(rows, COLUMNS)]
    with_corruptions = [each.key for each in columns_of(make_rows(full_runs), COLUMNS)]
    assert {"c_accuracy", "c_nll", "c_ece", "c_ece_pooled"} < set(with_corruptions)
    assert "a_accuracy" not in with_corruptions
    same = [_with_types(run, 3) for run in full_runs[:2]]
    rows = make_rows([*same, _with_types(full_runs[2], 4), _with_types(full_runs[3], 3, 2)])
    measured = {row.run: row.numbers["c_accuracy"] is not None for row in rows}
    assert measured == {"dense": True, "dense-ensemble": True, "dst": False, "edst": False}
    assert chosen(same).types == same[0].results.shift["cifar10-c"].types


@pytest.mark.parametrize(
    ("key", "values", "best"),
    [
        ("accuracy", (0.85, 0.850001), None),  # they look alike
        ("accuracy", (0.85,), None),
        ("nll", (math.nan, 2.0), "2.0000"),
        ("nll", (math.nan, math.inf), None),
        ("c_nll", (None, 2.0, 3.0), "2.0000"),
        ("c_nll", (None, 2.0), None),
    ],
)
def test_the_best_is_finite_measured_and_differs(rows, key, values, best):
    assert column(key).best([with_numbers(rows[0], **{key: it}) for it in values]) == best


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


def test_corrupted_columns_hold_the_means_of_the_runs_own_test_set(full_runs):
    edst = next(row for row in make_rows(full_runs) if row.run == "edst")
    for key, values in full_runs[3].results.shift["cifar10-c"].scores.items():
        assert edst.numbers[f"c_{key}"] == pytest.approx(values.mean())
    run = full_runs[0]
    own = run.results.shift["cifar10-c"]
    other = replace(own, means={})
    both = with_results(run, shift={"c-c": other, "cifar10-c": own})
    assert make_rows([both])[0].numbers["c_accuracy"] == own.means["all19"]["accuracy"]


def _with_sets(run, names):
    shift = run.results.shift["cifar10-c"]
    kept = replace(shift, means={name: shift.means[name] for name in names})
    return with_results(run, shift={"cifar10-c": kept})


def _with_types(run, count, severities=5):
    """The run as if it had been tested on other corruptions, in no set that has a name."""
    means = {"given": run.results.shift["cifar10-c"].means["all19"]}
    return with_results(run, shift=shift_of(run, count, severities, means=means))
