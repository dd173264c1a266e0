"""What an ensemble is to predict: its test set, corrupted, found, unknown and attacked images."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import data, metrics
from ..data import DatasetSpec, LazySplit, Split, shifted
from ..data.corruptions import SEVERITIES, set_name
from ..data.spec import data_root
from ..ensemble import Ensemble
from ..errors import FreeTicketsError, UnknownNameError, check_known
from ..predictions import Predictions, read_info
from ..progress import WorkProgress
from .attacks import ATTACKS, attack_predictions

AnySplit = Split | LazySplit
Tell = Callable[[str], None]
_AT_ONCE = 1024  # samples between two steps of a progress bar
_SEED = 0
_BY_ALIAS = {alias: name for name, alias in shifted.ALIASES.items()}


@dataclass(frozen=True)
class Request:
    """The sets that are to be predicted."""

    corruptions: tuple[str, ...] = ()  # types, or names of sets of them: all19, common15, ub
    ood: tuple[str, ...] = ()  # names of OoD sets, or paths of images
    attacks: tuple[str, ...] = ()  # "fgsm", "pgd"
    epsilon: float = 8 / 255  # how far an attack may move a pixel, in [0, 1]
    features: bool = False  # whether the members' feature maps are compared
    imagenet_a: str | None = None  # the folder of ImageNet-A
    everything: bool = False  # all of it, as far as nothing has to be downloaded
    samples: int | None = None  # how many samples of each set, the first; None for all
    resize: bool = False  # whether OoD images of another shape are converted
    fresh: bool = False  # whether to predict what was saved, too

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
    def fast(self) -> Ensemble:
        """The ensemble as it predicts quickest, before any temperature."""
        return at_once(self.ensemble).with_temperature(None)

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
                said = self.fast.member_predictions(piece, self.batch_size)
                outputs.append(said.astype(np.float32))
                self.progress.advance(len(piece))
        told, task = {**info, **self.info}, self.ensemble.task
        found = Predictions(np.concatenate(outputs, axis=1), np.concatenate(labels), told, task)
        return found.adjusted(range(len(self.ensemble)), self.ensemble.temperature)


def at_once(ensemble: Ensemble) -> Ensemble:
    """The ensemble compiled, if it may be: equal bits then, whatever was predicted before."""
    return ensemble.compile() if ensemble.compiles else ensemble


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

    def is_saved(self, folder: Path, predictor: Predictor, but: str = "") -> bool:
        """Whether a run's folder holds what these tickets predict, whatever the fact `but` is."""
        found = read_info(folder / "predictions" / self.file)
        if found is None or predictor.tickets is None:
            return False
        wanted = {**self.info, **predictor.info}
        return all(found.get(key) == wanted[key] for key in wanted if key != but)

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
    ) -> "TestSet":
        """Loads the test split of a data set, whose classes must be the ensemble's."""
        spec = data.get_spec(name, data_dir, ensemble.info.get("image_size"), ensemble.task)
        if tuple(spec.classes) != ensemble.classes:
            raise FreeTicketsError(
                f"{name} has other classes than the ensemble ({len(spec.classes)} and "
                f"{len(ensemble.classes)}): evaluate it on its own data set"
            )
        whole = data.load(spec, "test", data_dir)
        return cls(spec, whole, data_dir, None if limit and limit >= len(whole) else limit)

    @cached_property
    def split(self) -> AnySplit:
        """The samples that are evaluated."""
        return first_samples(self.whole, self.limit)

    @property
    def stem(self) -> str:
        """What files of predictions are called."""
        return Path(self.spec.name).stem

    @cached_property
    def digest(self) -> str | None:
        """A digest of all test samples, since a file may change; None for photos on disk."""
        return shifted.digest(self.whole.inputs) if isinstance(self.whole, Split) else None

    @property
    def is_images(self) -> bool:
        """Whether its samples are images, not features."""
        return self.whole.dtype == torch.uint8

    @cached_property
    def known(self) -> set[bytes]:
        """Fingerprints of the samples that the ensemble was trained and tested on."""
        splits: list[AnySplit] = [self.whole]
        with suppress(FreeTicketsError):  # where only the test set is here, that is compared with
            splits.append(data.load(self.spec, "train", self.data_dir, download=False))
        return shifted.fingerprints(splits)

    def test_set(self) -> EvaluationSet:
        """The test samples themselves."""
        info = {"dataset": self.spec.name, "split": "test", "classes": list(self.spec.classes),
                "samples": self.limit, "images": self.digest}  # fmt: skip
        return of_parts(f"{self.stem}.npz", len(self.split), info, lambda: [self.split])


def corruption_types(names: Iterable[str], classes: int) -> list[str]:
    """The types that names of types and of sets of types stand for, each once."""
    types = metrics.CORRUPTION_SETS["all19"]
    found: list[str] = []
    for name in names:
        own = _BY_ALIAS.get(name, name)
        if own not in types and own not in metrics.CORRUPTION_SETS:
            raise UnknownNameError("corruption", name, [*metrics.CORRUPTION_SETS, *types])
        found += [own] if own in types else metrics.corruption_set(own, classes)
    return list(dict.fromkeys(found))


def corruption_sets(names: Sequence[str], test: TestSet) -> list[EvaluationSet]:
    """Five severities of the test images for each type: from the data root if they lie there."""
    types = corruption_types(names, len(test.spec.classes))
    folder = data_root(test.data_dir) / set_name(test.spec.name)
    if not test.is_images:
        raise FreeTicketsError(
            f"corruptions are for images, {test.spec.name} has features: leave them out"
        )
    if isinstance(test.whole, LazySplit):
        if not folder.is_dir():
            raise FreeTicketsError(
                f"{folder} is missing: photos are not corrupted here, put ImageNet-C there"
            )
        return [_photos(folder, name, test) for name in types]
    if not folder.is_dir():
        return [_generated(name, test) for name in types]
    arrays, sets = shifted.CorruptedArrays(folder, test.whole, len(test.split)), []
    for name in types:
        frost = shifted.frost_of(folder) if name == "frost" else None
        part = partial(arrays.split, arrays.open(name))
        more: dict[str, Any] = {"frost": frost} if frost else {}
        sets.append(_shifted(name, test, part, **more))
    return sets


def _shifted(
    name: str, test: TestSet, part: Callable[[int], AnySplit], size: int | None = None, **more: Any
) -> EvaluationSet:
    severities = [str(severity) for severity in SEVERITIES]
    info = {"kind": "shift", "dataset": test.spec.name, "split": "test", "corruption": name,
            "source": "folder", "samples": test.limit, "images": test.digest, "parts": severities,
            **more}  # fmt: skip
    size = len(SEVERITIES) * (len(test.split) if size is None else size)
    return of_parts(f"{test.stem}-c/{name}.npz", size, info, lambda: map(part, SEVERITIES))


def _generated(name: str, test: TestSet) -> EvaluationSet:
    from ..data import corruptions

    frost, more = None, dict[str, Any]()
    if name == "frost":
        frost = corruptions.find_frost(None, test.data_dir)
        more["frost"] = corruptions.frost_source(frost)
    if name in ("motion_blur", "snow"):
        more["revision"] = 2  # the first was up to a level too bright: it is predicted again

    def part(severity: int) -> Split:
        assert isinstance(test.split, Split)
        images = np.ascontiguousarray(test.split.inputs.numpy().transpose(0, 2, 3, 1))
        changed = corruptions.corrupt(images, name, severity, seed=_SEED, frost=frost)
        inputs = torch.from_numpy(np.ascontiguousarray(changed.transpose(0, 3, 1, 2)))
        return Split(inputs, test.split.labels)

    return _shifted(name, test, part, source="generated", seed=_SEED, **more)


def _photos(folder: Path, name: str, test: TestSet) -> EvaluationSet:
    spec = test.spec

    def part(severity: int) -> AnySplit:
        photos = shifted.corrupted_photos(folder, name, severity, spec.classes, spec.shape)
        return first_samples(photos, test.limit)

    sizes = {len(part(severity)) for severity in SEVERITIES}
    if len(sizes) > 1:
        raise FreeTicketsError(f"the severities of {folder / name} differ in the number of images")
    return _shifted(name, test, part, sizes.pop())


def refuse_mixture(folder: Path, wanted: Sequence[EvaluationSet], tickets: str | None) -> None:
    """Refuses corruption types that would be averaged with others that these tickets have saved."""
    corrupted = [each for each in wanted if each.info.get("kind") == "shift"]
    asked = {folder / "predictions" / each.file for each in corrupted}
    for path in sorted({other for each in asked for other in each.parent.glob("*.npz")} - asked):
        info = read_info(path)
        if info is None or tickets is None or info.get("tickets") != tickets:
            continue
        if one_set(info) != one_set(corrupted[0].info):
            raise FreeTicketsError(
                f"{path} was saved with other --samples or from another source: name or remove it"
            )


def natural_set(path: str, test: TestSet) -> EvaluationSet:
    """ImageNet-A: photos of some of the ensemble's classes that networks tend to get wrong."""
    spec = test.spec
    photos, classes = shifted.natural_photos(Path(path).expanduser(), spec.classes, spec.shape)
    samples = first_samples(photos, test.limit)
    info = {"kind": "natural", "dataset": "imagenet-a", "classes_200": classes,
            "samples": test.limit}  # fmt: skip
    return of_parts("imagenet-a.npz", len(samples), info, lambda: [samples])


def ood_sets(request: Request, test: TestSet) -> list[EvaluationSet]:
    """A set for each OoD set that is asked for."""
    found: dict[str, EvaluationSet] = {}
    for name in dict.fromkeys(request.ood):
        made = _ood_set(name, request, test, download=True)
        if made.file in found:
            raise FreeTicketsError(
                f"two OoD sets would be called {made.name}: rename {name}, or give it alone"
            )
        found[made.file] = made
    return list(found.values())


def every_ood_set(request: Request, test: TestSet, tell: Tell) -> list[EvaluationSet]:
    """The OoD sets that can be had without a download; says which are left out."""
    found, absent = [], []
    for name in shifted.OOD_NAMES:
        if name in request.ood or name == test.spec.name:
            continue
        try:
            found.append(_ood_set(name, request, test, download=False))
        except FreeTicketsError:
            absent.append(name)
    if absent:
        tell(
            "OoD sets that are left out, as they are not on disk, of another shape or known to the "
            f"ensemble (--ood NAME says more): {', '.join(absent)}"
        )
    return found


def _ood_set(name: str, request: Request, test: TestSet, download: bool) -> EvaluationSet:
    if name == test.spec.name:
        raise FreeTicketsError(f"{name} is what the ensemble was trained on: leave it out")
    named = shifted.is_name(name)
    how: dict[str, Any] = {"samples": request.samples, "resize": request.resize}
    shape = tuple(test.spec.shape)
    split = shifted.load_ood(name, test.split, shape, test.data_dir, download=download, **how)
    shifted.refuse_known(name, split.inputs, test.known)
    path = Path(name).expanduser().resolve()
    called = name if named else path.name if path.is_dir() else path.stem
    info = {"kind": "ood", "dataset": called, **how, "content": shifted.digest(split.inputs)}
    if not named:
        info["path"] = str(path)
    return of_parts(f"ood/{called}.npz", len(split), info, lambda: [split])


def attack_sets(
    names: Sequence[str], epsilon: float, test: TestSet, members: int
) -> list[EvaluationSet]:
    """A set for each attack: the test images, changed to mislead each member in turn."""
    for name in names:
        check_known("attack", name, ATTACKS)
    if names and not test.is_images:
        raise FreeTicketsError(
            f"attacks change pixels, {test.spec.name} has features: leave them out"
        )
    if not 0 < epsilon <= 1:
        raise FreeTicketsError(f"--epsilon {epsilon:g}: choose a value above 0 and up to 1 (8/255)")

    make, size = partial(attack_predictions, split=test.split), members * len(test.split)
    info = {"kind": "attack", "dataset": test.spec.name, "attack": "", "epsilon": epsilon,
            "samples": test.limit, "images": test.digest}  # fmt: skip
    return [
        EvaluationSet(f"attacks/{name}.npz", size, {**info, "attack": name}, make)
        for name in dict.fromkeys(names)
    ]
