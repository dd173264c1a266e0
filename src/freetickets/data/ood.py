"""Samples that belong to no class that an ensemble knows (out of distribution, OoD)."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from ..errors import FreeTicketsError, UnknownNameError
from ..seeds import derive
from .decode import match_shape
from .fashion import load_mnist
from .images import ARRAYS, read_images
from .loading import load
from .spec import data_root
from .split import LazySplit, Split

_DATASETS = ("svhn", "cifar10", "cifar100", "fashion-mnist", "fashion-mini")
_NOISE = ("gaussian-noise", "additive-noise")
OOD_NAMES = (*_DATASETS, "mnist", *_NOISE)
_NOISE_IMAGES = 10_000
_SAME = 0.01  # the share of known images above which a set is not new to an ensemble


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
    name: str,
    inside: Split | LazySplit,
    shape: tuple[int, ...],
    data_dir: str | Path | None = None,
    *,
    resize: bool = False,
    download: bool = True,
    samples: int | None = None,
) -> Split:
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
        split: Split | LazySplit
        if name == "mnist":
            split = load_mnist(data_root(data_dir), download)
        else:
            split = load(name, "test", data_dir, download)
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
    """Images of noise, or noisy images: N(0, 0.5) cut to [-1, 1] and halved, as the authors do.

    Pure noise is laid on middle grey, 10,000 times; either is rounded to 8 bits.
    """
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
