"""The settings of a run: defaults, a YAML file, flags on top. Plain data: no torch here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from .data.spec import DatasetSpec
from .errors import FreeTicketsError, UnknownNameError
from .methods import Method, Recipe, Setting, get_method, get_recipe
from .seal import BrokenSealError, open_text

# What may change between the start of a run and its resumption: where and how, not what.
_FREE = ("data_dir", "device", "workers", "output", "checkpoint_seconds", "trajectory")

_OF_THE_RECIPE = (
    "batch_size", "lr", "momentum", "weight_decay", "label_smoothing", "validation",
)  # fmt: skip

BACKENDS = ("auto", "sparse", "masked")

OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop")

_LARGEST = 1 << 20  # bytes of a file of settings
_DEEPEST = 20  # maps and lists within one another


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
        recipe: cifar, imagenet, small, or fast: small images in a few epochs, with learning rates
            that run in cycles.
        epochs: The length of the method's run.
        dense_epochs: The dense training that costs are compared with.
        batch_size: Samples a step.
        optimizer: sgd, adam, adamw or rmsprop.
        lr: The initial learning rate.
        momentum: Of SGD and RMSprop.
        nesterov: Nesterov's momentum for SGD.
        lr_factors: Parameters that learn at a multiple of the learning rate, as norm-bias=64. Names
            are norm-bias, norm-weight, or patterns of parameters' names.
        weight_decay: Of all parameters (but norms, in the imagenet recipe).
        label_smoothing: Of the cross-entropy.
        augmentation: none, pad-crop-flip, reflect-crop-flip, translate (by a sixteenth of a side),
            translate-alternate (mirrored in every second epoch too) or imagenet.
        validation: The share of the training data held out.
        train_samples: How many of the others to train on, the same share of each class; all if not
            given.
        preset: robust or paper.
        seed: The first run's; further runs count up.
        amp: Mixed precision; the sparse kernels stay in single precision.
        sync_batchnorm: BatchNorm over all processes of a data-parallel run; accelerators only.
        device: cpu, cuda or another of PyTorch's, or auto: cuda if there is one.
        backend: Kernels that skip the zeros (sparse: CPU only), dense ones (masked), or the faster
            of both (auto).
        workers: Processes that decode image files.
        output: The run's folder.
        checkpoint_seconds: Time between two checkpoints.
        trajectory: Epochs between two predictions of some test samples, stored to draw the course
            of the training, which they don't change; 0 for none.
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
    nesterov: bool | None = None
    lr_factors: dict[str, float] | None = None
    weight_decay: float | None = None
    label_smoothing: float | None = None
    augmentation: str | None = None
    validation: float | None = None
    train_samples: int | None = None
    preset: str = "robust"
    seed: int = 0
    amp: bool = False
    sync_batchnorm: bool = False
    device: str = "auto"
    backend: str = "auto"
    workers: int = 0
    output: str | None = None
    checkpoint_seconds: float = 60.0
    trajectory: int = 0

    def __post_init__(self) -> None:
        for name, value in _typed(Config, vars(self)).items():
            object.__setattr__(self, name, value)

    def resolved(self, spec: DatasetSpec) -> Config:
        """Returns the same run with every None of the recipe and the data set filled in."""
        recipe = get_recipe(self.recipe or spec.recipe)
        filled = {
            name: getattr(recipe, name) for name in _OF_THE_RECIPE if getattr(self, name) is None
        }
        # Not what is off: these came later, and the runs of before stay the same.
        if self.nesterov is None and recipe.nesterov:
            filled["nesterov"] = True
        if self.lr_factors is None and recipe.lr_factors:
            filled["lr_factors"] = dict(recipe.lr_factors)
        if self.augmentation is None:
            own, are_images = spec.augmentation, bool(spec.mean)
            filled["augmentation"] = recipe.augmentations.get(own, own) if are_images else own
        options = asdict(self.make_method())
        config = replace(self, recipe=recipe.name, options=options, **filled)
        config.check()
        return config

    def check(self) -> None:
        """Raises if a number can't be meant."""
        for name in ("batch_size", "train_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FreeTicketsError(f"{name} must be at least 1, not {value}")
        for name in ("seed", "trajectory"):
            if getattr(self, name) < 0:
                raise FreeTicketsError(f"{name} must be at least 0, not {getattr(self, name)}")
        for name in ("epochs", "dense_epochs", "lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise FreeTicketsError(f"{name} must be positive, not {value}")
        for name in ("momentum", "label_smoothing", "validation"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise FreeTicketsError(f"{name} must be a share below 1, not {value}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise FreeTicketsError(f"weight_decay must not be negative: {self.weight_decay}")
        if self.nesterov and not self.momentum and self.optimizer == "sgd":
            raise FreeTicketsError("nesterov needs momentum: give --momentum 0.9 or --no-nesterov")
        for name, factor in (self.lr_factors or {}).items():
            if not 0 < factor < math.inf:
                raise FreeTicketsError(f"lr_factors: {name} must be positive, not {factor}")
        if self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, OPTIMIZERS)
        if self.backend not in BACKENDS:
            raise UnknownNameError("backend", self.backend, BACKENDS)
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
        return kind(**_typed(kind, self.options))

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

    @property
    def identity(self) -> str:
        """A digest of all that changes what is trained; every file of the run bears it."""
        default = _flat(asdict(Config()))
        told = {
            name: value
            for name, value in _flat(_plain(asdict(self))).items()
            if name not in _FREE and value != default.get(name)  # so new settings change nothing
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: Config) -> list[str]:
        """What another run would do otherwise than this one, as "name: mine -> other's"."""
        mine, theirs = _flat(asdict(self)), _flat(asdict(other))
        return [
            f"{name}: {_plain(mine.get(name))} -> {_plain(theirs.get(name))}"
            for name in {**mine, **theirs}
            if name not in _FREE and _plain(mine.get(name)) != _plain(theirs.get(name))
        ]

    def check_same(self, folder: Path) -> None:
        """Raises if the folder holds a run that was begun with other settings."""
        file = folder / "config.yaml"
        if not file.exists() or not any((folder / "checkpoint").glob("*.safetensors")):
            return  # nothing to resume: a mistake that was noticed at once may be mended
        changed = read_run_config(folder).differences(self)
        if changed:
            raise FreeTicketsError(
                f"{folder} holds a run with other settings ({'; '.join(changed)}): use the same "
                "settings to resume it, or another --output"
            )


class _Loader(yaml.SafeLoader):
    """Plain values only; no aliases, by which a small file says more than memory holds."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*) have no place in settings")
        if self._depth > _DEEPEST:
            raise yaml.YAMLError("it is nested too deeply")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of the method and the model beside the others."""
    inner = {**settings["options"], **settings["model_options"]}
    outer = {key: settings[key] for key in settings if key not in ("options", "model_options")}
    return {**inner, **outer}


def read_config(path: str | Path) -> dict[str, Any]:
    """Reads a YAML file of settings; unknown names are refused.

    Raises:
        FreeTicketsError: The file can't be read, or is not a map of known settings, each of its
            own type.
    """
    return _parse(_read(path), path)


def read_run_config(folder: Path) -> Config:
    """Reads the settings that a run saved in its folder, and checks that nobody changed them.

    Raises:
        FreeTicketsError: They are damaged, or were edited since.
    """
    path = folder / "config.yaml"
    try:
        return Config(**_parse(open_text(_read(path)), path))
    except BrokenSealError as error:
        raise FreeTicketsError(
            f"{path} was changed since the run began: undo that, or give a copy of it as --config "
            "with another --output"
        ) from error


def _read(path: str | Path) -> str:
    try:
        size = Path(path).stat().st_size
        if size > _LARGEST:
            raise FreeTicketsError(f"{path} has {size:,} bytes: it can't be a file of settings")
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FreeTicketsError(f"can't read {path}: {error}") from error


def _parse(text: str, path: str | Path) -> dict[str, Any]:
    try:
        values = yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # a date or a number that is none; nesting
        raise FreeTicketsError(f"{path} is not valid YAML: {_one_line(error)}") from error
    except yaml.YAMLError as error:
        raise FreeTicketsError(f"{path} is not valid YAML: {_one_line(error)}") from error
    if not isinstance(values, Mapping):
        raise FreeTicketsError(f"{path} must hold settings such as 'method: edst', one a line")
    known = {f.name for f in fields(Config)}
    for name in values:
        if name not in known:
            raise UnknownNameError(f"setting in {path}:", str(name), sorted(known))
    return _typed(Config, values)


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a map",
    tuple: "a list",
}


def _typed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values in the types of a data class's fields; YAML takes 1e-3 for text, say."""
    hints = typing.get_type_hints(kind)
    return {name: _convert(name, value, hints[name]) for name, value in values.items()}


def _convert(name: str, value: Any, hint: Any) -> Any:
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in choices:
        return None
    wanted = typing.get_origin(choices[0]) or choices[0]
    if wanted is tuple and isinstance(value, list):
        return tuple(value)
    if wanted is dict and isinstance(value, dict):
        kind = typing.get_args(choices[0])[1]
        if kind is Any:
            return value
        return {str(key): _convert(f"{name}: {key}", each, kind) for key, each in value.items()}
    if wanted in (int, float):
        with contextlib.suppress(ValueError):
            return wanted(str(value))
    elif isinstance(value, wanted):
        return value
    raise FreeTicketsError(f"{name} must be {_KINDS[wanted]}, not {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
