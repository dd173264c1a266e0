"""A torch Dataset as samples to train on: read each epoch, so that its random transforms live.

Before each sample Python's, NumPy's and torch's generators are seeded by where it is used: the same
seed, epoch and index always draw the same, in whichever process that is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ..errors import FreeTicketsError
from ..seeds import derive
from ..tasks import CLASSIFICATION, Task
from ..tasks.labels import Classes
from .inputs import as_array, as_inputs, as_numbers, as_tensor

_TWICE = 4  # samples that are read again, to see whether they are the same


@dataclass(frozen=True, eq=False)
class DatasetSplit:
    """Samples that a torch Dataset gives when it is asked for them.

    Attributes:
        dataset: Gives pairs (input, label), all inputs of one shape.
        indices: Which of its samples, int64 (N,).
        labels: As networks learn them, (N, ...), when the dataset was first read.
        shape: Of one input; empty before that is known.
        dtype: uint8 for images, float32, or int64 for token ids; None before that is known.
        classes: Those that its labels name; None if labels are not looked at.
        task: What its labels are for.
        digest: Of all that the whole dataset holds, once that has been read.
    """

    dataset: Dataset[Any]
    indices: torch.Tensor
    labels: torch.Tensor
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    classes: Classes | None = None
    task: Task = CLASSIFICATION
    digest: str = ""

    @classmethod
    def open(cls, dataset: Dataset[Any], *, labelled: bool) -> DatasetSplit:
        """All samples of a Dataset, of which the first is read; if not labelled, inputs will do."""
        indices = torch.arange(len(dataset))  # type: ignore[arg-type]
        if not len(indices):
            raise FreeTicketsError("the dataset is empty")
        classes = Classes(()) if labelled else None
        split = cls(dataset, indices, torch.zeros_like(indices), classes=classes)
        inputs, _ = SeededReader(split).read([0])
        return replace(split, shape=tuple(inputs.shape[1:]), dtype=inputs.dtype)

    def __len__(self) -> int:
        return len(self.indices)

    def subset(self, indices: torch.Tensor | Sequence[int]) -> DatasetSplit:
        """Return the samples at the indices, in their order."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return replace(self, indices=self.indices[chosen], labels=self.labels[chosen])

    def encode(self, labels: list[Any]) -> torch.Tensor:
        """Return labels as the dataset gives them as networks learn them."""
        if self.classes is None:
            return torch.zeros(len(labels), dtype=torch.int64)
        return as_tensor(self.task.targets(as_array(labels, "y"), self.classes))

    def check_repeatable(self) -> None:
        """Raise if reading the first samples once more gives others."""
        reader, places = SeededReader(self), list(range(min(_TWICE, len(self))))
        (first, labels), (second, again) = reader.read(places), reader.read(places)
        if not torch.equal(first, second) or repr(labels) != repr(again):
            raise FreeTicketsError(
                "the dataset gives other samples when it is read again: let what is random in it "
                "draw from random, numpy.random or torch, which are seeded for each sample, or "
                "seed its own generator by torch.initial_seed() in __getitem__"
            )


def plain_tensors(dataset: Dataset[Any]) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors that a Dataset is made of; None if it is made of something else."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, Subset):
        tensors = plain_tensors(dataset.dataset)
        return tensors and tuple(tensor[list(dataset.indices)] for tensor in tensors)
    return None


class SeededReader(Dataset[Any]):
    """Reads samples of a Dataset, each with the generators seeded by seed, epoch and its place."""

    def __init__(self, split: DatasetSplit, seed: int = 0, epoch: int = 0) -> None:
        self._split, self._key = split, (seed, epoch)

    def __getitems__(self, places: list[int]) -> Any:
        try:
            return self.read(places)
        except FreeTicketsError as error:  # for torch would wrap it in a page of traceback
            return error

    def read(self, places: list[int]) -> tuple[torch.Tensor, list[Any]]:
        """Return the inputs at some places, stacked, and their labels as the dataset has them."""
        split, samples = self._split, []
        if not places:  # of a batch smaller than the number of ranks
            return torch.empty((0, *split.shape), dtype=split.dtype), []
        # The generators of the process are the user's: they are left as they were.
        kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        try:
            for index in split.indices[places].tolist():
                seed = derive(*self._key, "sample", index)
                random.seed(seed)
                np.random.seed(seed % 2**32)  # noqa: NPY002
                torch.default_generator.manual_seed(seed)
                samples.append(_pair(split.dataset[index], index, split.classes is not None))
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])  # noqa: NPY002
            torch.set_rng_state(kept[2])
        labels = [label for _, label in samples]
        arrays = [as_array(each) for each, _ in samples]
        _check_same("have the shape", [array.shape for array in arrays])
        inputs = as_inputs(np.stack(arrays))
        if split.dtype is None:
            return inputs, labels
        _check_same("have the shape", [split.shape, tuple(inputs.shape[1:])])
        if split.dtype == torch.float32:
            inputs = as_numbers(inputs)
        _check_same("are", [split.dtype, inputs.dtype])
        return inputs, labels


def read_parts(reader: Dataset[Any], parts: list[list[int]], workers: int) -> Iterator[Any]:
    """Give what a reader makes of each list of places, in order, and raise an error among it."""
    loader: DataLoader[Any] = DataLoader(
        reader,
        batch_sampler=parts,
        num_workers=workers,
        collate_fn=_as_it_is,
        # Its own, or the loader would draw from the global one and change the training.
        generator=torch.Generator(),
    )
    for found in loader:
        if isinstance(found, FreeTicketsError):
            raise found
        yield found


def _as_it_is(batch: Any) -> Any:
    return batch


def _check_same(what: str, values: Sequence[Any]) -> None:
    for value in values[1:]:
        if value != values[0]:
            raise FreeTicketsError(
                f"some inputs {what} {values[0]}, others {value}: make them alike"
            )


def _pair(sample: Any, index: int, labelled: bool) -> tuple[Any, Any]:
    """Return the input and the label of a sample that a Dataset gave."""
    if not labelled and not isinstance(sample, (tuple, list, dict)):
        return sample, None
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        kind = type(sample).__name__
        if isinstance(sample, (tuple, list)):
            kind += f" of {len(sample)} ({', '.join(type(part).__name__ for part in sample)})"
        raise FreeTicketsError(
            f"sample {index} of the dataset is a {kind}: it must be a pair (input, label) only"
        )
    inputs, label = sample
    return inputs, label.item() if np.ndim(label) == 0 and hasattr(label, "item") else label
