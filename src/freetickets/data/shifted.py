"""Test sets that were changed: corrupted ones in Hendrycks' layouts, and natural ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from ..reading import read_json
from .corruptions import SEVERITIES, set_name
from .npz import channels_first, open_npy
from .split import LazySplit, Split
from .tree import files_by_class

# Names that others give to types: those of TensorFlow Datasets.
ALIASES = {"glass_blur": "frosted_glass_blur", "elastic_transform": "elastic"}


def shifted_folder(dataset: str, root: Path) -> Path:
    """Where the corrupted images of a data set lie, if they do."""
    return root / set_name(dataset)


def frost_of(folder: Path) -> str | None:
    """What the frost in a folder of FreeTickets' own is made of; None if nothing says so."""
    note = folder / "corruptions.json"
    told = read_json(note) if note.exists() else {}
    return str(told["frost"]) if isinstance(told, dict) and "frost" in told else None


class CorruptedArrays:
    """The `<type>.npy` files of a folder, mapped into memory: all severities, one behind the other.

    Its `labels.npy` must be those of the test set that was corrupted, of which the first samples
    are asked for.
    """

    def __init__(self, folder: Path, inside: Split, samples: int) -> None:
        self.folder = folder
        self._inside, self._samples = inside, samples
        labels, truth = open_npy(folder / "labels.npy"), inside.labels.numpy()
        self._count = len(labels) // len(SEVERITIES)
        if not np.array_equal(labels, np.tile(truth[: self._count], len(SEVERITIES))):
            raise FreeTicketsError(
                f"{folder / 'labels.npy'} does not hold the {len(truth):,} labels of the test set, "
                f"{len(SEVERITIES)} times: it belongs to another data set, or lacks severities"
            )
        if samples > self._count:
            raise FreeTicketsError(
                f"{folder} holds {self._count:,} of the {samples:,} test images: give --samples "
                f"{self._count}"
            )

    def open(self, name: str) -> npt.NDArray[np.uint8]:
        """Maps the images of a type, and checks their shape."""
        path = _find(self.folder, name, ".npy")
        images = open_npy(path)
        channels, *sides = self._inside.shape
        count = len(SEVERITIES) * self._count
        wanted = [(count, *sides, channels), (count, *sides)][: 1 + (channels == 1)]
        if images.dtype != np.uint8 or images.shape not in wanted:
            raise FreeTicketsError(
                f"{path} holds {images.dtype} {images.shape}, not uint8 {wanted[-1]}: five "
                "severities of the test set"
            )
        return images

    def split(self, images: npt.NDArray[np.uint8], severity: int) -> Split:
        """The samples of one severity."""
        first = (severity - 1) * self._count
        chosen = channels_first(images[first : first + self._samples])
        return Split(torch.from_numpy(np.array(chosen)), self._inside.labels[: self._samples])


def corrupted_photos(
    folder: Path, name: str, severity: int, classes: Sequence[str], shape: tuple[int, int, int]
) -> LazySplit:
    """Lists the photos of `<type>/<severity>/<class>/*`, which are cropped already."""
    place = _find(folder, name, f"/{severity}")
    return LazySplit.of(files_by_class(place, classes), shape, cropped=True)


def natural_photos(
    folder: Path, classes: Sequence[str], shape: tuple[int, int, int]
) -> tuple[LazySplit, list[int]]:
    """Lists the photos of `<class>/*`, and which of the ensemble's classes they are of."""
    if not folder.is_dir():
        raise FreeTicketsError(f"{folder} is not a folder: ImageNet-A is <wnid>/*.jpg")
    photos = LazySplit.of(files_by_class(folder, classes), shape)
    return photos, sorted(set(photos.labels.tolist()))


def _find(folder: Path, name: str, rest: str) -> Path:
    """What a type has in a folder, under its own name or that of others."""
    for path in (folder / f"{each}{rest}" for each in (name, ALIASES.get(name, name))):
        if path.exists():
            return path
    raise FreeTicketsError(f"{folder} lacks {name}{rest}: get it, or name types by --corruptions")
