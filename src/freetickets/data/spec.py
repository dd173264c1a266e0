"""What a data set is, before any of it is read: by name, or a folder of images by class.

No torch here: `freetickets --help` stays quick.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..errors import FreeTicketsError, UnknownNameError
from ..reading import read
from ..registry import Registry, is_reference
from ..tasks import CLASSIFICATION, Task, task_name

_SUFFIXES = frozenset(
    f".{kind}" for kind in ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
)
_LARGEST_IN_MEMORY = 96  # pixels a side; larger pictures are photos: decoded and cropped when used
_PHOTO_SIZE = 224


@dataclass(frozen=True)
class DatasetSpec:
    """A data set as a network sees it, and how it is trained on by default.

    Attributes:
        name: A registry name, or the path of the user's own data.
        description: One line for people.
        classes: Names of the classes, in the order of their labels; empty if labels are numbers.
        shape: Channels, height and width of one input; (F, 1, 1) for a vector of F features.
        train_size: Number of training samples of the whole set, before a hold-out.
        test_size: Number of test samples.
        mean: Mean of each channel in [0, 1]; empty if the inputs are ready for the network.
        std: Standard deviation of each channel; empty as for `mean`.
        augmentation: "none", "imagenet", or a name of `batches.AUGMENTATIONS`.
        recipe: Name of the training recipe: "small", "cifar", "imagenet" or "fast".
        source: Where it comes from and under which licence.
        labels: The labels themselves, if they are not class numbers that count from 0.
        integers: Whether the inputs are token ids, for networks that begin with an embedding.
        target_shape: Shape of one label, if labels are numbers; () for one number.
        task: What the labels are for.
    """

    name: str
    description: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train_size: int
    test_size: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augmentation: str = "none"  # a flip may change what the user's images mean
    recipe: str = "small"
    source: str = "your own"
    labels: tuple[bool | int | str, ...] = ()
    integers: bool = False
    target_shape: tuple[int, ...] = ()
    task: Task = CLASSIFICATION


@cache
def known_facts(part: str) -> dict[str, Any]:
    """A part of `datasets.yaml`, by the names of data sets."""
    text = Path(__file__).with_name("datasets.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)[part]


@dataclass(frozen=True)
class OwnDataset:
    """A data set to register: what it is, and how it is read.

    Attributes:
        spec: What is known of it before it is read.
        read: Returns the inputs and labels of "train" or "test", as arrays or tensors.
    """

    spec: DatasetSpec
    read: Callable[[str], tuple[Any, Any]]


def _check_dataset(thing: object) -> None:
    if not isinstance(thing, OwnDataset):
        raise FreeTicketsError(f"a data set must be an OwnDataset, not {thing!r}")


DATASETS: Registry[OwnDataset] = Registry("dataset", "datasets", check=_check_dataset)


def data_root(data_dir: str | Path | None = None) -> Path:
    """Return the folder of all data sets: the argument, else `$FREETICKETS_DATA`, else `./data`."""
    return Path(data_dir or os.environ.get("FREETICKETS_DATA") or "data").expanduser()


def dataset_names() -> list[str]:
    """Return the names that `get_spec` knows; the path of your own data works as well.

    Example:
        >>> dataset_names()
        ['fashion-mini', 'fashion-mnist', 'cifar10', 'cifar100', 'svhn', 'imagenet']
    """
    return [*known_facts("sets"), *DATASETS]


def get_spec(
    name: str | Path,
    data_dir: str | Path | None = None,
    image_size: int | None = None,
    task: Task | None = None,
) -> DatasetSpec:
    """Return what is known of a data set; at a path, only file names and headers are read.

    Args:
        name: A name of `dataset_names()`; or a folder with `train/<class>/*` and `test/<class>/*`
            (or `val/`); or an .npz with x_train, y_train, x_test, y_test and perhaps classes.
        data_dir: The data root; see `data_root`. A path may also be relative to it.
        image_size: Height and width of the images of ImageNet or of a folder, if not the default.
        task: What its labels are for; None for classification. A task without classes takes an
            .npz.

    Raises:
        UnknownNameError: It is neither a name nor a path.
        FreeTicketsError: The path does not hold a data set.

    Example:
        >>> get_spec("cifar100").augmentation
        'pad-crop-flip'
    """
    name, task = os.fspath(name), task or CLASSIFICATION
    if image_size is not None and image_size < 1:
        raise FreeTicketsError(f"image size {image_size}: give a number of pixels, 1 or more")
    facts = known_facts("sets").get(name)
    spec = read(DatasetSpec, {"name": name, **facts}) if facts else None
    path = None if spec or name in DATASETS or is_reference(name) else _find_path(name, data_dir)
    if image_size and not (name == "imagenet" or (path and path.is_dir())):
        raise FreeTicketsError(f"{name} has a fixed size: image sizes are for imagenet and folders")
    if path and path.is_file():
        from .npz import npz_spec  # NumPy and Pillow have no part in printing a list of names

        return npz_spec(path, task)
    if path:
        spec = _folder_spec(path, image_size)
    elif spec is None:
        return replace(DATASETS.find(name).spec, name=name, task=task)
    elif name == "imagenet":
        size, classes = image_size or spec.shape[1], tuple(map(str, range(1000)))
        with suppress(FreeTicketsError):  # a list of data sets must not fail for other folders
            if tree := find_imagenet(data_root(data_dir)):
                classes = tree.classes
        spec = replace(spec, shape=(3, size, size), classes=classes)
    if not task.has_classes:
        raise FreeTicketsError(
            f"{spec.name} has classes, and the task {task_name(task)} takes numbers: give an .npz"
        )
    return replace(spec, task=task)


def _find_path(name: str, data_dir: str | Path | None) -> Path:
    for path in (Path(name).expanduser(), data_root(data_dir) / name) if name else ():
        if path.is_dir() or (path.is_file() and path.suffix == ".npz"):
            return path.resolve()
        if path.is_file():
            raise FreeTicketsError(f"{name} is not a data set: give a folder of images or an .npz")
    if os.sep in name or name.endswith(".npz"):
        raise FreeTicketsError(f"no data set at {name}: there is no such folder or file")
    raise UnknownNameError("dataset", name, dataset_names())


class ImageTree(NamedTuple):
    """A folder of images by class, for training and for testing; no file is opened."""

    train: Path
    test: Path
    classes: tuple[str, ...]

    def files(self, split: str) -> list[tuple[Path, int]]:
        """The files of "train", where no class may be empty, or of "test"."""
        if split == "test":
            return files_by_class(self.test, self.classes, f"in {self.train}")
        for name in self.classes:
            if not image_files(self.train / name):
                raise FreeTicketsError(f"{self.train / name} holds no images: fill or remove it")
        return files_by_class(self.train, self.classes)


def tree_of(folder: Path) -> ImageTree:
    """Look at a folder's class names, for training and for test images."""
    train = folder / "train"
    test = folder / "test" if (folder / "test").is_dir() else folder / "val"
    if not train.is_dir() or not test.is_dir():
        raise FreeTicketsError(f"{folder} needs train/<class>/ and test/<class>/ (or val/)")
    classes = _class_folders(train)
    if len(classes) < 2:
        raise FreeTicketsError(f"{train} needs a folder of images for each class, two or more")
    return ImageTree(train, test, tuple(classes))


def files_by_class(
    folder: Path, classes: Sequence[str], where: str = "in the training data"
) -> list[tuple[Path, int]]:
    """Each image of `<class>/*` with its label, class by class, sorted: the same anywhere."""
    if strangers := sorted(set(_class_folders(folder)) - set(classes)):
        raise FreeTicketsError(f"{folder / strangers[0]}: there is no such class {where}")
    labelled = enumerate(classes)
    found = [(path, label) for label, name in labelled for path in image_files(folder / name)]
    if not found:
        raise FreeTicketsError(f"{folder} holds no images by class")
    return found


def image_files(folder: Path) -> list[Path]:
    """Return the images directly in a folder, sorted; other and hidden files are passed over."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if os.path.splitext(entry.name)[1].lower() in _SUFFIXES
            and not entry.name.startswith(".")
            and entry.is_file()  # or a link to one: opening a pipe or a device might never end
        )


def _folder_spec(folder: Path, image_size: int | None = None) -> DatasetSpec:
    from .decode import image_size_and_channels

    # Of its first training image. Photos are decoded when they are used, and cropped as ImageNet's.
    tree = tree_of(folder)
    train = tree.files("train")
    (height, width), channels = image_size_and_channels(train[0][0])
    if image_size is not None or max(height, width) > _LARGEST_IN_MEMORY:
        height = width = image_size or _PHOTO_SIZE
    photos = max(height, width) > _LARGEST_IN_MEMORY
    usual = known_facts("sets")["imagenet"]
    return DatasetSpec(
        name=str(folder),
        description=f"folder of images of {len(tree.classes)} classes",
        classes=tree.classes,
        shape=(channels, height, width),
        train_size=len(train),
        test_size=len(tree.files("test")),
        mean=tuple(usual["mean"]) if channels == 3 else (0.5,),
        std=tuple(usual["std"]) if channels == 3 else (0.25,),
        augmentation="imagenet" if photos else "pad-crop-flip",
        recipe="imagenet" if photos else "small",
    )


def find_imagenet(root: Path) -> ImageTree | None:
    """Return the ImageNet folders below a data root, or None if they are not there."""
    for folder in (root / "imagenet", root / "ILSVRC2012", root):
        if (folder / "train").is_dir():
            tree = tree_of(folder)
            if len(tree.classes) == 1000:
                return tree
            raise FreeTicketsError(
                f"{tree.train} has {len(tree.classes)} classes, ImageNet has 1000: "
                f"for a subset give its path ({folder}) as the data set"
            )
    return None


def _class_folders(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
