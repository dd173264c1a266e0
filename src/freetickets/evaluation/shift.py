"""Sets that ensembles were not trained for: corrupted, found, unknown and attacked images."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import metrics
from ..data import LazySplit, Split
from ..data.corruptions import SEVERITIES, set_name
from ..data.shifted import (
    ALIASES,
    OOD_NAMES,
    CorruptedArrays,
    corrupted_photos,
    digest,
    frost_of,
    is_name,
    load_ood,
    natural_photos,
    refuse_known,
)
from ..errors import FreeTicketsError, UnknownNameError
from ..predictions import Predictions, read_info
from .attacks import ATTACKS, attack_predictions
from .sets import (
    AnySplit,
    EvaluationSet,
    Predictor,
    Request,
    TestSet,
    first_samples,
    of_parts,
    one_set,
)

_SEED = 0
_BY_ALIAS = {alias: name for name, alias in ALIASES.items()}


def corruption_types(names: Iterable[str], classes: int) -> list[str]:
    """The types that names of types and of sets of types stand for, each once.

    Example:
        >>> corruption_types(["fog", "elastic", "fog"], 10)
        ['fog', 'elastic_transform']
        >>> len(corruption_types(["common15", "fog", "saturate"], 10))
        16
    """
    types = metrics.CORRUPTION_SETS["all19"]
    found: list[str] = []
    for name in names:
        own = _BY_ALIAS.get(name, name)
        if own not in types and own not in metrics.CORRUPTION_SETS:
            raise UnknownNameError("corruption", name, [*metrics.CORRUPTION_SETS, *types])
        found += [own] if own in types else metrics.corruption_set(own, classes)
    return list(dict.fromkeys(found))


def corruption_sets(names: Sequence[str], test: TestSet) -> list[EvaluationSet]:
    """One set for each corruption type: five severities of the test images.

    They are read from the data root if a folder in Hendrycks' layout is there, else made.
    """
    types = corruption_types(names, len(test.spec.classes))
    folder = test.root / set_name(test.spec.name)
    if not test.is_images:
        raise FreeTicketsError(
            f"corruptions are for images, and {test.spec.name} has features: leave them out"
        )
    if isinstance(test.whole, LazySplit):
        if not folder.is_dir():
            raise FreeTicketsError(
                f"{folder} is missing: photos are not corrupted here, put ImageNet-C there "
                "(<type>/<severity>/<wnid>/*)"
            )
        return [_photos(folder, name, test) for name in types]
    if folder.is_dir():
        arrays = CorruptedArrays(folder, test.whole, len(test.split))
        return [_from_folder(arrays, name, test) for name in types]
    return [_generated(name, test) for name in types]


def _set(
    name: str, test: TestSet, part: Callable[[int], AnySplit], size: int | None = None, **more: Any
) -> EvaluationSet:
    severities = [str(severity) for severity in SEVERITIES]
    info = {"kind": "shift", "dataset": test.spec.name, "split": "test", "corruption": name,
            "source": "folder", "samples": test.limit, "images": test.digest, "parts": severities,
            **more}  # fmt: skip
    size = len(SEVERITIES) * (len(test.split) if size is None else size)
    return of_parts(f"{test.stem}-c/{name}.npz", size, info, lambda: map(part, SEVERITIES))


def _from_folder(arrays: CorruptedArrays, name: str, test: TestSet) -> EvaluationSet:
    images = arrays.open(name)
    frost = frost_of(arrays.folder) if name == "frost" else None
    more: dict[str, Any] = {"frost": frost} if frost else {}
    return _set(name, test, lambda severity: arrays.split(images, severity), **more)


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

    return _set(name, test, part, source="generated", seed=_SEED, **more)


def _photos(folder: Path, name: str, test: TestSet) -> EvaluationSet:
    def part(severity: int) -> AnySplit:
        photos = corrupted_photos(folder, name, severity, test.spec.classes, test.spec.shape)
        return first_samples(photos, test.limit)

    sizes = {len(part(severity)) for severity in SEVERITIES}
    if len(sizes) > 1:
        raise FreeTicketsError(
            f"the severities of {folder / name} differ in the number of images: get them again"
        )
    return _set(name, test, part, sizes.pop())


def refuse_mixture(folder: Path, wanted: Sequence[EvaluationSet], tickets: str | None) -> None:
    """Refuses corruption types that would be averaged with others that these tickets have saved."""
    shifted = [each for each in wanted if each.info.get("kind") == "shift"]
    asked = {folder / "predictions" / each.file for each in shifted}
    for path in sorted({other for each in asked for other in each.parent.glob("*.npz")} - asked):
        info = read_info(path)
        if info is None or tickets is None or info.get("tickets") != tickets:
            continue
        if one_set(info) != one_set(shifted[0].info):
            raise FreeTicketsError(
                f"{path} was saved with other --samples or from another source, and can't be "
                "averaged with these: name its type, too, or remove it"
            )


def natural_set(path: str, test: TestSet) -> EvaluationSet:
    """ImageNet-A: photos of some of the ensemble's classes that networks tend to get wrong."""
    photos, classes = natural_photos(Path(path).expanduser(), test.spec.classes, test.spec.shape)
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
                f"two OoD sets would be called {made.name}: give {name} in a command of its own, "
                "under another name"
            )
        found[made.file] = made
    return list(found.values())


def every_ood_set(
    request: Request, test: TestSet, tell: Callable[[str], None]
) -> list[EvaluationSet]:
    """The OoD sets that can be had without a download; says which are left out."""
    found, absent = [], []
    for name in OOD_NAMES:
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
        raise FreeTicketsError(
            f"{name} is what the ensemble was trained on: it is not out of distribution"
        )
    named = is_name(name)
    how: dict[str, Any] = {"samples": request.samples, "resize": request.resize}
    shape = tuple(test.spec.shape)
    split = load_ood(name, test.split, shape, test.data_dir, download=download, **how)
    refuse_known(name, split.inputs, test.known)
    path = Path(name).expanduser().resolve()
    called = name if named else path.name if path.is_dir() else path.stem
    info = {"kind": "ood", "dataset": called, **how, "content": digest(split.inputs)}
    if not named:
        info["path"] = str(path)
    return of_parts(f"ood/{called}.npz", len(split), info, lambda: [split])


def attack_sets(
    names: Sequence[str], epsilon: float, test: TestSet, members: int
) -> list[EvaluationSet]:
    """A set for each attack: the test images, changed to mislead each member in turn."""
    for name in names:
        if name not in ATTACKS:
            raise UnknownNameError("attack", name, ATTACKS)
    if names and not test.is_images:
        raise FreeTicketsError(
            f"attacks change pixels, and {test.spec.name} has features: leave them out"
        )
    if not 0 < epsilon <= 1:
        raise FreeTicketsError(
            f"--epsilon {epsilon:g}: choose a value above 0 and up to 1, such as 8/255"
        )
    return [_attack_set(name, epsilon, test, members) for name in dict.fromkeys(names)]


def _attack_set(name: str, epsilon: float, test: TestSet, members: int) -> EvaluationSet:
    info = {"kind": "attack", "dataset": test.spec.name, "attack": name, "epsilon": epsilon,
            "samples": test.limit, "images": test.digest}  # fmt: skip

    def make(predictor: Predictor, told: dict[str, Any]) -> Predictions:
        made = attack_predictions(
            predictor.ensemble, test.split, name, epsilon=epsilon,
            batch_size=predictor.batch_size, progress=predictor.progress.advance,
        )  # fmt: skip
        return Predictions(made.outputs, made.labels, {**made.info, **told, **predictor.info})

    return EvaluationSet(f"attacks/{name}.npz", members * len(test.split), info, make)
