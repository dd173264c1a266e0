"""One function for the samples of any data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from ..tasks.labels import Classes
from .cifar import load_cifar
from .decode import fit, open_image, pixels
from .fashion import load_fashion, load_mini
from .inputs import as_inputs, as_numbers, as_tensor
from .npz import check_finite, read_arrays
from .spec import DATASETS, DatasetSpec, data_root, get_spec
from .split import LazySplit, Split, arrays
from .svhn import load_svhn
from .tree import ImageTree, find_imagenet

SplitName = Literal["train", "test"]


def load(
    spec_or_name: DatasetSpec | str | Path,
    split: SplitName,
    data_dir: str | Path | None = None,
    download: bool = True,
) -> Split | LazySplit:
    """Read the samples of a data set, in memory or (photos) on disk, and check them.

    Args:
        spec_or_name: A spec, or what `get_spec` takes: a name or a path.
        split: "train" or "test".
        data_dir: The data root, see `data_root`.
        download: Whether what is missing may be downloaded.

    Example:
        >>> load("fashion-mini", "test").inputs.shape
        torch.Size([2000, 1, 28, 28])
    """
    if split not in ("train", "test"):
        raise FreeTicketsError(f"there is no split {split!r}: choose 'train' or 'test'")
    spec = spec_or_name
    if not isinstance(spec, DatasetSpec):
        spec = get_spec(spec, data_dir)
    data = _read(spec, split, data_root(data_dir), download)
    if spec.task.has_classes and (highest := int(data.labels.max())) >= len(spec.classes):
        raise FreeTicketsError(
            f"{spec.name} has the label {highest}, but only {len(spec.classes)} classes"
        )
    return data


def load_validation(
    path: str | Path, spec: DatasetSpec, data_dir: str | Path | None = None
) -> Split | LazySplit:
    """Read validation data of one's own, of the training data's shape and classes.

    The path, also relative to the data root, is a folder `<class>/*` or an .npz with x and y.
    """
    places = (Path(path).expanduser(), data_root(data_dir) / path)
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise FreeTicketsError(f"no validation data at {path}: there is no such folder or file")
    if found.is_dir():
        return _load_tree(ImageTree.of_classes(found, spec.classes), spec, "test")
    x, y = read_arrays(found, "x", "y")
    check_finite(x, f"{found}: x")
    return _as_split(x, y, spec)


def _read(spec: DatasetSpec, split: SplitName, root: Path, download: bool) -> Split | LazySplit:
    match spec.name:
        case "fashion-mini":
            return load_mini(split)
        case "fashion-mnist":
            return load_fashion(split, root, download)
        case "cifar10" | "cifar100":
            return load_cifar(spec.name, split, root, download)
        case "svhn":
            return load_svhn(split, root, download)
        case "imagenet":
            if (tree := find_imagenet(root)) is None:
                raise FreeTicketsError(
                    f"ImageNet is not in {root / 'imagenet'}: get it from image-net.org and put "
                    "its images into train/<wnid>/ and val/<wnid>/ there, or name its --data-dir"
                )
            return _load_tree(tree, spec, split)
    if spec.name in DATASETS:
        x, y = DATASETS.find(spec.name).read(split)
        return _as_split(np.asarray(x), np.asarray(y), spec)
    path = Path(spec.name)
    if path.is_dir():
        return _load_tree(ImageTree.open(path), spec, split)
    x, y = read_arrays(path, f"x_{split}", f"y_{split}")
    check_finite(x, f"{spec.name}: x_{split}")
    if split == "train" and x.dtype.kind == "f":  # told now, not after hours of training
        (x_test,) = read_arrays(path, "x_test")
        check_finite(x_test, f"{spec.name}: x_test")
    return _as_split(x, y, spec)


def _as_split(x: npt.NDArray[Any], y: npt.NDArray[Any], spec: DatasetSpec) -> Split:
    if x.ndim == 2 and (x.shape[1], 1, 1) == spec.shape:  # features, in the spec's shape
        x = x.reshape(len(x), *spec.shape)
    if spec.task.has_classes:
        return arrays(x, y)
    classes = Classes(spec.classes, spec.labels)
    return Split(as_numbers(as_inputs(x)), as_tensor(spec.task.targets(y, classes)))


def _load_tree(tree: ImageTree, spec: DatasetSpec, split: SplitName) -> Split | LazySplit:
    """Read a split of a folder; photos stay on disk until they are used."""
    files = tree.files(split)
    labels = torch.tensor([label for _, label in files], dtype=torch.int64)
    if spec.augmentation == "imagenet":
        return LazySplit(tuple(path for path, _ in files), labels, spec.shape)
    channels, height, width = spec.shape
    images = np.empty((len(files), *spec.shape), np.uint8)
    for row, (path, _) in zip(images, files, strict=True):
        row[...] = pixels(fit(open_image(path, channels), height, width))
    return Split(torch.from_numpy(images), labels)
