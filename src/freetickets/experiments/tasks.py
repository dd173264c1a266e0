"""Tasks: what has to be trained and measured for some experiments, each piece once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from .cell import Cell
from .experiment import Experiment, Needs, cells, needed
from .reading import experiment_names, load
from .scales import Scale


@dataclass(frozen=True)
class Task:
    """One training of one cell, and what is measured of it.

    Attributes:
        cell: What is trained.
        seed: Counts the trainings of the cell, from 0.
        needs: What is measured beside the test set.
        members: How many members rows score, the first, where they are not all.
    """

    cell: Cell
    seed: int
    needs: Needs = field(default_factory=Needs)
    members: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What people read.

        Example:
            >>> from freetickets.methods import Dense
            >>> Task(Cell("cifar10", "wrn-28-10", Dense()), 2).name
            'cifar10-wrn-28-10-dense, seed 2'
        """
        return f"{self.cell.name}, seed {self.seed}"


def make_tasks(
    experiments: Iterable[Experiment],
    scale: Scale,
    seeds: int | None = None,
    only: Collection[str] = (),
) -> list[Task]:
    """What has to be trained for experiments; a cell that several share is there once a seed.

    All first seeds come first, so that every table has numbers early.

    Args:
        experiments: The tables and figures.
        scale: Says how often a cell is trained.
        seeds: How often instead.
        only: Methods; none for all.

    Example:
        >>> from freetickets.experiments.scales import SCALES
        >>> tasks = make_tasks([load("cifar10"), load("fgsm")], SCALES["paper"])
        >>> len(tasks), tasks[0].seed, tasks[-1].seed
        (41, 0, 2)
    """
    found: dict[tuple[int, Cell], Task] = {}
    for experiment in experiments:
        members, fewer = _row_members(experiment), _row_seeds(experiment)
        for seed in range(seeds or scale.seeds(experiment)):
            for cell in cells(experiment):
                if (only and cell.method.name not in only) or seed >= fewer.get(cell, seed + 1):
                    continue
                task = found.setdefault((seed, cell), Task(cell, seed))
                found[seed, cell] = replace(
                    task,
                    needs=task.needs | experiment.needs,
                    members=tuple(sorted({*task.members, *members.get(cell, ())})),
                )
    order = {seed: place for place, seed in enumerate(sorted({seed for seed, _ in found}))}
    return sorted(found.values(), key=lambda task: order[task.seed])


def with_trajectory() -> set[Cell]:
    """The cells whose training is recorded, whichever experiment trains them first."""
    return {
        cell for cell, needs in needed(map(load, experiment_names())).items() if needs.trajectory
    }


def _row_members(experiment: Experiment) -> dict[Cell, set[int]]:
    found: dict[Cell, set[int]] = {}
    for row in experiment.rows:
        for cell in row.cells:
            if row.members is not None:
                found.setdefault(cell, set()).add(row.members)
    return found


def _row_seeds(experiment: Experiment) -> dict[Cell, int]:
    return {
        cell: row.seeds for row in experiment.rows for cell in row.cells if row.seeds is not None
    }
