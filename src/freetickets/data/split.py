"""Samples with their labels: held in memory, or images decoded when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from .inputs import as_array, as_inputs, as_numbers, as_tensor

if TYPE_CHECKING:
    from typing_extensions import Self

_HOLD_OUT_SEED = 2022  # one split for every method and run, or their numbers could not be compared


class Samples:
    """What all splits have in common: labels, and one other thing of each sample."""

    labels: torch.Tensor
    _held: ClassVar[str]  # the field of that other thing

    def __post_init__(self) -> None:
        if (inputs := len(getattr(self, self._held))) != (labels := len(self.labels)):
            raise FreeTicketsError(
                f"{inputs} inputs but {labels} labels: there must be one for each"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: torch.Tensor | Sequence[int]) -> Self:
        """Return the samples at the indices, in their order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        split: Any = self
        held = getattr(self, self._held)
        held = tuple(held[i] for i in chosen.tolist()) if type(held) is tuple else held[chosen]
        found: Self = replace(split, **{self._held: held, "labels": self.labels[chosen]})
        return found


@dataclass(frozen=True, eq=False)
class Split(Samples):
    """Samples held in memory.

    Attributes:
        inputs: uint8 images (N, C, H, W); or float32 features, or int64 token ids, (N, ...), ready
            for the network.
        labels: int64 (N,); float32 (N, ...) where they are numbers, not classes.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    _held = "inputs"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.inputs.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """What the samples are made of; uint8 for images."""
        return self.inputs.dtype


@dataclass(frozen=True, eq=False)
class LazySplit(Samples):
    """Images on disk, for sets that memory does not hold; `Batches` decodes them in its workers.

    Attributes:
        paths: One file for each sample.
        labels: int64 (N,).
        shape: Channels, height and width of an image after its crop.
        cropped: Whether the files have been cropped to that shape, as those of ImageNet-C.
    """

    paths: tuple[Path, ...]
    labels: torch.Tensor
    shape: tuple[int, int, int]
    cropped: bool = False
    dtype: ClassVar[torch.dtype] = torch.uint8
    _held = "paths"

    @classmethod
    def of(
        cls, files: Sequence[tuple[Path, int]], shape: tuple[int, int, int], cropped: bool = False
    ) -> LazySplit:
        """The images of files with their labels."""
        paths, labels = zip(*files, strict=True)
        return cls(paths, torch.tensor(labels), shape, cropped)


AnySplit = TypeVar("AnySplit", bound=Samples)


def hold_out(split: AnySplit, fraction: float) -> tuple[AnySplit, AnySplit | None]:
    """Split off a validation set: the same share of each class, always the same samples.

    Returns what is left to train on, and the validation samples (None for a fraction of 0).

    Example:
        >>> data = arrays(np.zeros((50, 2), np.float32), np.arange(50) % 5)
        >>> train, validation = hold_out(data, 0.2)
        >>> len(train), torch.bincount(validation.labels).tolist()
        (40, [2, 2, 2, 2, 2])
    """
    if not 0 <= fraction < 1:
        raise FreeTicketsError(f"hold-out fraction {fraction}: choose it from 0 to below 1")
    if fraction == 0:
        return split, None
    held = _share(split, fraction)
    if not held.any() or held.all():
        raise FreeTicketsError(f"hold-out fraction {fraction} of {len(held)} leaves a side empty")
    kept, taken = (torch.from_numpy(np.flatnonzero(mask)) for mask in (~held, held))
    return split.subset(kept), split.subset(taken)


def take(split: AnySplit, samples: int | None) -> AnySplit:
    """Take so many samples, or all for None: the same share of each class, always the same ones.

    Within classes numbers are rounded.

    Example:
        >>> data = arrays(np.zeros((50, 2), np.float32), np.arange(50) % 5)
        >>> torch.bincount(take(data, 20).labels).tolist()
        [4, 4, 4, 4, 4]
    """
    if samples is None or samples == len(split):
        return split
    if samples > len(split):
        raise FreeTicketsError(
            f"train_samples is {samples:,}, but there are {len(split):,} to train on: choose fewer"
        )
    taken = split.subset(torch.from_numpy(np.flatnonzero(_share(split, samples / len(split)))))
    if missing := len(np.unique(_strata(split))) - len(np.unique(_strata(taken))):
        raise FreeTicketsError(
            f"{samples:,} training samples leave {missing} classes without one: choose more"
        )
    return taken


def _share(split: Samples, fraction: float) -> npt.NDArray[np.bool_]:
    """Which samples are the share of each class."""
    labels = _strata(split)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        rng = np.random.default_rng([_HOLD_OUT_SEED, int(label)])
        chosen[rng.permutation(members)[: round(fraction * len(members))]] = True
    return chosen


def _strata(split: Samples) -> npt.NDArray[np.int64]:
    """What samples are drawn alike from: classes; numbers are all of one kind."""
    labels: npt.NDArray[Any] = split.labels.numpy()
    return labels if labels.dtype.kind in "iu" else np.zeros(len(labels), np.int64)


def arrays(x: Any, y: Any) -> Split:
    """Make a split of anyone's arrays or tensors, after checking them.

    Args:
        x: uint8 images (N, H, W), (N, C, H, W) or (N, H, W, C); or numbers (N, ...).
        y: Integer labels (N,), from 0.

    Example:
        >>> arrays(np.zeros((8, 32, 32, 3), np.uint8), np.arange(8)).inputs.shape
        torch.Size([8, 3, 32, 32])
    """
    inputs, labels = as_numbers(as_inputs(x)), as_array(y, "y")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise FreeTicketsError(f"y is {labels.dtype} {labels.shape}: labels are integers (N,)")
    if len(labels) == 0:
        raise FreeTicketsError("x and y are empty")
    if labels.min() < 0:
        raise FreeTicketsError(f"y has the label {labels.min()}: labels count from 0")
    return Split(inputs, as_tensor(labels.astype(np.int64)))
