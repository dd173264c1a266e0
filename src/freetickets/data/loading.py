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


def load(
    spec_or_name: DatasetSpec | str | Path,
    split: Literal["train", "test"],
    data_dir: str | Path | None = None,
    download: bool = True,
) -> Split | LazySplit:
    """Read the samples of a data set, and check them.

    Args:
        spec_or_name: A spec, or what `get_spec` takes: a name or a path.
        split: "train" or "test".
        data_dir: The data root, see `data_root`.
        download: Whether what is missing may be downloaded.

    Returns:
        Samples whose inputs have the spec's shape, in memory or (photos) on disk.

    Raises:
        FreeTicketsError: The data is missing, damaged, or not what the spec says.

    Example:
        >>> load("fashion-mini", "test").inputs.shape
        torch.Size([2000, 1, 28, 28])
    """
    if split not in ("train", "test"):
        raise FreeTicketsError(f"there is no split {split!r}: choose 'train' or 'test'")
    if isinstance(spec_or_name, DatasetSpec):
        spec = spec_or_name
    else:
        spec = get_spec(spec_or_name, data_dir)
    data = _read(spec, split, data_root(data_dir), download)
    if not spec.task.has_classes:
        return data
    highest = int(data.labels.max())
    if highest >= len(spec.classes):
        raise FreeTicketsError(
            f"{spec.name} has the label {highest}, but only {len(spec.classes)} classes (from 0)"
        )
    return data


def load_validation(
    path: str | Path, spec: DatasetSpec, data_dir: str | Path | None = None
) -> Split | LazySplit:
    """Read validation data of one's own.

    Args:
        path: A folder `<class>/*` of images of the training data's classes, or an .npz with x and
            y; it may also be relative to the data root.
        spec: The training data; what is read has its shape and its classes.
        data_dir: The data root, see `data_root`.

    Raises:
        FreeTicketsError: The data is missing, damaged, or does not suit the training data.
    """
    places = (Path(path).expanduser(), data_root(data_dir) / path)
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise FreeTicketsError(f"no validation data at {path}: there is no such folder or file")
    if found.is_dir():
        return load_class_folders(found, spec)
    x, y = read_arrays(found, "x", "y")
    check_finite(x, f"{found}: x")
    return _as_split(x, y, spec)


def _read(
    spec: DatasetSpec, split: Literal["train", "test"], root: Path, download: bool
) -> Split | LazySplit:
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
            return load_imagenet(spec, split, root)
    if spec.name in DATASETS:
        x, y = DATASETS.find(spec.name).read(split)
        return _as_split(np.asarray(x), np.asarray(y), spec)
    if Path(spec.name).is_dir():
        return load_folder(spec, split)
    path = Path(spec.name)
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


def load_folder(spec: DatasetSpec, split: Literal["train", "test"]) -> Split | LazySplit:
    """Read a split of the folder that the spec names; photos stay on disk until they are used."""
    tree = ImageTree.open(Path(spec.name))
    return _load_tree(tree, spec, split)


def load_class_folders(folder: Path, spec: DatasetSpec) -> Split | LazySplit:
    """Read a folder `<class>/*` whose classes are those of a data set.

    Raises:
        FreeTicketsError: It has another class, or no images.
    """
    return _load_tree(ImageTree.of_classes(folder, spec.classes), spec, "test")


def load_imagenet(
    spec: DatasetSpec, split: Literal["train", "test"], root: Path
) -> Split | LazySplit:
    """List a split of ImageNet.

    Raises:
        FreeTicketsError: It is not there; it cannot be downloaded without an account.
    """
    tree = find_imagenet(root)
    if tree is None:
        raise FreeTicketsError(
            f"ImageNet is not in {root / 'imagenet'}: get it from image-net.org and put its images "
            "into train/<wnid>/ and val/<wnid>/ there, or name the folder with --data-dir"
        )
    return _load_tree(tree, spec, split)


def _load_tree(
    tree: ImageTree, spec: DatasetSpec, split: Literal["train", "test"]
) -> Split | LazySplit:
    files = tree.files(split)
    labels = torch.tensor([label for _, label in files], dtype=torch.int64)
    if spec.augmentation == "imagenet":
        return LazySplit(tuple(path for path, _ in files), labels, spec.shape)
    channels, height, width = spec.shape
    images = np.empty((len(files), *spec.shape), np.uint8)
    for row, (path, _) in zip(images, files, strict=True):
        row[...] = pixels(fit(open_image(path, channels), height, width))
    return Split(torch.from_numpy(images), labels)
