"""What an ensemble is to predict: its test set and others, and the file that keeps what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import data
from ..data import DatasetSpec, LazySplit, Split
from ..data.shifted import digest, fingerprints
from ..data.spec import data_root
from ..ensemble import Ensemble
from ..errors import FreeTicketsError
from ..predictions import Predictions, read_info
from ..progress import WorkProgress

AnySplit = Split | LazySplit
_AT_ONCE = 1024  # samples between two steps of a progress bar


@dataclass(frozen=True)
class Request:
    """The sets that are to be predicted.

    Attributes:
        corruptions: Names of corruption types, or of sets of them: all19, common15, ub.
        ood: Names of OoD sets, or paths of images.
        attacks: "fgsm", "pgd".
        epsilon: How far an attack may move a pixel, in [0, 1].
        features: Whether the members' feature maps are compared.
        imagenet_a: The folder of ImageNet-A.
        everything: All of it, as far as nothing has to be downloaded.
        samples: How many samples of each set, the first; None for all.
        resize: Whether OoD images of another shape are converted.
        fresh: Whether to predict what was saved, too.
    """

    corruptions: tuple[str, ...] = ()
    ood: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()
    epsilon: float = 8 / 255
    features: bool = False
    imagenet_a: str | None = None
    everything: bool = False
    samples: int | None = None
    resize: bool = False
    fresh: bool = False

    @property
    def asks_for_more(self) -> bool:
        """Whether it asks for anything but the test set."""
        sets = (self.corruptions, self.ood, self.attacks, self.imagenet_a)
        return any(sets) or self.features or self.everything


@dataclass
class Predictor:
    """An ensemble that predicts sets, batch by batch, and shows how far it is."""

    ensemble: Ensemble
    batch_size: int = 256
    progress: WorkProgress = field(default_factory=lambda: WorkProgress(quiet=True))
    tickets: str | None = None  # their digest, if the ensemble lies in a folder

    @cached_property
    def _fast(self) -> Ensemble:
        return self.ensemble.compile().with_temperature(None)

    @property
    def info(self) -> dict[str, Any]:
        """What every file of predictions says of the ensemble."""
        keys = ("method", "model", "combine", "sparsity", "settings", "task", "task_options")
        return {key: self.ensemble.info.get(key) for key in keys} | {"tickets": self.tickets}

    def predict(self, parts: Iterable[AnySplit], info: dict[str, Any]) -> Predictions:
        """Predicts samples, part after part, as members do before any temperature."""
        # Whole batches, so that the batches are those of the split in one piece.
        step = self.batch_size * -(-_AT_ONCE // self.batch_size) if self.batch_size > 0 else 1
        outputs, labels = [], []
        for split in parts:
            labels.append(split.labels.numpy())
            for first in range(0, len(split), step):
                piece = first_samples(split, step, first)
                said = self._fast.member_predictions(piece, self.batch_size)
                outputs.append(said.astype(np.float32))
                self.progress.advance(len(piece))
        told, task = {**info, **self.info}, self.ensemble.task
        found = Predictions(np.concatenate(outputs, axis=1), np.concatenate(labels), told, task)
        return found.adjusted(range(len(self.ensemble)), self.ensemble.temperature)


@dataclass(frozen=True)
class EvaluationSet:
    """Samples that an ensemble is to predict."""

    file: str  # where the predictions are kept, below a run's folder `predictions`
    size: int  # how many predictions will be made, for the progress
    info: dict[str, Any]  # what the samples are: saved predictions that say the same will do
    make: Callable[[Predictor, dict[str, Any]], Predictions]

    @property
    def name(self) -> str:
        """What people read: the file without its ending."""
        return self.file.removesuffix(".npz")

    def is_saved(self, folder: Path, predictor: Predictor) -> bool:
        """Whether the run's folder holds these predictions, made by the same tickets."""
        if predictor.tickets is None:
            return False
        found = read_info(folder / "predictions" / self.file)
        wanted = {**self.info, **predictor.info}
        return found is not None and all(found.get(key) == wanted[key] for key in wanted)

    def predict(self, folder: Path, predictor: Predictor) -> None:
        """Predicts the samples and saves that."""
        self.make(predictor, self.info).save(folder / "predictions" / self.file)


def of_parts(
    file: str, size: int, info: dict[str, Any], parts: Callable[[], Iterable[AnySplit]]
) -> EvaluationSet:
    """A set that is predicted part after part; none is made before its turn."""
    return EvaluationSet(file, size, info, lambda predictor, told: predictor.predict(parts(), told))


def first_samples(split: AnySplit, count: int | None, first: int = 0) -> AnySplit:
    """The samples from the first on, in order, at most this many."""
    if count is not None and count < 1:
        raise FreeTicketsError(f"--samples {count}: choose at least 1")
    last = len(split) if count is None else min(len(split), first + count)
    if (first, last) == (0, len(split)):
        return split
    if isinstance(split, Split):
        return Split(split.inputs[first:last], split.labels[first:last])
    return split.subset(range(first, last))


def one_set(info: Mapping[str, Any]) -> tuple[Any, ...]:
    """What all corruption types that are averaged must have in common."""
    return tuple(info.get(key) for key in ("source", "samples", "seed", "images"))


@dataclass
class TestSet:
    """A data set that an ensemble knows; of its test samples the first `limit` are taken."""

    spec: DatasetSpec
    whole: AnySplit
    data_dir: str | None = None
    limit: int | None = None

    @classmethod
    def of(
        cls, ensemble: Ensemble, name: str, data_dir: str | None = None, limit: int | None = None
    ) -> TestSet:
        """Loads the test split of a data set, whose classes must be the ensemble's."""
        spec = data.get_spec(name, data_dir, ensemble.info.get("image_size"), ensemble.task)
        if tuple(spec.classes) != ensemble.classes:
            raise FreeTicketsError(
                f"{name} has other classes than the ensemble was trained on ({len(spec.classes)} "
                f"and {len(ensemble.classes)}): evaluate it on its own data set"
            )
        whole = data.load(spec, "test", data_dir)
        return cls(spec, whole, data_dir, None if limit and limit >= len(whole) else limit)

    @cached_property
    def split(self) -> AnySplit:
        """The samples that are evaluated."""
        return first_samples(self.whole, self.limit)

    @property
    def root(self) -> Path:
        """The folder of all data sets."""
        return data_root(self.data_dir)

    @property
    def stem(self) -> str:
        """What files of predictions are called."""
        return Path(self.spec.name).stem

    @cached_property
    def digest(self) -> str | None:
        """A digest of all test samples, since a file may change; None for photos on disk."""
        return digest(self.whole.inputs) if isinstance(self.whole, Split) else None

    @property
    def is_images(self) -> bool:
        """Whether its samples are images, not features."""
        return not isinstance(self.whole, Split) or self.whole.inputs.dtype == torch.uint8

    @cached_property
    def known(self) -> set[bytes]:
        """Fingerprints of the samples that the ensemble was trained and tested on."""
        splits: list[AnySplit] = [self.whole]
        with suppress(FreeTicketsError):  # where only the test set is here, that is compared with
            splits.append(data.load(self.spec, "train", self.data_dir, download=False))
        return fingerprints(splits)

    def test_set(self) -> EvaluationSet:
        """The test samples themselves."""
        info = {"dataset": self.spec.name, "split": "test", "classes": list(self.spec.classes),
                "samples": self.limit, "images": self.digest}  # fmt: skip
        return of_parts(f"{self.stem}.npz", len(self.split), info, lambda: [self.split])
