"""The samples of any data set: by name or path, or given in Python to train on or to predict."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from ..errors import FreeTicketsError
from ..tasks import CLASSIFICATION, Task
from ..tasks.task import Classes
from . import samples
from .cifar import load_cifar
from .decode import fit, open_image, pixels
from .fashion import load_idx, load_mini
from .npz import check_finite, read_arrays
from .samples import AnySplit, DatasetSplit, LazySplit, Split
from .spec import DATASETS, DatasetSpec, data_root, files_by_class, find_imagenet, get_spec, tree_of
from .svhn import load_svhn

_AT_ONCE = 256  # samples of a Dataset that are held at a time, when it is first read
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
        data_dir: The data root; see `data_root`.
        download: Whether missing files may be downloaded.

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
    """Read your own validation data, which has the training data's shape and classes.

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
            return load_idx(spec.name, split, root, download)
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
        return _read_files(tree_of(path).files(split), spec)
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
        return samples.arrays(x, y)
    classes = Classes(spec.classes, spec.labels)
    return Split(
        samples.as_numbers(samples.as_inputs(x)), samples.as_tensor(spec.task.targets(y, classes))
    )


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


def training_data(
    data: Any, data_dir: str | None = None, image_size: int | None = None, workers: int = 0,
    task: Task | None = None,
) -> tuple[DatasetSpec, Callable[[], AnySplit]]:  # fmt: skip
    """Return what is known of training data, and what reads it.

    Data is the name of a data set; a pair (inputs, labels) of arrays, tensors or data frames; a
    `Split`; or a torch Dataset of such pairs.
    """
    if isinstance(data, str):
        named = get_spec(data, data_dir, image_size, task)
        return named, lambda: load(named, "train", data_dir)
    spec, split = _examine(data, "train_data", None, workers, task or CLASSIFICATION)
    return spec, lambda: split


def validation_data(
    data: Any, spec: DatasetSpec, data_dir: str | None = None, workers: int = 0
) -> tuple[str, Callable[[], AnySplit]]:
    """Return a name for validation data, and what reads it; its classes are the training data's.

    It is what `training_data` takes; a string is a path, see `load_validation`.
    """
    if isinstance(data, str):
        return data, lambda: load_validation(data, spec, data_dir)
    classes = Classes(spec.classes, spec.labels)
    found, split = _examine(data, "validation_data", classes, workers, spec.task)
    return found.name, lambda: split


def unlabelled(x: Any, shape: tuple[int, ...], integers: bool, at_once: int) -> Iterator[AnySplit]:
    """Give samples to predict, whatever their labels are: all that training takes.

    Of an array, only `at_once` samples are held at a time.
    """
    splits: Iterable[AnySplit]
    if isinstance(x, AnySplit):
        splits = [x]
    elif isinstance(x, Dataset):
        splits = [DatasetSplit.open(x, labelled=False)]
    else:
        splits = _parts(x, shape, max(1, at_once))
    for split in splits:
        if integers and split.dtype != torch.int64:
            raise FreeTicketsError("the ensemble was trained on integers: give integers")
        found = split if integers else take_as_numbers(split)
        if isinstance(found, Split) and (*found.shape, 1, 1) == shape:  # of an .npz data set
            found = replace(found, inputs=found.inputs.reshape(-1, *shape))
        if found.shape != shape:
            raise _other_shape(shape, ("N", *found.shape))
        yield found


def take_as_numbers(split: AnySplit) -> AnySplit:
    """Return integers as numbers, for a network that has no embedding; all else as it is."""
    if isinstance(split, Split):
        return replace(split, inputs=samples.as_numbers(split.inputs))
    if isinstance(split, DatasetSplit) and split.dtype == torch.int64:
        samples.as_numbers(torch.empty((0, *split.shape), dtype=split.dtype))  # or why not
        return replace(split, dtype=torch.float32)
    return split


def _other_shape(wanted: tuple[int, ...], found: tuple[Any, ...]) -> FreeTicketsError:
    return FreeTicketsError(
        f"the ensemble takes inputs of shape (N, {', '.join(map(str, wanted))}), not "
        f"({', '.join(map(str, found))})"
    )


def _parts(x: Any, shape: tuple[int, ...], at_once: int) -> Iterator[Split]:
    """Give an array in parts: one on the disk may be larger than memory."""
    rows = x if hasattr(x, "dtype") and hasattr(x, "shape") else samples.as_array(x)
    if len(rows.shape) < 2:
        raise _other_shape(shape, tuple(rows.shape))
    for at in range(0, max(1, len(rows)), at_once):
        inputs = samples.as_inputs(rows[at : at + at_once])
        yield Split(inputs, torch.zeros(len(inputs), dtype=torch.int64))


def _examine(
    data: Any, what: str, classes: Classes | None, workers: int, task: Task
) -> tuple[DatasetSpec, AnySplit]:
    """Read all of it once: its classes, the mean of its images, and a digest."""
    if isinstance(data, Dataset) and (tensors := plain_tensors(data)) is not None:
        if len(tensors) != 2:
            raise FreeTicketsError(f"{what} has {len(tensors)} tensors: it must have two")
        data = tensors
    content = _Content()
    if isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, raw = samples.as_inputs(data[0]), samples.as_array(data[1], "y")
        if not raw.size:
            raise FreeTicketsError("x and y are empty")
        classes = classes or task.classes_of(raw)
        data = Split(inputs, samples.as_tensor(task.targets(raw, classes)))
    if isinstance(data, Split):
        content.add(data.inputs)
        if classes is None:
            highest = int(data.labels.max()) if len(data) else 0
            numbered = range(highest + 1) if task.has_classes else ()
            classes = Classes(tuple(map(str, numbered)))
        return content.describe("arrays", data, classes, task), data
    listed = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
    if not listed or not hasattr(data, "__len__"):
        raise FreeTicketsError(
            f"{what} must be a data set's name, a pair of arrays (inputs, labels), or a torch "
            f"Dataset with a length, not a {type(data).__name__}"
        )
    opened = DatasetSplit.open(data, labelled=True)
    opened.check_repeatable()
    parts = [part.tolist() for part in torch.split(torch.arange(len(opened)), _AT_ONCE)]
    found: list[Any] = []
    for inputs, told in samples.read_parts(opened.read, parts, workers):
        content.add(inputs)
        found += told
    raw = samples.as_array(found, "y")
    classes = classes or task.classes_of(raw)
    labels = samples.as_tensor(task.targets(raw, classes))
    read = replace(opened, labels=labels, classes=classes, task=task)
    spec = content.describe("dataset", read, classes, task)
    return spec, replace(read, digest=content.digest)


def plain_tensors(dataset: Dataset[Any]) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors that a Dataset is made of; None if it is made of something else."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, Subset):
        tensors = plain_tensors(dataset.dataset)
        return tensors and tuple(tensor[list(dataset.indices)] for tensor in tensors)
    return None


class _Content:
    """What samples hold, counted and digested as they go by: large sets would not fit."""

    def __init__(self) -> None:
        self._sha, self._counts = hashlib.sha256(), torch.zeros(1, 256, dtype=torch.int64)

    def add(self, inputs: torch.Tensor) -> None:
        self._sha.update(inputs.contiguous().numpy().data)
        if inputs.dtype == torch.uint8:
            counts = [torch.bincount(each.flatten(), minlength=256) for each in inputs.unbind(1)]
            self._counts = self._counts + torch.stack(counts)

    @property
    def digest(self) -> str:
        return self._sha.hexdigest()[:16]

    def describe(self, kind: str, split: AnySplit, classes: Classes, task: Task) -> DatasetSpec:
        self._sha.update(split.labels.contiguous().numpy().data)
        if classes.values:
            self._sha.update(repr(classes.values).encode())
        # How often each of the 256 values occurs gives mean and deviation of a channel.
        values, means, deviations = torch.arange(256, dtype=torch.float64) / 255, [], []
        for counts in self._counts.double() if split.dtype == torch.uint8 else ():
            means.append(float((counts * values).sum() / counts.sum()))
            spread = float((counts * (values - means[-1]) ** 2).sum() / (counts.sum() - 1))
            deviations.append(max(spread**0.5, 1e-3))
        return DatasetSpec(
            # After what it holds: a run must not be resumed with other samples.
            name=f"{kind}-{self.digest[:8]}",
            description="your own arrays",
            classes=classes.names,
            shape=split.shape,  # type: ignore[arg-type]
            train_size=len(split),
            test_size=0,
            mean=tuple(means),
            std=tuple(deviations),
            source="given in Python",
            labels=classes.values,
            integers=split.dtype == torch.int64,
            target_shape=tuple(split.labels.shape[1:]),
            task=task,
        )
