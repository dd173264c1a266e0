"""An experiment: one table or figure of the paper, with its rows, its numbers and its misprints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from typing import Any, TypeVar

from ..methods import Method
from ..reading import Count, parse_yaml

Kind = TypeVar("Kind")


def own_yaml(name: str) -> Any:
    """What a YAML file of this package says."""
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    return parse_yaml(text, name, aliases=True)


def joined(one: Kind, other: Kind) -> Kind:
    """Two of one data class as one: all that their tuples hold; else the first that says so."""
    both = {each.name: getattr(one, each.name) for each in fields(one)}  # type: ignore[arg-type]
    for name, mine in both.items():
        theirs, several = getattr(other, name), isinstance(mine, tuple)
        both[name] = tuple(dict.fromkeys(mine + theirs)) if several else mine or theirs
    return replace(one, **both)  # type: ignore[type-var]


@dataclass(frozen=True)
class Needs:
    """What has to be measured of each cell beside its scores on the test set."""

    corruptions: tuple[str, ...] = ()  # types, or names of sets of them
    ood: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    imagenet_a: bool = False
    features: bool = False  # whether the members' feature maps are compared
    trajectory: bool = False  # whether the course of the training is recorded

    def __or__(self, other: Needs) -> Needs:
        """What two experiments need together."""
        return joined(self, other)


_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}


def title_of_data(dataset: str) -> str:
    """What readers call the data of a key.

    Example:
        >>> title_of_data("few-cifar10"), title_of_data("imagenet"), title_of_data("mine")
        ('CIFAR-10, few images', 'ImageNet', 'mine')
    """
    regime, _, name = dataset.rpartition("-")
    if name not in _DATA:
        return dataset
    return f"{_DATA[name]}, {regime} images" if regime else _DATA[name]


@dataclass(frozen=True)
class Cell:
    """One training, but for its seed; two rows that need the same one have equal cells."""

    dataset: str  # a key; a scale says which data stand for it
    model: str  # the paper's; a scale says which one stands for it
    method: Method  # with all its options, defaults filled in
    settings: tuple[tuple[str, Any], ...] = ()  # as `Config` calls them, where it has its own
    label: str = ""  # what it is called; empty for a name made of the above
    of: Cell | None = None  # whose first trainings are the members: nothing is trained for this one

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method."""
        return asdict(self.method)

    @property
    def name(self) -> str:
        """A name for people and folders, different for each cell: options that are not default."""
        if self.label:
            return self.label
        defaults = {each.name: each.default for each in fields(self.method)}
        told = {name: value for name, value in self.options.items() if value != defaults[name]}
        told |= dict(self.settings)
        shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in told.items()}
        words = [f"{name}={value}" for name, value in shown.items()]
        return "-".join([self.dataset, self.model, self.method.name, *words])


@dataclass(frozen=True)
class Correction:
    """A misprint of the paper: a number, or the heading of a column."""

    printed: float | str
    why: str  # how it is known


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table, or a curve or a point of a figure; `settings` are as `Config` has them."""

    label: str  # as in the paper
    dataset: str  # its key: cifar10, cifar100 or imagenet
    model: str  # the paper's
    members: Count | None = None  # scored, the first; attacks are made for each, scored or not
    over: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # options with several values
    paper: Mapping[str, float] = field(default_factory=dict)  # by column, corrected; per cent
    corrected: Mapping[str, Correction] = field(default_factory=dict)  # which are misprints
    dense_flops: float | None = None  # of one dense training, printed in place of a multiple
    starred: bool = False  # the paper took the numbers from another publication
    underivable: Mapping[str, str] = field(default_factory=dict)  # why our count can't equal theirs
    settings: Mapping[str, Any] = field(default_factory=dict)
    cell: str = ""  # what its cell is called, if not by what it is
    seeds: Count | None = None  # trainings at most; None for as many as the experiment says
    method: Method
    of: Cell | None = None  # whose first trainings are the members: nothing is trained for this row

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What has to be trained for this row: one cell, or one for each value of `over`."""
        points = itertools.product(*self.over.values())
        methods = (replace(self.method, **dict(zip(self.over, at, strict=True))) for at in points)
        told = tuple(self.settings.items()), self.cell, self.of
        return tuple(Cell(self.dataset, self.model, method, *told) for method in methods)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One table or figure of the paper; its rows are in the paper's order."""

    name: str  # as `freetickets reproduce` calls it
    title: str
    paper: str  # where it stands: "Table 1"
    latex: str  # its label in the paper's source
    columns: tuple[str, ...]
    corrected: Mapping[str, Correction] = field(default_factory=dict)  # whose headings are wrong
    needs: Needs = Needs()
    figures: tuple[str, ...] = ()  # the parts of a report that show it, keys of `PARTS`
    claims: tuple[str, ...] = ()  # what the paper concludes from it, keys of `CLAIMS`
    seeds: Count = 1  # trainings of each cell, at a scale that can't pay for more
    notes: tuple[str, ...] = ()  # where the paper is silent or contradicts itself; what was decided
    beside: tuple[Row, ...] = ()  # of earlier stages, which its table shows once more
    provisional: str = ""  # why it can't be trained yet; empty if it can
    rows: tuple[Row, ...]


def cells(experiment: Experiment) -> tuple[Cell, ...]:
    """The different trainings of an experiment, in the order of its rows."""
    return tuple(dict.fromkeys(cell for row in experiment.rows for cell in row.cells))


def needed(experiments: Iterable[Experiment]) -> dict[Cell, Needs]:
    """The different trainings of several experiments, each with all that is measured of it."""
    found: dict[Cell, Needs] = {}
    for experiment in experiments:
        for cell in cells(experiment):
            found[cell] = found.get(cell, Needs()) | experiment.needs
    return found
