"""The settings of a run: defaults, a YAML file, flags on top. Plain data: no torch here."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import yaml

from . import __version__, reading
from .data.spec import DatasetSpec
from .errors import FreeTicketsError, NewerFileError, UnknownNameError, check_known
from .methods import Method, Recipe, Setting, get_method, get_recipe
from .reading import Allow, Count, Natural, NotNegative, Positive, must, read_fields
from .seal import BrokenSealError, open_text
from .tasks import Task, make_task

# What may change between the start of a run and its resumption: where and how, not what.
_FREE = ("data_dir", "device", "workers", "output", "checkpoint_seconds", "trajectory")

_OF_THE_RECIPE = ["batch_size", "lr", "momentum", "weight_decay", "label_smoothing", "validation"]

BACKENDS = ("auto", "sparse", "masked")

_LARGEST = 1 << 20  # bytes of a file of settings

Share = Annotated[float, must("be a share below 1", lambda share: 0 <= share < 1)]


@dataclass(frozen=True)
class Config:
    """Everything that a run depends on; None stands for the recipe's or the data set's own value.

    Attributes:
        method: A name from `freetickets methods`.
        options: The method's own options.
        dataset: A name from `freetickets datasets`, a folder with one subfolder of images for each
            class, or an .npz file.
        data_dir: Folder to look for data sets in, and to download them to.
        image_size: Height and width that images of ImageNet or of a folder are resized to.
        model: A name from `freetickets models`, or "module:function" for a factory of your own.
        model_options: The model's own options, such as dropout.
        task: What networks learn: classification, or "module:Class" for a task of your own.
        task_options: The task's own options, such as class_weights.
        combine: How members are combined: by the mean of their probabilities or of their logits;
            a task of your own may have other rules (default: the method's).
        recipe: Where the other defaults come from: cifar, imagenet, small, or fast (small images in
            a few epochs, with cyclic learning rates).
        epochs: Length of the whole training; all its phases are scaled to fit.
        dense_epochs: Length of the dense training that costs are compared with.
        batch_size: Samples per step.
        optimizer: The name of an optimizer of torch.optim, such as sgd, adamw or nadam.
        lr: Initial learning rate.
        momentum: Momentum for SGD and RMSprop.
        nesterov: Use Nesterov momentum with SGD.
        lr_factors: Train some parameters at a multiple of the learning rate, such as norm-bias=64.
            Names are norm-bias, norm-weight, or patterns that match parameter names.
        weight_decay: Weight decay for all parameters (except norms, in the imagenet recipe).
        label_smoothing: Label smoothing for the cross-entropy loss.
        augmentation: none, pad-crop-flip, reflect-crop-flip, translate (by up to a sixteenth of the
            side), translate-alternate (also mirrored in every second epoch) or imagenet.
        validation: Share of the training data to hold out for validation.
        validation_data: Your own validation data, so that none is held out: a folder with one
            subfolder of images for each class, or an .npz file with x and y.
        train_samples: Train on only this many of the samples that are not held out, with the same
            share of each class.
        preset: robust (stop exploring shortly before a ticket is collected) or paper (explore to
            the last step, collect the best state on validation data).
        seed: Seed of the first run; each further run adds 1.
        amp: Use mixed precision; the sparse kernels stay in single precision.
        sync_batchnorm: Share BatchNorm statistics among the processes of a data-parallel run
            (accelerators only).
        device: cpu, cuda or any other PyTorch device; auto is cuda if there is one.
        backend: masked (dense kernels), sparse (layers that hold only active weights and skip
            zeros where that is faster, CPU only), or auto (sparse where possible).
        workers: Number of processes that decode image files.
        output: Folder for the run.
        checkpoint_seconds: Seconds between two checkpoints.
        trajectory: Number of epochs between stored predictions for some test samples, from which
            the report draws the course of the training (0 for never); the training itself does not
            change.
    """

    method: str = "edst"
    options: dict[str, Any] = field(default_factory=dict)
    dataset: str = "fashion-mini"
    data_dir: str | None = None
    image_size: Count | None = None
    model: str = "cnn"
    model_options: dict[str, Any] = field(default_factory=dict)
    task: str = "classification"
    task_options: dict[str, Any] = field(default_factory=dict)
    combine: str | None = None
    recipe: str | None = None
    epochs: Positive | None = None
    dense_epochs: Positive | None = None
    batch_size: Count | None = None
    optimizer: str = "sgd"
    lr: Positive | None = None
    momentum: Share | None = None
    nesterov: bool | None = None
    lr_factors: dict[str, Positive] | None = None
    weight_decay: NotNegative | None = None
    label_smoothing: Share | None = None
    augmentation: str | None = None
    validation: Share | None = None
    validation_data: str | None = None
    train_samples: Count | None = None
    preset: str = "robust"
    seed: Natural = 0
    amp: bool = False
    sync_batchnorm: bool = False
    device: str = "auto"
    backend: str = "auto"
    workers: Natural = 0
    output: str | None = None
    checkpoint_seconds: NotNegative = 60.0
    trajectory: Natural = 0

    def __post_init__(self) -> None:
        for name, value in read_fields(Config, vars(self), allow=Allow.TEXTS).items():
            object.__setattr__(self, name, value)

    def resolved(self, spec: DatasetSpec, method: Method | None = None) -> "Config":
        """The same run with every None of the recipe and the data set filled in."""
        recipe = get_recipe(self.recipe or spec.recipe)
        defaults = {name: getattr(recipe, name) for name in _OF_THE_RECIPE}
        # Not what is off: these came later, and the runs of before stay the same.
        defaults |= {"nesterov": recipe.nesterov or None}
        defaults |= {"lr_factors": dict(recipe.lr_factors or {}) or None}
        own = spec.augmentation
        defaults["augmentation"] = recipe.augmentations.get(own, own) if spec.mean else own
        if self.validation_data is not None:
            if self.validation:
                nothing = "with validation data of your own nothing is held out"
                raise FreeTicketsError(f"{nothing}: leave out either validation_data or validation")
            defaults["validation"] = 0.0
        filled = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        options = asdict(method or self.make_method())
        for name, value in options.items():
            if not _is_plain(value):
                raise FreeTicketsError(
                    f"the option {name} of {self.method} must be a number, a text or several of "
                    f"them, which a file can hold, not {value!r}"
                )
        config = replace(self, recipe=recipe.name, options=options, **filled)
        config.check()
        return config

    def check(self) -> None:
        """Raises if settings do not go together, or a name is unknown."""
        if self.nesterov and not self.momentum and self.optimizer == "sgd":
            raise FreeTicketsError("nesterov needs momentum: give --momentum 0.9 or --no-nesterov")
        check_known("backend", self.backend, BACKENDS)
        if self.preset == "paper" and self.validation == 0 and self.validation_data is None:
            raise FreeTicketsError(
                "the paper preset collects the best ticket on validation data: hold some out with "
                "--validation 0.1, or give --validation-data"
            )

    def make_method(self) -> Method:
        """Returns the method with its options."""
        kind, noun = get_method(self.method), f"option of {self.method}"
        return kind(**read_fields(kind, self.options, allow=Allow.TEXTS, noun=noun))

    def make_task(self) -> Task:
        """Returns the task with its options; where it is the user's own, this imports its code."""
        return make_task(self.task, self.task_options)

    def make_recipe(self) -> Recipe:
        """Returns the recipe that this (resolved) run follows."""
        return get_recipe(self.recipe or "cifar")

    def setting(self) -> Setting:
        """Returns what the method's plan depends on."""
        return Setting(self.make_recipe(), self.epochs, self.lr, self.preset, self.seed)

    def as_yaml(self) -> str:
        """The settings as a file that `--config` reads."""
        return str(yaml.safe_dump(self._plain(), sort_keys=False))

    @property
    def identity(self) -> str:
        """A digest of all that changes what is trained; every file of the run bears it."""
        mine, default = self._fixed(), Config()._fixed()  # so new settings change nothing
        told = {name: value for name, value in mine.items() if value != default.get(name)}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, other: "Config") -> list[str]:
        """What another run would do otherwise than this one, as "name: mine -> other's"."""
        mine, theirs = self._fixed(), other._fixed()
        return [
            f"{name}: {mine.get(name)} -> {theirs.get(name)}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        ]

    def _plain(self) -> Any:
        return json.loads(json.dumps(asdict(self)))  # which makes lists of tuples

    def _fixed(self) -> dict[str, Any]:
        """What must not change, with options of the method and the model beside the others."""
        outer = self._plain()
        flat = {**outer.pop("options"), **outer.pop("model_options"), **outer}
        return {name: value for name, value in flat.items() if name not in _FREE}

    def check_same(self, folder: Path) -> None:
        """Raises if the folder holds a run that was begun with other settings."""
        file = folder / "config.yaml"
        if not file.exists() or not any((folder / "checkpoint").glob("*.safetensors")):
            return  # nothing to resume: a mistake that was noticed at once may be mended
        if changed := read_run_config(folder).differences(self):
            raise FreeTicketsError(
                f"{folder} holds a run with other settings ({'; '.join(changed)}): use the same "
                "settings to resume it, or another --output"
            )


def read_run_config(folder: Path) -> Config:
    """Reads the settings that a run saved in its folder, and checks that nobody changed them."""
    path = folder / "config.yaml"
    try:
        return Config(**read_config(path, open_text))
    except BrokenSealError as error:
        raise FreeTicketsError(
            f"{path} was changed since the run began: undo that, or give a copy of it as --config "
            "with another --output"
        ) from error
    except UnknownNameError as error:
        raise NewerFileError(
            f"{error}; FreeTickets {__version__} can't read this run: install the version that "
            "wrote it (its ledger.json says which), or a later one"
        ) from error


def read_config(path: str | Path, opened: Callable[[str], str] = str) -> dict[str, Any]:
    """Reads a YAML file of settings, perhaps under a seal; unknown names are refused."""
    try:
        text = opened(reading.read_file(Path(path), _LARGEST).decode())
    except UnicodeDecodeError as error:
        raise FreeTicketsError(f"can't read {path}: {error}") from error
    values = reading.parse_yaml(text, path)
    if not isinstance(values, Mapping):
        raise FreeTicketsError(f"{path} must hold settings such as 'method: edst', one per line")
    try:
        return read_fields(Config, values, allow=Allow.TEXTS, noun=f"setting in {path}:")
    except UnknownNameError:
        raise
    except FreeTicketsError as error:
        raise FreeTicketsError(f"{path}: {error}") from error


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
