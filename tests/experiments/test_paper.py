"""The paper's tables and figures: complete, corrected, and at the paper's cost."""

import itertools
from functools import cache

import pytest

from freetickets.config import Config
from freetickets.data import get_spec
from freetickets.data.corruptions import CORRUPTIONS
from freetickets.data.shifted import OOD_NAMES
from freetickets.experiments import PARTS, Cell, Needs, cells, experiment_names, load, needed
from freetickets.methods import DST, EDST, METHODS, Setting, get_recipe
from freetickets.metrics.score import column_of
from freetickets.metrics.shift import CORRUPTION_SETS
from freetickets.report.sections import SECTIONS
from freetickets.report.tables import main_columns, more_columns
from freetickets.tasks import CLASSIFICATION
from freetickets.training.job import Job

ALL = {name: load(name) for name in experiment_names()}
ROWS = [(name, row) for name, experiment in ALL.items() for row in experiment.rows]

# Where each stands, and its rows: those of a table with two data sets count for each.
PLACES = {
    "cifar10": ("Table 1", 12), "cifar100": ("Table 2", 12), "imagenet": ("Table 3", 8),
    "diversity": ("Table 4", 2 * 6), "feature-maps": ("Figure 2, left", 5),
    "diversity-all": ("Figure 2, right", 7), "trajectories": ("Figure 3", 4),
    "ablation": ("Table 5", 2 * 4), "sparsity": ("Figure 4", 4 * 6),
    "ensemble-size": ("Figure 5", 1 + 7 + 7), "snapshot-fge": ("Table 6", 2 * 5),
    "disagreement-cifar10": ("Figure 6", 4), "disagreement-cifar100": ("Figure 7", 4),
    "classes": ("Table 7", 4), "correlation": ("Table 8", 2 * 2),
    "escape-rate": ("Table 9", 2 * 3), "growth": ("Table 10", 2 * 2),
    "ood-cifar10": ("Table 11", 9), "ood-cifar100": ("Table 12", 9), "fgsm": ("Table 13", 2 * 6),
}  # fmt: skip


def test_every_table_and_figure_has_the_rows_of_the_paper():
    assert {name: (each.paper, len(each.rows)) for name, each in ALL.items()} == PLACES
    places = {place.partition(",")[0] for place, _ in PLACES.values()}
    # Figure 1 is a drawing of the idea.
    assert places == {f"Table {n}" for n in range(1, 14)} | {f"Figure {n}" for n in range(2, 8)}


@pytest.mark.parametrize("experiment", ALL.values(), ids=ALL)
def test_an_experiment_is_complete_and_what_its_rows_show_is_measured(experiment):
    has_numbers = experiment.paper.startswith("Table") or experiment.name == "diversity-all"
    assert all(bool(row.paper) == has_numbers for row in experiment.rows)
    names = [(row.dataset, row.label) for row in experiment.rows]
    assert len(set(names)) == len(names)
    assert experiment.notes  # where the paper is silent, what was decided
    assert all(note.endswith(".") for note in experiment.notes)
    needs, columns = experiment.needs, experiment.columns
    assert {c.split(".")[1] for c in columns if c.startswith("ood.")} == set(needs.ood)
    assert {c.split(".")[1] for c in columns if c.startswith("attacks.")} == set(needs.attacks)
    assert any(c.startswith("c_") for c in columns) == bool(needs.corruptions)
    assert any(c.startswith("a_") for c in columns) == needs.imagenet_a
    assert ("features" in experiment.figures) == needs.features
    assert ("trajectories" in experiment.figures) == needs.trajectory
    assert set(needs.ood) <= set(OOD_NAMES)
    assert set(needs.corruptions) <= {*CORRUPTION_SETS, *CORRUPTIONS}
    assert not {row.dataset for row in experiment.rows} & {*needs.ood}  # known samples are not new


def test_columns_and_parts_are_those_of_the_report():
    shown = [*main_columns(CLASSIFICATION.scores), *more_columns(CLASSIFICATION.scores)]
    numbers = {column.key for column in shown} | {"tickets", "sparsity"}
    assert all(map(column_of, numbers))
    used = {column for experiment in ALL.values() for column in experiment.columns}
    assert {column for column in used if "." not in column} <= numbers
    keys = {key for chapter in SECTIONS.values() for key in chapter}
    assert {part.removesuffix("-fgsm") for part in PARTS} <= keys


def test_classes_are_the_first_ten_of_cifar100():
    prefix = "diversity.disagreement_by_class."
    experiment = ALL["classes"]
    found = tuple(column.removeprefix(prefix) for column in experiment.columns)
    assert found == get_spec("cifar100").classes[:10]
    # Of 100 images a class and 3 pairs, all numbers are multiples of 1/300.
    for row in experiment.rows:
        assert all(abs(300 * value - round(300 * value)) < 0.16 for value in row.paper.values())


def test_misprints_are_noted():
    corrected = ALL["classes"].corrected
    found = {column.split(".")[-1]: each.printed for column, each in corrected.items()}
    assert len(found) == 9
    names = [found[name] for name in ("aquarium_fish", "baby", "bottle")]
    assert names == ["Aquarium", "Fish", "Bicycle"]
    numbers = [
        (name, row.dataset, row.label, each.printed, row.paper[column])
        for name, row in ROWS
        for column, each in row.corrected.items()
    ]
    assert numbers == [("escape-rate", "cifar100", "q=0.5", 2.223, 0.223)]


def test_all_methods_have_a_row_and_main_tables_three_seeds():
    used = {row.method.name for _, row in ROWS}
    assert used == set(METHODS) - {"sup-tickets", "neurotrails"}  # which came after the paper
    several = {experiment.name for experiment in ALL.values() if experiment.seeds == 3}
    assert several == {"cifar10", "cifar100", "imagenet"}
    dropout = [row for _, row in ROWS if row.method.name == "mc-dropout"]
    assert [(row.starred, row.method.passes) for row in dropout] == [(True, 1)] * 2


def test_cells_that_tables_share_are_one():
    edst = Cell("cifar10", "wrn-28-10", EDST())
    shown = [name for name, experiment in ALL.items() if edst in cells(experiment)]
    assert shown == [
        "cifar10", "diversity", "feature-maps", "diversity-all", "trajectories", "ablation",
        "sparsity", "ensemble-size", "snapshot-fge", "disagreement-cifar10", "correlation",
        "escape-rate", "growth", "ood-cifar10", "fgsm",
    ]  # fmt: skip
    distinct = needed(ALL.values())
    assert len(distinct) == 71
    assert len({cell.name for cell in distinct}) == 71
    unknown = ("svhn", "cifar100", "gaussian-noise")
    assert distinct[edst] == Needs(("all19",), unknown, ("fgsm",), features=True, trajectory=True)
    main = set(needed([ALL["cifar10"], ALL["cifar100"]]))
    for name in ("diversity", "feature-maps", "diversity-all", "trajectories", "classes", "fgsm"):
        assert set(cells(ALL[name])) <= main
    assert set(cells(ALL["correlation"])) == set(cells(ALL["sparsity"]))


def test_edst_of_any_size_takes_the_same_time():
    edst = [row.method for row in ALL["ensemble-size"].rows if isinstance(row.method, EDST)]
    runs = [method.plan(Setting(get_recipe("cifar"))).runs[0] for method in edst]
    assert [run.epochs for run in runs] == pytest.approx([450] * 7, abs=1e-3)
    assert {run.phases[0].epochs for run in runs} == {150}


def test_fewer_members_are_the_first_of_a_larger_ensemble():
    """Of DST the first is a training of its own; of EDST it is the ticket of a shorter run."""
    setting = Setting(get_recipe("cifar"))
    assert DST(tickets=7).plan(setting).runs[:3] == DST(tickets=3).plan(setting).runs
    (one,), (three,) = (EDST(tickets=n).plan(setting).runs for n in (1, 3))
    assert [p.schedule for p in one.phases] == [p.schedule for p in three.phases[:2]]


# --- costs


@cache
def priced(cell):
    """What `freetickets plan` says of a cell."""
    spec = get_spec(cell.dataset)
    config = Config(
        method=cell.method.name, options=cell.options, dataset=cell.dataset, model=cell.model
    ).resolved(spec)

    return Job(config, spec, None).price()  # which needs no data


COSTS = {"train_flops": "relative_flops", "test_flops": "relative_test_flops"}
COSTLY = [
    pytest.param(row, column, id=f"{name}-{row.dataset}-{row.label}-{column}")
    for name, row in ROWS
    for column in COSTS
    if column in row.paper
]


@pytest.mark.parametrize(("row", "column"), COSTLY)
def test_flops_are_the_papers_within_a_fiftieth_where_derivable(row, column):
    distance = abs(getattr(priced(row.cells[0]), COSTS[column]) - row.paper[column])
    assert (distance <= 0.02) == (column not in row.underivable)


def test_which_costs_are_not_derivable():
    assert {(name, row.method.name) for name, row in ROWS if row.underivable} == {
        *itertools.product(["cifar10", "cifar100"], ["pf", "batch-ensemble"]),
        *itertools.product(["imagenet"], ["batch-ensemble", "mimo", "treenet"]),
    }


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet"])
def test_runs_are_the_papers_and_the_unit_of_cost_within_a_twentieth(name):
    rows = ALL[name].rows
    assert [priced(row.cells[0]).runs for row in rows] == [r.paper["training_runs"] for r in rows]
    assert priced(rows[0].cells[0]).dense_flops == pytest.approx(rows[0].dense_flops, rel=0.05)
