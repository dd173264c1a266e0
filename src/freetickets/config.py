"""The settings of a run: defaults, a YAML file, flags on top. Plain data: no torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from .data.spec import DatasetSpec
from .errors import FreeTicketsError, UnknownNameError
from .methods import Method, Recipe, Setting, get_method, get_recipe

# What may change between the start of a run and its resumption: where and how, not what.
_FREE = ("data_dir", "device", "workers", "output", "checkpoint_seconds")


@dataclass(frozen=True)
class Config:
    """All that a run depends on; None stands for the recipe's or the data set's own value.

    Attributes:
        method: A name of `freetickets methods`.
        options: The method's own options.
        dataset: A name of `freetickets datasets`, a folder of images by class, or an .npz file.
        data_dir: Where data sets lie or are downloaded to.
        image_size: Side of the images of a folder.
        model: A name of `freetickets models`, or "module:function" for a factory of your own.
        model_options: The model's own options, such as dropout.
        recipe: "cifar", "imagenet" or "small".
        epochs: The length of the method's run.
        dense_epochs: The dense training that costs are compared with.
        batch_size: Samples a step.
        optimizer: sgd, adam, adamw or rmsprop.
        lr: The initial learning rate.
        momentum: Of SGD and RMSprop.
        weight_decay: Of all parameters (but norms, in the imagenet recipe).
        label_smoothing: Of the cross-entropy.
        augmentation: none, pad-crop-flip, reflect-crop-flip or imagenet.
        validation: The share of the training data held out.
        preset: robust or paper.
        seed: The first run's; further runs count up.
        amp: Mixed precision.
        device: auto, cpu, cuda, mps.
        workers: Processes that decode image files.
        output: The run's folder.
        checkpoint_seconds: Time between two checkpoints.
    """

    method: str = "edst"
    options: dict[str, Any] = field(default_factory=dict)
    dataset: str = "fashion-mini"
    data_dir: str | None = None
    image_size: int | None = None
    model: str = "cnn"
    model_options: dict[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    epochs: float | None = None
    dense_epochs: float | None = None
    batch_size: int | None = None
    optimizer: str = "sgd"
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    label_smoothing: float | None = None
    augmentation: str | None = None
    validation: float | None = None
    preset: str = "robust"
    seed: int = 0
    amp: bool = False
    device: str = "auto"
    workers: int = 0
    output: str | None = None
    checkpoint_seconds: float = 60.0

    def resolved(self, spec: DatasetSpec) -> Config:
        """Returns the same run with every None of the recipe and the data set filled in."""
        recipe = get_recipe(self.recipe or spec.recipe)
        filled = {
            name: getattr(recipe, name)
            for name in ("batch_size", "lr", "momentum", "weight_decay", "label_smoothing")
            if getattr(self, name) is None
        }
        if self.validation is None:
            filled["validation"] = recipe.validation
        if self.augmentation is None:
            filled["augmentation"] = spec.augmentation
        options = asdict(self.make_method())
        config = replace(self, recipe=recipe.name, options=options, **filled)
        config.check()
        return config

    def check(self) -> None:
        """Raises if a number can't be meant."""
        if self.batch_size is not None and self.batch_size < 1:
            raise FreeTicketsError(f"batch_size must be at least 1, not {self.batch_size}")
        if self.lr is not None and not self.lr > 0:
            raise FreeTicketsError(f"lr must be positive, not {self.lr}")
        if self.validation is not None and not 0 <= self.validation < 1:
            raise FreeTicketsError(f"validation must be a share below 1, not {self.validation}")
        if self.preset == "paper" and self.validation == 0:
            raise FreeTicketsError(
                "the paper preset collects the best ticket on validation data: hold some out with "
                "--validation 0.1"
            )

    def make_method(self) -> Method:
        """Returns the method with its options."""
        kind = get_method(self.method)
        known = {f.name for f in fields(kind)}
        for name in self.options:
            if name not in known:
                raise UnknownNameError(f"option of {self.method}", name, sorted(known))
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in self.options.items()}
        return kind(**values)

    def make_recipe(self) -> Recipe:
        """Returns the recipe that this (resolved) run follows."""
        return get_recipe(self.recipe or "cifar")

    def setting(self) -> Setting:
        """Returns what the method's plan depends on."""
        return Setting(self.make_recipe(), self.epochs, self.lr, self.preset, self.seed)

    def as_yaml(self) -> str:
        """The settings as a file that `--config` reads."""
        plain = {k: _plain(v) for k, v in asdict(self).items()}
        text: str = yaml.safe_dump(plain, sort_keys=False)
        return text

    def differences(self, other: Config) -> list[str]:
        """What another run would do otherwise than this one, as "name: mine -> other's"."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name}: {_plain(mine[name])} -> {_plain(theirs[name])}"
            for name in mine
            if name not in _FREE and _plain(mine[name]) != _plain(theirs[name])
        ]


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads a YAML file of settings; unknown names are refused.

    Raises:
        FreeTicketsError: The file can't be read, or is not a map of known settings.
    """
    try:
        values = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise FreeTicketsError(f"can't read {path}: {error}") from error
    except yaml.YAMLError as error:
        reason = str(error).replace("\n", " ")
        raise FreeTicketsError(f"{path} is not valid YAML: {reason}") from error
    if not isinstance(values, Mapping):
        raise FreeTicketsError(f"{path} must hold settings such as 'method: edst', one a line")
    known = {f.name for f in fields(Config)}
    for name in values:
        if name not in known:
            raise UnknownNameError(f"setting in {path}:", str(name), sorted(known))
    return dict(values)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
