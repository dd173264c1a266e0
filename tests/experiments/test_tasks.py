"""Every piece of work is there, and there once."""

from __future__ import annotations

from freetickets.experiments import cells, experiment_names, load, needed
from freetickets.experiments.scales import SCALES
from freetickets.experiments.grid import make_tasks, with_trajectory

ALL = [load(name) for name in experiment_names()]


def test_all_experiments_share_their_cells() -> None:
    tasks = make_tasks(ALL, SCALES["paper"])
    assert len({(task.cell, task.seed) for task in tasks}) == len(tasks) == 71 + 2 * 32
    assert {task.cell for task in tasks} == set(needed(ALL))


def test_first_seeds_come_first_and_have_all_needs() -> None:
    tasks = make_tasks(ALL, SCALES["paper"])
    seeds = [task.seed for task in tasks]
    assert seeds == sorted(seeds)
    wanted = needed(ALL)
    for task in tasks:
        if task.seed == 0:
            assert task.needs == wanted[task.cell]
        else:  # only the main tables have more
            assert not task.needs.attacks
            assert task.needs.corruptions == ("all19",)


def test_rows_that_score_fewer_members_are_known() -> None:
    tasks = {task.cell: task for task in make_tasks(ALL, SCALES["paper"], seeds=1)}
    for experiment in ALL:
        for row in experiment.rows:
            for cell in row.cells:
                assert row.members is None or row.members in tasks[cell].members


def test_seeds_and_methods_can_be_chosen() -> None:
    tasks = make_tasks([load("fgsm")], SCALES["smoke"], seeds=4, only=["edst", "dst"])
    assert {task.cell.method.name for task in tasks} == {"edst", "dst"}
    assert sorted({task.seed for task in tasks}) == [0, 1, 2, 3]


def test_trajectories_are_those_of_their_figure() -> None:
    assert with_trajectory() == set(cells(load("trajectories")))
