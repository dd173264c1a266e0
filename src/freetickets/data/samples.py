"""Samples with their labels: in memory, as image files, or from a torch Dataset.

A Dataset is read in each epoch, so that its random transforms take effect. Before each sample, the
generators of Python, NumPy and torch are seeded by where it is used: the same seed, epoch and index
always draw the same, whatever the process.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import FreeTicketsError
from ..seeds import derive
from ..tasks import CLASSIFICATION, Task
from ..tasks.task import Classes
from .npz import channels_first

_HOLD_OUT_SEED = 2022  # one split for every method and run, or their numbers could not be compared
_TWICE = 4  # samples that are read again, to see whether they are the same
_NUMBERS = (bool, int, float, np.bool_, np.number)


def as_array(x: Any, name: str = "x") -> npt.NDArray[Any]:
    """Return an array, a tensor, a data frame (it has `to_numpy`) or nested lists as an array."""
    if isinstance(x, Tensor):
        x = x.detach().cpu()
        # NumPy has no bfloat16.
        return (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    try:
        return np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    except ValueError as error:
        raise FreeTicketsError(f"{name} is not an array: {error}") from error


def as_inputs(x: Any) -> Tensor:
    """Return uint8 images, floats (N, ...) or integers as a network takes them, after checks."""
    array = as_array(x)
    if array.dtype == object:  # a data frame whose columns are of several types
        if not all(isinstance(value, _NUMBERS) for value in array.flat):
            raise FreeTicketsError("x has text or missing values in it: encode or fill them")
        array = array.astype(np.float64)
    if array.dtype == np.uint8:
        return as_tensor(channels_first(array))
    if array.ndim < 2 or array.dtype.kind not in "iufb":
        raise FreeTicketsError(
            f"x is {array.dtype} of shape {array.shape}: give uint8 images or floats (N, ...)"
        )
    if array.dtype.kind in "iu":
        return as_tensor(array.astype(np.int64, copy=False))
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite: refused below
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise FreeTicketsError("x has values that are not finite: remove NaN and infinity")
    return as_tensor(array)


def as_numbers(inputs: Tensor) -> Tensor:
    """Return inputs for a network without an embedding: the integers of a table are numbers."""
    if inputs.dtype != torch.int64:
        return inputs
    if inputs.ndim != 2:
        raise FreeTicketsError(
            f"x is integers of shape {(*inputs.shape,)}: give uint8 images or floats"
        )
    return inputs.float()


@contextmanager
def looked_up(inputs: Tensor) -> Iterator[None]:
    """Says it in one line if a network has no embedding for one of its integers."""
    try:
        yield
    except IndexError as error:
        if inputs.dtype != torch.int64:
            raise
        raise FreeTicketsError(
            f"the network can't look up all integers from {int(inputs.min())} to "
            f"{int(inputs.max())}: give its nn.Embedding more rows, or smaller integers"
        ) from error


def as_tensor(array: npt.NDArray[Any]) -> Tensor:
    """Return an array as a tensor, of the same memory if that will do."""
    # Torch wants memory that is writable and in order; NumPy's files and views may be neither.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


class Samples:
    """What all splits have in common: labels, and one other thing of each sample."""

    labels: Tensor
    _held: ClassVar[str]  # the field of that other thing

    def __post_init__(self) -> None:
        if (inputs := len(getattr(self, self._held))) != (labels := len(self.labels)):
            raise FreeTicketsError(f"{inputs} inputs but {labels} labels: each needs one")

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self: "Kind", indices: Tensor | Sequence[int]) -> "Kind":
        """Return the samples at the indices, in their order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        split: Any = self
        held = getattr(self, self._held)
        held = tuple(held[i] for i in chosen.tolist()) if type(held) is tuple else held[chosen]
        return replace(split, **{self._held: held, "labels": self.labels[chosen]})


@dataclass(frozen=True, eq=False)
class Split(Samples):
    """Samples held in memory.

    Attributes:
        inputs: uint8 images (N, C, H, W); or float32 features, or int64 token ids, (N, ...), ready
            for the network.
        labels: int64 (N,); float32 (N, ...) where they are numbers, not classes.
    """

    inputs: Tensor
    labels: Tensor
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
    """Images on disk, for sets that do not fit in memory; `Batches` decodes them in its workers.

    Attributes:
        paths: One file for each sample.
        labels: int64 (N,).
        shape: Channels, height and width of an image after its crop.
        cropped: Whether the files are already cropped to that shape, like those of ImageNet-C.
    """

    paths: tuple[Path, ...]
    labels: Tensor
    shape: tuple[int, int, int]
    cropped: bool = False
    dtype: ClassVar[torch.dtype] = torch.uint8
    _held = "paths"

    @classmethod
    def of(
        cls, files: Sequence[tuple[Path, int]], shape: tuple[int, int, int], cropped: bool = False
    ) -> "LazySplit":
        """The images of files with their labels."""
        paths, labels = zip(*files, strict=True)
        return cls(paths, torch.tensor(labels), shape, cropped)


@dataclass(frozen=True, eq=False)
class DatasetSplit(Samples):
    """Samples that a torch Dataset returns on request.

    Attributes:
        dataset: Returns pairs (input, label), with all inputs of one shape.
        indices: Which of its samples to use, int64 (N,).
        labels: The labels as networks learn them, (N, ...), from when the dataset was first read.
        shape: The shape of one input; empty until known.
        dtype: uint8 for images, float32, or int64 for token ids; None until known.
        classes: The classes that its labels name; None if labels are ignored.
        task: What its labels are for.
        digest: A digest of the whole dataset, once it has been read.
    """

    dataset: Dataset[Any]
    indices: Tensor
    labels: Tensor
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    classes: Classes | None = None
    task: Task = CLASSIFICATION
    digest: str = ""
    _held = "indices"

    @classmethod
    def open(cls, dataset: Dataset[Any], *, labelled: bool) -> "DatasetSplit":
        """All samples of a Dataset, of which the first is read; if not labelled, inputs will do."""
        indices = torch.arange(len(dataset))  # type: ignore[arg-type]
        if not len(indices):
            raise FreeTicketsError("the dataset is empty")
        classes = Classes(()) if labelled else None
        split = cls(dataset, indices, torch.zeros_like(indices), classes=classes)
        inputs, _ = split.read([0])
        return replace(split, shape=tuple(inputs.shape[1:]), dtype=inputs.dtype)

    def encode(self, labels: list[Any]) -> Tensor:
        """Return labels as the dataset gives them as networks learn them."""
        if self.classes is None:
            return torch.zeros(len(labels), dtype=torch.int64)
        return as_tensor(self.task.targets(as_array(labels, "y"), self.classes))

    def check_repeatable(self) -> None:
        """Raise if reading the first samples once more gives others."""
        places = list(range(min(_TWICE, len(self))))
        (first, labels), (second, again) = self.read(places), self.read(places)
        if not torch.equal(first, second) or repr(labels) != repr(again):
            raise FreeTicketsError(
                "the dataset gives other samples when it is read again: let it draw from random, "
                "numpy.random or torch, or from what torch.initial_seed() seeds in __getitem__"
            )

    def read(self, places: list[int], seed: int = 0, epoch: int = 0) -> tuple[Tensor, list[Any]]:
        """Return the inputs at some places, stacked, and their labels as the dataset has them."""
        if not places:  # of a batch smaller than the number of ranks
            return torch.empty((0, *self.shape), dtype=self.dtype), []
        samples = []
        # The generators of the process are the user's: they are left as they were.
        kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            for index in self.indices[places].tolist():
                own = derive(seed, epoch, "sample", index)
                random.seed(own)
                np.random.seed(own % 2**32)  # noqa: NPY002
                torch.default_generator.manual_seed(own)
                samples.append(_pair(self.dataset[index], index, self.classes is not None))
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])  # noqa: NPY002
            torch.set_rng_state(kept[2])
        arrays = [as_array(each) for each, _ in samples]
        _check_same("have the shape", *(array.shape for array in arrays))
        inputs = as_inputs(np.stack(arrays))
        if self.dtype is not None:
            _check_same("have the shape", self.shape, tuple(inputs.shape[1:]))
            inputs = as_numbers(inputs) if self.dtype == torch.float32 else inputs
            _check_same("are", self.dtype, inputs.dtype)
        return inputs, [label for _, label in samples]


AnySplit = Split | LazySplit | DatasetSplit
Kind = TypeVar("Kind", bound=Samples)
_Part = TypeVar("_Part")


def hold_out(split: Kind, fraction: float) -> tuple[Kind, Kind | None]:
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


def take(split: Kind, samples: int | None) -> Kind:
    """Take this many samples, or all for None: the same share of each class, always the same ones.

    The number from each class is rounded.

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
        raise FreeTicketsError(f"{samples:,} samples leave {missing} classes empty: choose more")
    return taken


def _share(split: Samples, fraction: float) -> npt.NDArray[np.bool_]:
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
    """Make a split from your own arrays or tensors, after checking them.

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


def read_parts(get: Callable[[_Part], Any], parts: Sequence[_Part], jobs: int) -> Iterator[Any]:
    """Give what `get` makes of each part, in order, in so many processes; raise an error among it.

    Parts are lists of places, or what else says what is to be read or made.
    """
    loader: DataLoader[Any] = DataLoader(
        parts,  # type: ignore[arg-type]
        batch_size=None,  # a part is a batch
        num_workers=jobs,
        collate_fn=partial(_read_part, get),
        worker_init_fn=_leave_interrupts,
        # Its own, or the loader would draw from the global one and change the training.
        generator=torch.Generator(),
    )
    for found in loader:
        if isinstance(found, FreeTicketsError):
            raise found
        yield found


def _read_part(get: Callable[[_Part], Any], part: _Part) -> Any:
    try:
        return get(part)
    except FreeTicketsError as error:  # which torch would wrap in a page of traceback
        return error


def _leave_interrupts(worker: int) -> None:
    signal(SIGINT, SIG_IGN)  # Ctrl-C is for the process that hands out the parts


def _check_same(what: str, first: Any, *others: Any) -> None:
    for other in others:
        if other != first:
            raise FreeTicketsError(f"some inputs {what} {first}, others {other}: make them alike")


def _pair(sample: Any, index: int, labelled: bool) -> tuple[Any, Any]:
    is_list = isinstance(sample, (tuple, list))
    if not labelled and not is_list and not isinstance(sample, dict):
        return sample, None
    if not is_list or len(sample) != 2:
        kind = type(sample).__name__
        if is_list:
            kind += f" of {len(sample)} ({', '.join(type(part).__name__ for part in sample)})"
        raise FreeTicketsError(
            f"sample {index} of the dataset is a {kind}: give a pair (input, label)"
        )
    inputs, label = sample
    return inputs, label.item() if np.ndim(label) == 0 and hasattr(label, "item") else label
