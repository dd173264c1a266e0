"""One function for the samples of any data set."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
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
from .tree import files_by_class, find_imagenet, open_tree

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
    for found in (Path(path).expanduser(), data_root(data_dir) / path):
        if found.is_dir():
            return _read_files(files_by_class(found, spec.classes), spec)
        if found.exists():
            return _read_npz(found, ("x", "y"), spec)
    raise FreeTicketsError(f"no validation data at {path}: there is no such folder or file")


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
            return _read_files(tree.files(split), spec)
    if spec.name in DATASETS:
        x, y = DATASETS.find(spec.name).read(split)
        return _as_split(np.asarray(x), np.asarray(y), spec)
    path = Path(spec.name)
    if path.is_dir():
        return _read_files(open_tree(path).files(split), spec)
    data = _read_npz(path, (f"x_{split}", f"y_{split}"), spec)
    if split == "train" and data.dtype == torch.float32:  # told now, not after hours of training
        check_finite(read_arrays(path, "x_test")[0], f"{spec.name}: x_test")
    return data


def _read_npz(path: Path, keys: tuple[str, str], spec: DatasetSpec) -> Split:
    x, y = read_arrays(path, *keys)
    check_finite(x, f"{path}: {keys[0]}")
    return _as_split(x, y, spec)


def _as_split(x: Any, y: Any, spec: DatasetSpec) -> Split:
    if x.ndim == 2 and (x.shape[1], 1, 1) == spec.shape:  # features, in the spec's shape
        x = x.reshape(len(x), *spec.shape)
    if spec.task.has_classes:
        return arrays(x, y)
    classes = Classes(spec.classes, spec.labels)
    return Split(as_numbers(as_inputs(x)), as_tensor(spec.task.targets(y, classes)))


def _read_files(files: list[tuple[Path, int]], spec: DatasetSpec) -> Split | LazySplit:
    """Read images; photos stay on disk until they are used."""
    photos = LazySplit.of(files, spec.shape)
    if spec.augmentation == "imagenet":
        return photos
    channels, height, width = spec.shape
    images = np.empty((len(files), *spec.shape), np.uint8)
    for row, path in zip(images, photos.paths, strict=True):
        row[...] = pixels(fit(open_image(path, channels), height, width))
    return Split(torch.from_numpy(images), photos.labels)
