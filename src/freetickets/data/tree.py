"""A folder of images by class: `train/<class>/*` and `test/<class>/*` (or `val/`)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import FreeTicketsError
from .spec import IMAGENET_MEAN, IMAGENET_STD, DatasetSpec

_SUFFIXES = frozenset(
    f".{kind}" for kind in ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")
)
_LARGEST_IN_MEMORY = 96  # pixels a side; larger pictures are photos: decoded and cropped when used
_PHOTO_SIZE = 224


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


def open_tree(folder: Path) -> ImageTree:
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


def folder_spec(folder: Path, image_size: int | None = None) -> DatasetSpec:
    """Return the spec of a folder; the size and colours are those of its first training image.

    Images of up to 96 x 96 pixels are held in memory and augmented like CIFAR's; larger ones are
    photos: decoded when they are used, and cropped to 224 x 224 as ImageNet's are.
    """
    from .decode import image_size_and_channels

    tree = open_tree(folder)
    train = tree.files("train")
    (height, width), channels = image_size_and_channels(train[0][0])
    if image_size is not None or max(height, width) > _LARGEST_IN_MEMORY:
        height = width = image_size or _PHOTO_SIZE
    photos = max(height, width) > _LARGEST_IN_MEMORY
    return DatasetSpec(
        name=str(folder),
        description=f"folder of images of {len(tree.classes)} classes",
        classes=tree.classes,
        shape=(channels, height, width),
        train_size=len(train),
        test_size=len(tree.files("test")),
        mean=IMAGENET_MEAN if channels == 3 else (0.5,),
        std=IMAGENET_STD if channels == 3 else (0.25,),
        augmentation="imagenet" if photos else "pad-crop-flip",
        recipe="imagenet" if photos else "small",
    )


def find_imagenet(root: Path) -> ImageTree | None:
    """Return the ImageNet folders below a data root, or None if they are not there."""
    for folder in (root / "imagenet", root / "ILSVRC2012", root):
        if (folder / "train").is_dir():
            tree = open_tree(folder)
            if len(tree.classes) == 1000:
                return tree
            raise FreeTicketsError(
                f"{tree.train} has {len(tree.classes)} classes, ImageNet has 1000: "
                f"for a subset give its path ({folder}) as the data set"
            )
    return None


def imagenet_classes(root: Path) -> tuple[str, ...]:
    """Return ImageNet's class names (the WordNet ids of its folders), empty if it is not there.

    Other folders in its place are no error here: a list of data sets must not fail for them.
    """
    try:
        tree = find_imagenet(root)
    except FreeTicketsError:
        return ()
    return tree.classes if tree else ()


def _class_folders(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != ".")
