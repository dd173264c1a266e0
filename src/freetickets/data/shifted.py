"""Other test sets: corrupted samples in Hendrycks' layouts, natural ones, unknown ones (OoD)."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError, UnknownNameError
from ..reading import read_json
from ..seeds import derive
from .corruptions import SEVERITIES
from .decode import match_shape
from .fashion import load_idx
from .images import ARRAYS, read_images
from .loading import load
from .npz import channels_first, open_npy
from .samples import LazySplit, Split
from .spec import data_root, files_by_class

# Names that others give to types: those of TensorFlow Datasets.
ALIASES = {"glass_blur": "frosted_glass_blur", "elastic_transform": "elastic"}
_DATASETS = ("svhn", "cifar10", "cifar100", "fashion-mnist", "fashion-mini")
_NOISE = ("gaussian-noise", "additive-noise")
OOD_NAMES = (*_DATASETS, "mnist", *_NOISE)
_NOISE_IMAGES = 10_000
_SAME = 0.01  # the share of known images above which a set is not new to an ensemble


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
                f"{folder} holds {self._count:,} of the {samples:,} test images: use "
                f"--samples {self._count}"
            )

    def open(self, name: str) -> npt.NDArray[np.uint8]:
        """Maps the images of a type, and checks their shape."""
        path = _find(self.folder, name, ".npy")
        images = open_npy(path)
        channels, *sides = self._inside.shape
        count = len(SEVERITIES) * self._count
        fit = [(count, *sides, channels), (count, *sides)][: 1 + (channels == 1)]
        if images.dtype != np.uint8 or images.shape not in fit:
            raise FreeTicketsError(f"{path} is {images.dtype} {images.shape}, not uint8 {fit[-1]}")
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
    for path in (folder / f"{each}{rest}" for each in (name, ALIASES.get(name, name))):
        if path.exists():
            return path
    raise FreeTicketsError(f"{folder} lacks {name}{rest}: get it, or name types by --corruptions")


def is_name(name: str) -> bool:
    """Whether it is one of `OOD_NAMES`; if not, it must be a path."""
    if name in OOD_NAMES:
        return True
    if not Path(name).expanduser().exists():
        if "/" in name or name.endswith(ARRAYS):
            raise FreeTicketsError(f"{name}: there is no such file or folder of OoD images")
        raise UnknownNameError("OoD set", name, OOD_NAMES)
    return False


def load_ood(
    name: str, inside: Split | LazySplit, shape: tuple[int, ...],
    data_dir: str | Path | None = None, *, resize: bool = False, download: bool = True,
    samples: int | None = None,
) -> Split:  # fmt: skip
    """Reads or makes samples of no class, of this shape; their labels are -1.

    The name is one of `OOD_NAMES`, or the path of a folder of images (flat or by class), an image,
    an .npy or an .npz. "additive-noise" is `inside`, the test set, with noise on it. `samples` are
    the first ones; `resize` says whether images of another shape are converted.
    """
    if not is_name(name):
        inputs = read_images(Path(name).expanduser(), shape, resize)[:samples]
    elif name in _NOISE:
        inputs = _noise(name, inside, shape, samples)
    else:
        read = load_idx if name == "mnist" else load
        split = read(name, "test", data_root(data_dir), download)
        assert isinstance(split, Split)  # none of these is read from disk image by image
        images = split.inputs[:samples].numpy()
        inputs = torch.from_numpy(match_shape(images, shape, name, resize))
    return Split(inputs, torch.full((len(inputs),), -1))


def refuse_known(name: str, images: torch.Tensor, known: set[bytes]) -> None:
    """Refuses images of which more than 1 % have the `fingerprints` of an ensemble's own."""
    same = sum(print_ in known for print_ in _each_print(images))
    if same > _SAME * len(images):
        raise FreeTicketsError(
            f"{same:,} of the {len(images):,} images of {name} are in the data set of the "
            "ensemble: they are not out of distribution"
        )


def fingerprints(splits: Iterable[Split | LazySplit]) -> set[bytes]:
    """A fingerprint of each sample in memory; those on disk are passed over."""
    inputs = (split.inputs for split in splits if isinstance(split, Split))
    return {print_ for each in inputs for print_ in _each_print(each)}


def digest(inputs: torch.Tensor) -> str:
    """A digest of samples, their shape and their order."""
    content = hashlib.sha256(f"{tuple(inputs.shape)}{inputs.dtype}".encode())
    content.update(np.ascontiguousarray(inputs.numpy()).data)
    return content.hexdigest()[:16]


def _each_print(inputs: torch.Tensor) -> Iterable[bytes]:
    rows = np.ascontiguousarray(inputs.numpy())
    return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)


def _noise(
    name: str, inside: Split | LazySplit, shape: tuple[int, ...], samples: int | None
) -> torch.Tensor:
    # N(0, 0.5), cut to [-1, 1] and halved, as the authors do, on middle grey or on images.
    if inside.dtype != torch.uint8:
        raise FreeTicketsError(f"{name} is for images: this ensemble takes floats")
    base, count = None, _NOISE_IMAGES
    if name == "additive-noise":
        if isinstance(inside, LazySplit):
            raise FreeTicketsError("additive-noise is for images in memory, not for photos on disk")
        base, count = inside.inputs.numpy(), len(inside)
    images = np.empty((min(count, samples or count), *shape), np.uint8)
    rng = np.random.default_rng(derive("ood", name))
    for index, image in enumerate(images):  # image by image: all as doubles would need much memory
        draw = np.clip(rng.normal(0.0, 0.5, shape), -1.0, 1.0) * 0.5
        below = 0.5 if base is None else base[index] / 255
        image[...] = np.rint(np.clip(below + draw, 0.0, 1.0) * 255)
    return torch.from_numpy(images)
