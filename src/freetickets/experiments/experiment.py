"""An experiment: one table or figure of the paper, with its rows, its numbers and its misprints."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..methods import Method


@dataclass(frozen=True)
class Needs:
    """What has to be measured of each cell beside its scores on the test set.

    Attributes:
        corruptions: Types of corruption, or names of sets of them.
        ood: OoD sets.
        attacks: Kinds of attack.
        imagenet_a: Whether ImageNet-A is predicted.
        features: Whether the members' feature maps are compared.
        trajectory: Whether the course of the training is recorded.
    """

    corruptions: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    imagenet_a: bool = False
    features: bool = False
    trajectory: bool = False

    def __or__(self, other: Needs) -> Needs:
        """What two experiments need together.

        Example:
            >>> both = Needs(ood=("svhn",)) | Needs(ood=("svhn", "cifar100"), features=True)
            >>> both.ood, both.features
            (('svhn', 'cifar100'), True)
        """
        merged: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, tuple):
                merged[each.name] = tuple(dict.fromkeys(mine + theirs))
            else:
                merged[each.name] = mine or theirs
        return Needs(**merged)


@dataclass(frozen=True)
class Cell:
    """One training, but for its seed; two rows that need the same one have equal cells.

    Attributes:
        dataset: The key of the data set; a scale says which data stand for it.
        model: The paper's network; a scale says which one stands for it.
        method: The method with all its options, defaults filled in.
        settings: Of the training, as `Config` calls them, where the cell has its own.
        label: What it is called; empty for a name made of the above.
        of: The cell whose first trainings are the members, where nothing is trained for this one.

    Example:
        >>> from freetickets.methods import EDST
        >>> short = Cell("cifar10", "wrn-28-10", EDST())
        >>> short == Cell("cifar10", "wrn-28-10", EDST(tickets=3, sparsity=0.8))
        True
        >>> Cell("cifar10", "wrn-28-10", EDST(tickets=7, sparsity=0.9)).name
        'cifar10-wrn-28-10-edst-tickets=7-sparsity=0.9'
    """

    dataset: str
    model: str
    method: Method
    settings: tuple[tuple[str, Any], ...] = ()
    label: str = ""
    of: Cell | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All options of the method."""
        return asdict(self.method)

    @property
    def name(self) -> str:
        """A name for people and folders, different for each cell: options that are not default."""
        if self.label:
            return self.label
        chosen = {
            each.name: getattr(self.method, each.name)
            for each in fields(self.method)
            if getattr(self.method, each.name) != each.default
        } | dict(self.settings)
        words = [f"{name}={_text(value)}" for name, value in chosen.items()]
        return "-".join([self.dataset, self.model, self.method.name, *words])


@dataclass(frozen=True)
class Correction:
    """A misprint of the paper.

    Attributes:
        column: Where it is.
        printed: What the paper says: a number, or the heading of the column.
        used: What is taken instead.
        why: How that is known.
    """

    column: str
    printed: float | str
    used: float | str
    why: str


@dataclass(frozen=True)
class Row:
    """A row of a table, or a curve or a point of a figure.

    Attributes:
        label: What the paper calls it.
        dataset: The key of the data set: cifar10, cifar100 or imagenet.
        model: The paper's network.
        method: The method with its options.
        members: How many members are scored, the first; None for all. Attacks are those made for
            each member, scored or not.
        over: Options that the row takes several values of, for numbers over several cells.
        paper: The paper's numbers by column, corrected; accuracies in per cent.
        dense_flops: What the paper prints in place of a multiple: the FLOPs of one dense training.
        starred: Whether the paper took the numbers from another publication.
        corrections: Which of the numbers are misprints.
        underivable: By column, why our own count can't equal the paper's.
        settings: Of the training, as `Config` calls them, where the row has its own.
        cell: What its cell is called, if not by what it is.
        of: The cell whose first trainings are the members, where nothing is trained for this row.
        seeds: How often its cells are trained at most; None for as often as the experiment says.
    """

    label: str
    dataset: str
    model: str
    method: Method
    members: int | None = None
    over: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)
    dense_flops: float | None = None
    starred: bool = False
    corrections: tuple[Correction, ...] = ()
    underivable: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    cell: str = ""
    of: Cell | None = None
    seeds: int | None = None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """What has to be trained for this row: one cell, or one for each value of `over`."""
        choices = itertools.product(*self.over.values())
        return tuple(
            Cell(
                self.dataset,
                self.model,
                replace(self.method, **dict(zip(self.over, chosen, strict=True))),
                tuple(self.settings.items()),
                self.cell,
                self.of,
            )
            for chosen in choices
        )


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes:
        name: What `freetickets reproduce` calls it.
        title: What it is about.
        paper: Where it stands: "Table 1".
        latex: Its label in the paper's source.
        rows: What it compares, in the paper's order.
        columns: The numbers that it shows.
        needs: What has to be measured of its cells.
        figures: The parts of a report that show it, keys of `PARTS`.
        claims: What the paper concludes from it, keys of `CLAIMS`.
        seeds: How often each cell is trained at a scale that can't pay for more.
        corrections: Headings of columns that are misprints.
        notes: Where the paper is silent or contradicts itself, and what was decided.
        provisional: Why it can't be trained yet; empty if it can.
    """

    name: str
    title: str
    paper: str
    latex: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    needs: Needs = Needs()
    figures: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    seeds: int = 1
    corrections: tuple[Correction, ...] = ()
    notes: tuple[str, ...] = ()
    provisional: str = ""


def cells(experiment: Experiment) -> tuple[Cell, ...]:
    """The different trainings of an experiment, in the order of its rows.

    Example:
        >>> from freetickets.experiments import load
        >>> len(cells(load("cifar10"))), len(load("growth").rows), len(cells(load("growth")))
        (12, 4, 4)
    """
    return tuple(dict.fromkeys(cell for row in experiment.rows for cell in row.cells))


def needed(experiments: Iterable[Experiment]) -> dict[Cell, Needs]:
    """The different trainings of several experiments, each with all that is measured of it.

    Example:
        >>> from freetickets.experiments import load
        >>> diversity, features = load("diversity"), load("feature-maps")
        >>> [needs.features for needs in needed([diversity, features]).values()].count(True)
        5
    """
    found: dict[Cell, Needs] = {}
    for experiment in experiments:
        for cell in cells(experiment):
            found[cell] = found.get(cell, Needs()) | experiment.needs
    return found


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
