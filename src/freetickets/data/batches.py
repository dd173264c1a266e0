"""Batches of a split, epoch by epoch: the same whatever the workers, the ranks and the start."""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from .decode import centre_crop, fit, open_image, pixels, random_crop
from .samples import AnySplit, DatasetSplit, LazySplit, Split, read_parts

Batch = tuple[torch.Tensor, torch.Tensor]
Border = Literal["constant", "reflect"]

# What a random number is for, so that no two uses share a stream.
_ORDER, _CROP_FLIP, _DECODE, _SIDE = range(4)


@dataclass(eq=False, repr=False)
class Batches:
    """The batches of a split: shuffled, augmented, normalised to float32.

    Everything random is a function of (seed, epoch, index of the batch or sample). So an epoch can
    start in the middle, and N ranks get the N slices of the batch that a single rank would get.

    Args:
        split: The samples.
        batch_size: Samples of one batch over all ranks.
        mean: Mean of each channel in [0, 1]; empty to only scale images to [0, 1].
        std: Standard deviation of each channel; empty as for `mean`.
        augmentation: "none", or one of the names in `DatasetSpec.augmentation`.
        seed: Seed of order and augmentation.
        shuffle: Draw a new order each epoch; otherwise keep the split's order.
        workers: Processes that decode image files, or read a Dataset. Splits in memory need none.
        rank: Which slice of each batch to give.
        world: Number of ranks.

    Example:
        >>> split = Split(torch.zeros(300, 1, 28, 28, dtype=torch.uint8), torch.arange(300))
        >>> batches = Batches(split, 128, augmentation="pad-crop-flip")
        >>> [len(labels) for _, labels in batches.epoch(0)]
        [128, 128, 44]
        >>> [len(labels) for _, labels in batches.epoch(0, start=2)]
        [44]
    """

    split: AnySplit
    batch_size: int
    _: KW_ONLY
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    augmentation: str = "none"
    seed: int = 0
    shuffle: bool = True
    workers: int = 0
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world <= self.batch_size:
            raise FreeTicketsError(
                f"rank {self.rank} of {self.world}, batch size {self.batch_size}: a batch needs a "
                "sample for each rank"
            )
        if self.seed < 0 or self.workers < 0:
            raise FreeTicketsError(f"seed {self.seed}, workers {self.workers}: none is negative")
        known, kind = ["none"], "features"
        if isinstance(self.split, LazySplit):
            known, kind = ["none", "imagenet"], "image files"
        elif self.split.dtype == torch.uint8:
            known, kind = ["none", *AUGMENTATIONS], "images in memory"
        if self.augmentation not in known:
            raise FreeTicketsError(
                f"augmentation {self.augmentation!r} is not for {kind}: choose from {known}"
            )
        self._scale, self._shift = _normalisation(self.split, self.mean, self.std)
        if len(self) == 0:
            raise FreeTicketsError(f"{len(self.split)} samples make no batch: give more")

    def __len__(self) -> int:
        full, rest = divmod(len(self.split), self.batch_size)
        # BatchNorm cannot train on one sample, so such a rest is left out of training.
        return full + (rest >= (2 if self.shuffle else 1))

    def size(self, batch: int) -> int:
        """The samples of a batch over all ranks."""
        return min(self.batch_size, len(self.split) - batch * self.batch_size)

    def factor(self, batch: int) -> float:
        """The weight of this rank's mean, with which the ranks' mean is that of the whole batch."""
        if self._is_shared(batch):
            return 1.0
        start, stop = self._slice(batch)
        return self.world * (stop - start) / self.size(batch)

    def whole(self) -> "Batches":
        """The same batches, not divided over ranks."""
        return replace(self, rank=0, world=1)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch: (inputs float32, or int64 for token ids; labels int64).

        Args:
            epoch: Decides order and augmentation.
            start: First batch to give; those before it are skipped at no cost.
        """
        if epoch < 0 or not 0 <= start <= len(self):
            raise FreeTicketsError(f"epoch {epoch}, batch {start}: there are {len(self)} batches")
        return self._prepare(epoch, start)

    def _prepare(self, epoch: int, start: int) -> Iterator[Batch]:
        order = np.arange(len(self.split))
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch, _ORDER]).permutation(len(order))
        # Each image begins on a side of its own, and changes it from epoch to epoch.
        sides = np.random.default_rng([self.seed, 0, _SIDE]).integers(0, 2, size=len(order))
        augmentation = AUGMENTATIONS.get(self.augmentation)
        for batch, (inputs, labels) in enumerate(self._read(order, epoch, start), start):
            if augmentation is not None:
                start, stop = self._slice(batch)
                rng = np.random.default_rng([self.seed, epoch, _CROP_FLIP, batch])
                pad, first = augmentation.padding(*inputs.shape[2:]), batch * self.batch_size
                moves = draw_moves(rng, self.size(batch), pad)[:, start - first : stop - first]
                if augmentation.flip != "random":
                    alternate = augmentation.flip == "alternate"
                    moves[2] = alternate & (sides[order[start:stop]] != epoch % 2)
                images = crop_flip(inputs.numpy(), moves, pad, augmentation.border)
                inputs = torch.from_numpy(images)
            if inputs.dtype == torch.uint8:
                inputs = inputs.float().mul_(self._scale).add_(self._shift)
            yield inputs, labels

    def _read(self, order: npt.NDArray[np.int64], epoch: int, start: int) -> Iterator[Batch]:
        """Give this rank's samples of each batch, as they are."""
        split = self.split
        parts = [order[slice(*self._slice(batch))] for batch in range(start, len(self))]
        places = [part.tolist() for part in parts]
        if isinstance(split, Split):
            for part in map(torch.from_numpy, parts):
                yield split.inputs.index_select(0, part), split.labels.index_select(0, part)
        elif isinstance(split, DatasetSplit):
            read = partial(split.read, seed=self.seed, epoch=epoch)
            for inputs, labels in read_parts(read, places, self.workers):
                yield inputs, split.encode(labels)
        else:
            key = (self.seed, epoch) if self.augmentation == "imagenet" else None
            images = read_parts(partial(_decode, split, key), places, self.workers)
            yield from zip(images, (split.labels[part] for part in places), strict=True)

    def _slice(self, batch: int) -> tuple[int, int]:
        first, size = batch * self.batch_size, self.size(batch)
        if self._is_shared(batch):
            return first, first + size
        return first + size * self.rank // self.world, first + size * (self.rank + 1) // self.world

    def _is_shared(self, batch: int) -> bool:
        """Whether all ranks get the whole batch: a rest too small for two samples for each."""
        return self.shuffle and self.size(batch) < min(self.batch_size, 2 * self.world)


def _decode(split: LazySplit, key: tuple[int, int] | None, indices: list[int]) -> torch.Tensor:
    channels, height, width = split.shape
    batch = torch.empty((len(indices), *split.shape), dtype=torch.uint8)
    for row, index in zip(batch.numpy(), indices, strict=True):
        image = open_image(split.paths[index], channels)
        if key is not None:
            rng = np.random.default_rng([*key, _DECODE, index])
            image = random_crop(image, height, width, rng)
        else:
            image = (fit if split.cropped else centre_crop)(image, height, width)
        row[...] = pixels(image)
    return batch


def _normalisation(
    split: AnySplit, mean: Sequence[float], std: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and shift such that pixel * scale + shift = (pixel / 255 - mean) / std."""
    if split.dtype != torch.uint8:
        if mean or std:
            raise FreeTicketsError("float inputs are given to the network as they are: no mean/std")
        return torch.ones(1), torch.zeros(1)
    channels = split.shape[0]
    mean, std = tuple(mean) or (0.0,) * channels, tuple(std) or (1.0,) * channels
    if not len(mean) == len(std) == channels or not all(s > 0 and math.isfinite(s) for s in std):
        raise FreeTicketsError(f"mean {mean}, std {std}: give {channels} of each, std above 0")
    mean_, std_ = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (mean, std))
    return (1 / (255 * std_)).float(), (-mean_ / std_).float()


class Augmentation(NamedTuple):
    """How images in memory are moved and mirrored."""

    border: Border  # how NumPy fills what an image leaves free
    part: int  # images move by up to this part of a side: 8 for an eighth
    flip: Literal["random", "alternate", "never"]  # "alternate": two epochs show it both ways

    def padding(self, height: int, width: int) -> int:
        """Return how many pixels an image may move by; at least one, if it has two."""
        side = min(height, width)
        return min(side - 1, max(1, round(side / self.part)))


AUGMENTATIONS = {
    "pad-crop-flip": Augmentation("constant", 8, "random"),
    "reflect-crop-flip": Augmentation("reflect", 8, "random"),
    "translate": Augmentation("reflect", 16, "never"),
    "translate-alternate": Augmentation("reflect", 16, "alternate"),
}


def draw_moves(rng: np.random.Generator, count: int, pad: int) -> npt.NDArray[np.int64]:
    """Draw (3, N): row and column of each crop in the padded image, and whether it is mirrored.

    Each of the (2 pad + 1)² offsets and both sides are as likely.
    """
    places = rng.integers(0, 2 * pad + 1, size=(2, count))
    return np.vstack([places, rng.integers(0, 2, size=count, dtype=np.uint8)])


def crop_flip(
    images: npt.NDArray[Any], moves: npt.NDArray[np.int64], pad: int, border: Border
) -> npt.NDArray[Any]:
    """Pad images (N, C, H, W), crop them back to H x W, and mirror some; see `draw_moves`."""
    top, left, mirrored = moves[0], moves[1], moves[2].astype(bool)
    padded = np.pad(images, [(0, 0)] * 2 + [(pad, pad)] * 2, mode=border)
    # All crops of all images as a view; indexing copies only the drawn ones.
    crops = np.lib.stride_tricks.sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    chosen: npt.NDArray[Any] = crops[np.arange(len(images)), :, top, left]
    chosen[mirrored] = chosen[mirrored, :, :, ::-1]
    return chosen


def digest_split(split: AnySplit) -> str:
    """A digest of samples, their labels and their order.

    Photos are not read for it, which could take hours: names, sizes and labels stand for them.
    """
    if isinstance(split, DatasetSplit):
        return split.digest
    content = hashlib.sha256()
    for tensor in (split.labels, split.inputs) if isinstance(split, Split) else (split.labels,):
        array: npt.NDArray[Any] = np.ascontiguousarray(tensor.numpy())
        content.update(f"{array.dtype}{array.shape}".encode())
        content.update(array.reshape(-1).view(np.uint8).data)
    for path in split.paths if isinstance(split, LazySplit) else ():
        # The folder above may move, as data roots do.
        content.update(f"{path.parent.name}/{path.name}|{os.stat(path).st_size}|".encode())
    return content.hexdigest()[:16]
