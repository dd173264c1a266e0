"""Grids: what is trained at each scale, each piece once. No torch here.

A scale trains the paper's experiments, or stages of its own in `grids/`, one after the other.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import FreeTicketsError, UnknownNameError, check_known
from ..reading import parse_yaml, read
from .claims import CLAIMS, Claim, check_claims
from .experiment import Cell, Experiment, Needs, Row
from .reading import experiment_names, load, read_experiment, yaml_files
from .scales import SCALES, Scale, Substitute
from .timing import StepTimes


@dataclass(frozen=True)
class CellTask:
    """One training of one cell, and what is measured of it beside the test set."""

    cell: Cell
    seed: int  # counts the trainings of the cell, from 0
    needs: Needs = field(default_factory=Needs)
    members: tuple[int, ...] = ()  # how many members rows score, the first, where they are not all

    @property
    def name(self) -> str:
        """What people read."""
        return f"{self.cell.name}, seed {self.seed}"


def make_tasks(
    experiments: Iterable[Experiment],
    scale: Scale,
    seeds: int | None = None,
    only: Collection[str] = (),
) -> list[CellTask]:
    """What has to be trained: a cell once a seed, all first seeds first. `only` are methods."""
    found: dict[tuple[int, Cell], CellTask] = {}
    for experiment in experiments:
        rows = [(row, cell) for row in experiment.rows for cell in row.cells]
        fewer = {cell: row.seeds for row, cell in rows if row.seeds is not None}
        for seed in range(seeds or scale.seeds(experiment)):
            for row, cell in rows:
                if (only and cell.method.name not in only) or seed >= fewer.get(cell, seed + 1):
                    continue
                task = found.get((seed, cell)) or CellTask(cell, seed)
                own = () if row.members is None else (row.members,)
                members = tuple(sorted({*task.members, *own}))
                needs = task.needs | experiment.needs
                found[seed, cell] = CellTask(cell, seed, needs, members)
    return sorted(found.values(), key=lambda task: task.seed)


@dataclass(frozen=True)
class _Grid:
    """What a file says of a grid: see `grids/`."""

    summary: str
    substitutes: dict[str, Substitute]
    stages: tuple[dict[str, Any], ...]
    shared: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    timing: StepTimes | None = None
    anchors: Any = None  # what aliases in the rest of the file repeat


@dataclass(frozen=True)
class Grid:
    """A scale and what is trained at it: the paper's tables and figures, or stages."""

    scale: Scale
    experiments: tuple[Experiment, ...]
    claims: Mapping[str, Claim] = field(default_factory=lambda: CLAIMS)
    timing: StepTimes | None = None  # of the steps of its networks
    staged: bool = False  # whether all seeds of one are trained before the next begins

    def choose(self, names: Sequence[str]) -> list[Experiment]:
        """The experiments of these names, in the grid's order; all, if one of them is "all"."""
        known = ["all", *(each.name for each in self.experiments)]
        if not names:
            raise FreeTicketsError("name experiments, or all: see freetickets reproduce --list")
        for name in names:
            check_known("experiment", name, known)
        return [each for each in self.experiments if "all" in names or each.name in names]

    def tasks(
        self, experiments: Sequence[Experiment], seeds: int | None = None, only: Sequence[str] = ()
    ) -> list[CellTask]:
        """What has to be trained for experiments, in order."""
        groups = [[each] for each in experiments] if self.staged else [experiments]
        return [task for own in groups for task in make_tasks(own, self.scale, seeds, only)]


def grid_names() -> list[str]:
    """The scales that have experiments of their own."""
    return list(yaml_files("grids"))


def find_grid(scale: str) -> Grid:
    """Looks a scale up by its name, with what is trained at it."""
    if scale in SCALES:
        return Grid(SCALES[scale], tuple(map(load, experiment_names())))
    own = yaml_files("grids")
    if scale not in own:
        raise UnknownNameError("scale", scale, [*SCALES, *own])
    return parse_grid(own[scale].read_text(encoding="utf-8"), scale)


def parse_grid(text: str, name: str) -> Grid:
    """Reads a grid from YAML; `name` is what it and errors call it."""
    values = parse_yaml(text, name, aliases=True)
    try:
        told: _Grid = read(_Grid, values)
        stages: list[Experiment] = []
        known: dict[str, Row] = {}
        for each in told.stages:
            shared = {"paper": str(each.get("name", "")).upper(), "latex": "", **told.shared}
            stages.append(read_experiment({**shared, **each}, told.substitutes, known))
            own = [(cell, row) for row in stages[-1].rows for cell in row.cells]
            for cell, row in own:
                earlier = known.setdefault(cell.name, row)
                if cell not in earlier.cells or [it for it, _ in own].count(cell) > 1:
                    raise FreeTicketsError(f"two cells are called {cell.name}")
        if not stages:
            raise FreeTicketsError("stages must not be empty")
        check_claims(told.claims, known.values())
    except FreeTicketsError as error:
        raise FreeTicketsError(f"{name}: {error}") from error
    most = max(stage.seeds for stage in stages)
    scale = Scale(name, told.summary, told.substitutes, most)
    return Grid(scale, tuple(stages), told.claims, told.timing, staged=True)
