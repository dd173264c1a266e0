"""Scales: which data, network and length stand for the paper's. No torch here.

A scale keeps the paper's proportions: a cell's plan is that of the paper's recipe, shortened as a
whole, so the shares of exploration and refinement and the points of decay stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..config import Config
from ..methods import Setting, get_recipe
from .experiment import Cell, Experiment

# The seeds of a cell's trainings count up from the first: the next cell's must not meet them.
_SEEDS_APART = 1000


@dataclass(frozen=True)
class DataPart:
    """Images that a cell is trained and tested on: a data set, or a part of it.

    Attributes:
        source: The name of the data set.
        train: How many training images, the first; None for all.
        test: How many test images.
        pool: The side of the squares of pixels that are averaged into one.
        per_class: How many training images of each class, the first; None for all.
        digest: Of the numbers of these images, so that nobody takes others for them.
        held_out: How many training images of each class, the last, take the test images' place, so
            that choices can be made without these; None for the test images.

    Example:
        >>> DataPart("cifar10", train=2000, pool=2).text
        'cifar10: the first 2,000 training images, pooled 2x2'
        >>> DataPart("cifar10", per_class=500).text
        'cifar10: the first 500 training images of each class'
    """

    source: str
    train: int | None = None
    test: int | None = None
    pool: int = 1
    per_class: int | None = None
    digest: str | None = None
    held_out: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the data set as it is."""
        return self == DataPart(self.source)

    @property
    def file(self) -> str:
        """The stem of the file that holds the part."""
        words = [self.source, self.train or "all", self.test or "all", f"pool{self.pool}"]
        words += [f"first{self.per_class}"] if self.per_class else []
        words += [f"held{self.held_out}"] if self.held_out else []
        return "-".join(map(str, words))

    @property
    def text(self) -> str:
        """The data in a few words."""
        parts = [f"the first {self.train:,} training images"] if self.train else []
        parts += (
            [f"the first {self.per_class:,} training images of each class"]
            if self.per_class
            else []
        )
        parts += [f"the last {self.held_out:,} as test images"] if self.held_out else []
        parts += [f"the first {self.test:,} test images"] if self.test else []
        parts += [f"pooled {self.pool}x{self.pool}"] if self.pool > 1 else []
        return f"{self.source}: {', '.join(parts)}" if parts else self.source


@dataclass(frozen=True)
class Substitute:
    """What stands for one of the paper's data sets, and how it is trained.

    Attributes:
        data: The images.
        recipe: Whose proportions the training has.
        model: The network; None for the paper's.
        dense_epochs: The length of one dense training; None for the recipe's.
        batch_size: Samples a step; None for the recipe's.
        lr: The initial learning rate; None for the recipe's.
        interval: Steps between two explorations (ΔT); None for the recipe's.
        augmentation: Of the training images; None for the data's own.
        samples: How many images of each further set are predicted; None for all.
        unknown: How many images of each OoD set are predicted; None for as many as of others.
        real: Whether no other images stand for OoD sets that are missing.
        settings: Further ones of the training, as `Config` calls them.
        natural: Whether images that are turned stand for natural shift (ImageNet-A).
        trajectory: Epochs between two points of a trajectory.
        fallback: What stands in where the data is missing.
    """

    data: DataPart
    recipe: str
    model: str | None = None
    dense_epochs: float | None = None
    batch_size: int | None = None
    lr: float | None = None
    interval: int | None = None
    augmentation: str | None = None
    samples: int | None = None
    unknown: int | None = None
    real: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    natural: bool = False
    trajectory: int = 1
    fallback: Substitute | None = None

    def epochs(self, cell: Cell) -> float | None:
        """The length of a cell's longest training, in the paper's proportions.

        Example:
            >>> from freetickets.methods import EDST
            >>> substitute = Substitute(DataPart("fashion-mini"), "cifar", dense_epochs=25)
            >>> substitute.epochs(Cell("cifar10", "wrn-28-10", EDST(tickets=3)))
            45.0
        """
        if self.dense_epochs is None:
            return None
        recipe = get_recipe(self.recipe)
        whole = cell.method.plan(Setting(recipe)).runs[0].epochs
        return whole * self.dense_epochs / recipe.dense_epochs

    def options(self, cell: Cell) -> dict[str, Any]:
        """The cell's options, with this substitute's interval where the method has one."""
        options = cell.options
        if self.interval is not None and options.get("interval", 0) is None:
            options["interval"] = self.interval
        return options


@dataclass(frozen=True)
class Scale:
    """One size of all experiments.

    Attributes:
        name: What the command calls it.
        summary: What it is for.
        substitutes: What stands for each of the paper's data sets.
        most_seeds: How often a cell is trained at most.
    """

    name: str
    summary: str
    substitutes: Mapping[str, Substitute] = field(default_factory=dict)
    most_seeds: int = 3

    def seeds(self, experiment: Experiment) -> int:
        """How often the cells of an experiment are trained."""
        return min(experiment.seeds, self.most_seeds)

    def config(
        self,
        cell: Cell,
        seed: int,
        output: str | Path | None = None,
        *,
        dataset: str | Path | None = None,
        data_dir: str | None = None,
        trajectory: bool = False,
    ) -> Config:
        """The settings of one training of a cell.

        Args:
            cell: Which.
            seed: Counts the trainings of the cell, from 0.
            output: The run's folder.
            dataset: The file that holds the substitute's data; None for its source.
            data_dir: Where data sets lie.
            trajectory: Whether the course of the training is recorded.

        Example:
            >>> from freetickets.methods import EDST
            >>> paper = SCALES["paper"].config(Cell("cifar10", "wrn-28-10", EDST()), 0)
            >>> paper.model, paper.epochs, paper.recipe
            ('wrn-28-10', None, 'cifar')
        """
        substitute = self.substitutes[cell.dataset]
        settings: dict[str, Any] = {
            "recipe": substitute.recipe,
            "epochs": substitute.epochs(cell),
            "batch_size": substitute.batch_size,
            "lr": substitute.lr,
            "augmentation": substitute.augmentation,
            **substitute.settings,
            **dict(cell.settings),
        }
        if "epochs" in dict(cell.settings):  # no multiple of a dense training's any more
            settings.setdefault("dense_epochs", substitute.dense_epochs)
        return Config(
            method=cell.method.name,
            options=substitute.options(cell),
            dataset=str(dataset or substitute.data.source),
            data_dir=data_dir,
            model=substitute.model or cell.model,
            seed=seed * _SEEDS_APART,
            output=None if output is None else str(output),
            trajectory=substitute.trajectory if trajectory else 0,
            **settings,
        )


def _all_as(substitute: Substitute, **imagenet: Any) -> dict[str, Substitute]:
    """One substitute for all three data sets; ImageNet's has a recipe of its own."""
    return {
        "cifar10": substitute,
        "cifar100": substitute,
        "imagenet": replace(substitute, recipe="imagenet", **imagenet),
    }


# --- the numbers -------------------------------------------------------------------------------

_SMOKE = Substitute(
    DataPart("fashion-mini", train=200, test=40, pool=2),
    recipe="cifar",
    model="cnn-4",
    dense_epochs=2.5,  # 57 steps: half a cycle of FGE is 1/56 of it, and at least one
    batch_size=8,
    lr=0.05,
    interval=5,
)

_SMOKE_MLP = replace(_SMOKE, model="mlp-16-16")

_SMALL_FASHION = Substitute(
    DataPart("fashion-mini", train=2000),
    recipe="cifar",
    model="mlp-512-512",
    dense_epochs=40,
    batch_size=64,
    lr=0.05,
    interval=150,
    samples=500,
    trajectory=2,
)

# Few images for a network of 1,800,000 weights, so that a fifth of them can do as well, and small
# batches, for new weights need some hundred steps; the rate goes with the root of the batch. Looked
# for with 10,000 other training images in the test set's place until EDST beat the dense network:
# docs/reproduce.md has the search, what it can't show, and convolutional networks that decide less.
_SMALL_CIFAR10 = Substitute(
    DataPart("cifar10", train=4000, pool=2),
    recipe="cifar",
    model="mlp-1024-1024",
    dense_epochs=100,
    batch_size=64,
    lr=0.07,
    interval=100,
    augmentation="reflect-crop-flip",
    samples=500,
    trajectory=5,
    fallback=_SMALL_FASHION,
)

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "smoke",
            "seconds per cell, on embedded data: shows that everything runs, measures nothing",
            {**_all_as(_SMOKE_MLP, natural=True), "cifar10": _SMOKE},
            most_seeds=2,
        ),
        Scale(
            "small",
            "hours on 2 CPU cores: a part of CIFAR-10, embedded data for the others",
            {**_all_as(_SMALL_FASHION), "cifar10": _SMALL_CIFAR10},
        ),
        Scale(
            "paper",
            "the paper's own settings, for GPUs",
            {
                "cifar10": Substitute(DataPart("cifar10"), "cifar"),
                "cifar100": Substitute(DataPart("cifar100"), "cifar"),
                "imagenet": Substitute(DataPart("imagenet"), "imagenet"),
            },
        ),
    )
}

# Every field of a substitute that a result depends on, beside the settings of its training.
MEASURED_BY = tuple(
    each.name
    for each in fields(Substitute)
    if each.name in ("samples", "unknown", "natural", "trajectory")
)
