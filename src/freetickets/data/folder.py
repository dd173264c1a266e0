"""Splits of a folder of images by class, ImageNet among them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ..errors import FreeTicketsError
from .decode import fit, open_image, pixels
from .spec import DatasetSpec
from .split import LazySplit, Split
from .tree import ImageTree, find_imagenet


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
