"""Scales: what stands for the paper's data and networks; plans are shortened as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import Config
from ..methods import Setting, get_recipe
from ..reading import read
from .experiment import Cell, Experiment, own_yaml

# The seeds of a cell's trainings count up from the first: the next cell's must not meet them.
_SEEDS_APART = 1000

_GIVEN = ("recipe", "batch_size", "lr", "augmentation")  # of a substitute, as `Config` calls them


@dataclass(frozen=True)
class DataPart:
    """Images that a cell is trained and tested on: a data set, or a part of it."""

    source: str  # the name of the data set
    train: int | None = None  # how many training images, the first
    test: int | None = None  # how many test images, the first
    pool: int = 1  # the side of the squares of pixels that are averaged into one
    per_class: int | None = None  # how many training images of each class, the first
    digest: str | None = None  # of the numbers of these, so that nobody takes others for them
    held_out: int | None = None  # of each class, the last, for choices made without the test images

    @property
    def is_whole(self) -> bool:
        """Whether it is the data set as it is."""
        return self == DataPart(self.source)

    @property
    def file(self) -> str:
        """The stem of the file that holds the part."""
        name = f"{self.source}-{self.train or 'all'}-{self.test or 'all'}-pool{self.pool}"
        name += f"-first{self.per_class}" if self.per_class else ""
        return name + (f"-held{self.held_out}" if self.held_out else "")

    @property
    def text(self) -> str:
        """The data in a few words."""
        told = (
            (self.train, "the first {:,} training images"),
            (self.per_class, "the first {:,} training images of each class"),
            (self.held_out, "the last {:,} as test images"),
            (self.test, "the first {:,} test images"),
            (self.pool > 1 and self.pool, "pooled {0}x{0}"),
        )
        parts = [words.format(count) for count, words in told if count]
        return f"{self.source}: {', '.join(parts)}" if parts else self.source


@dataclass(frozen=True)
class Substitute:
    """What stands for one of the paper's data sets; what is None is as the recipe has it."""

    data: DataPart
    recipe: str  # whose proportions the training has
    model: str | None = None  # None for the paper's
    dense_epochs: float | None = None  # of one dense training
    batch_size: int | None = None
    lr: float | None = None
    interval: int | None = None  # steps between two explorations (ΔT)
    augmentation: str | None = None  # None for the data's own
    samples: int | None = None  # how many images of each further set are predicted; None for all
    unknown: int | None = None  # how many of each OoD set; None for as many as of others
    real: bool = False  # whether no other images stand for OoD sets that are missing
    settings: Mapping[str, Any] = field(default_factory=dict)  # more, as `Config` calls them
    natural: bool = False  # whether images that are turned stand for natural shift (ImageNet-A)
    trajectory: int = 1  # epochs between two points of a trajectory
    fallback: Substitute | None = None  # what stands in where the data is missing

    def epochs(self, cell: Cell) -> float | None:
        """The length of a cell's longest training, in the paper's proportions."""
        recipe = get_recipe(self.recipe)
        if self.dense_epochs is None:
            return None
        whole = cell.method.plan(Setting(recipe)).runs[0].epochs
        return whole * self.dense_epochs / recipe.dense_epochs

    def options(self, cell: Cell) -> dict[str, Any]:
        """The cell's options, with this substitute's interval where the method has one."""
        more = {} if cell.options.get("interval", 0) is not None else {"interval": self.interval}
        return cell.options | more


@dataclass(frozen=True)
class Scale:
    """One size of all experiments."""

    name: str  # as the command calls it
    summary: str  # what it is for
    substitutes: Mapping[str, Substitute] = field(default_factory=dict)  # by the paper's data set
    most_seeds: int = 3

    def seeds(self, experiment: Experiment) -> int:
        """How often the cells of an experiment are trained."""
        return min(experiment.seeds, self.most_seeds)

    def config(self, cell: Cell, seed: int, trajectory: bool = False, **free: Any) -> Config:
        """The settings of one training of a cell; `free` are more, on which no result depends."""
        substitute, own = self.substitutes[cell.dataset], dict(cell.settings)
        settings: dict[str, Any] = {
            **{each: getattr(substitute, each) for each in _GIVEN},
            "epochs": substitute.epochs(cell), **substitute.settings, **own, **free,
        }  # fmt: skip
        if "epochs" in own:  # no multiple of a dense training's any more
            settings.setdefault("dense_epochs", substitute.dense_epochs)
        return Config(
            method=cell.method.name, options=substitute.options(cell),
            dataset=substitute.data.source, model=substitute.model or cell.model,
            seed=seed * _SEEDS_APART, trajectory=substitute.trajectory if trajectory else 0,
            **settings,
        )  # fmt: skip


_SCALES: tuple[Scale, ...] = read(tuple[Scale, ...], own_yaml("scales.yaml"))
SCALES = {scale.name: scale for scale in _SCALES}

# What of a substitute a result depends on, beside the settings of its training.
MEASURED_BY = ("samples", "unknown", "natural", "trajectory")
