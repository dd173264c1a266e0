"""Sets under shift: corrupted test images, found in a folder or made on the fly; ImageNet-A."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import metrics
from ..data import LazySplit, Split
from ..data.corruptions.names import SEVERITIES
from ..data.shifted import (
    ALIASES,
    CorruptedArrays,
    corrupted_photos,
    frost_of,
    natural_photos,
    shifted_folder,
)
from ..errors import FreeTicketsError, UnknownNameError
from ..predictions import read_info
from .home import Home
from .sets import AnySplit, EvaluationSet, first_samples, of_parts, one_set

_SEED = 0
_BY_ALIAS = {alias: name for name, alias in ALIASES.items()}


def corruption_types(names: Iterable[str], classes: int) -> list[str]:
    """The types that names of types and of sets of types stand for, each once.

    Raises:
        UnknownNameError: A name is neither.

    Example:
        >>> corruption_types(["fog", "elastic", "fog"], 10)
        ['fog', 'elastic_transform']
        >>> len(corruption_types(["common15", "fog", "saturate"], 10))
        16
    """
    types = metrics.CORRUPTION_SETS["all19"]
    found: dict[str, None] = {}
    for name in names:
        own = _BY_ALIAS.get(name, name)
        if own in types:
            found[own] = None
        elif own in metrics.CORRUPTION_SETS:
            found.update(dict.fromkeys(metrics.corruption_set(own, classes)))
        else:
            raise UnknownNameError("corruption", name, [*metrics.CORRUPTION_SETS, *types])
    return list(found)


def corruption_sets(names: Sequence[str], home: Home) -> list[EvaluationSet]:
    """One set for each corruption type: five severities of the test images.

    They are read from the data root if a folder in Hendrycks' layout is there, else made.

    Raises:
        FreeTicketsError: The folder is not complete or of other data; or there is none, and the
            images can't be corrupted here.
    """
    types = corruption_types(names, len(home.spec.classes))
    folder = shifted_folder(home.spec.name, home.root)
    if not home.is_images:
        raise FreeTicketsError(
            f"corruptions are for images, and {home.spec.name} has features: leave them out"
        )
    if isinstance(home.whole, LazySplit):
        if not folder.is_dir():
            raise FreeTicketsError(
                f"{folder} is missing: photos are not corrupted here, put ImageNet-C there "
                "(<type>/<severity>/<wnid>/*)"
            )
        return [_photos(folder, name, home) for name in types]
    if folder.is_dir():
        arrays = CorruptedArrays(folder, home.whole, len(home.split))
        return [_from_folder(arrays, name, home) for name in types]
    return [_generated(name, home) for name in types]


def _set(
    name: str,
    home: Home,
    source: str,
    part: Callable[[int], AnySplit],
    more: dict[str, Any],
    size: int | None = None,
) -> EvaluationSet:
    info = {
        "kind": "shift",
        "dataset": home.spec.name,
        "split": "test",
        "corruption": name,
        "source": source,
        "samples": home.limit,
        "images": home.digest,
        "parts": [str(severity) for severity in SEVERITIES],
        **more,
    }

    def parts() -> Iterator[AnySplit]:
        return (part(severity) for severity in SEVERITIES)

    count = len(home.split) if size is None else size
    return of_parts(f"{home.stem}-c/{name}.npz", len(SEVERITIES) * count, info, parts)


def _from_folder(arrays: CorruptedArrays, name: str, home: Home) -> EvaluationSet:
    images = arrays.open(name)
    frost = frost_of(arrays.folder) if name == "frost" else None

    def part(severity: int) -> Split:
        return arrays.split(images, severity)

    return _set(name, home, "folder", part, {"frost": frost} if frost else {})


def _generated(name: str, home: Home) -> EvaluationSet:
    from ..data import corruptions

    frost = corruptions.find_frost(None, home.data_dir) if name == "frost" else None
    more: dict[str, Any] = {}
    if name == "frost":
        more["frost"] = corruptions.frost_source(frost)
    if name in ("motion_blur", "snow"):
        more["revision"] = 2  # the first was up to a level too bright: it is predicted again

    def part(severity: int) -> Split:
        assert isinstance(home.split, Split)
        images = np.ascontiguousarray(home.split.inputs.numpy().transpose(0, 2, 3, 1))
        changed = corruptions.corrupt(images, name, severity, seed=_SEED, frost=frost)
        inputs = torch.from_numpy(np.ascontiguousarray(changed.transpose(0, 3, 1, 2)))
        return Split(inputs, home.split.labels)

    return _set(name, home, "generated", part, {"seed": _SEED, **more})


def _photos(folder: Path, name: str, home: Home) -> EvaluationSet:
    def part(severity: int) -> AnySplit:
        photos = corrupted_photos(folder, name, severity, home.spec.classes, home.spec.shape)
        return first_samples(photos, home.limit)

    sizes = {len(part(severity)) for severity in SEVERITIES}
    if len(sizes) > 1:
        raise FreeTicketsError(
            f"the severities of {folder / name} differ in the number of images: get them again"
        )
    return _set(name, home, "folder", part, {}, sizes.pop())


def refuse_mixture(folder: Path, wanted: Sequence[EvaluationSet], tickets: str | None) -> None:
    """Checks that corruption types which will be averaged are of one source and of equal size.

    Args:
        folder: The run's.
        wanted: The sets that are asked for.
        tickets: The digest of the run's tickets; what others have predicted is no part of it.

    Raises:
        FreeTicketsError: Types that were saved before, and are not asked for now, are others.
    """
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


def natural_set(path: str, home: Home) -> EvaluationSet:
    """ImageNet-A: photos of some of the ensemble's classes that networks tend to get wrong."""
    photos, classes = natural_photos(Path(path).expanduser(), home.spec.classes, home.spec.shape)
    samples = first_samples(photos, home.limit)
    info = {
        "kind": "natural",
        "dataset": "imagenet-a",
        "classes_200": classes,
        "samples": home.limit,
    }
    return of_parts("imagenet-a.npz", len(samples), info, lambda: [samples])
