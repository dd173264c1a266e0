"""A torch Dataset as samples to train on: read each epoch, so that its random transforms live.

Before each sample Python's, NumPy's and torch's generators are seeded by where it is used: the same
seed, epoch and index always draw the same, in whichever process that is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
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
from .split import Samples

_TWICE = 4  # samples that are read again, to see whether they are the same


@dataclass(frozen=True, eq=False)
class DatasetSplit(Samples):
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
    _held = "indices"

    @classmethod
    def open(cls, dataset: Dataset[Any], *, labelled: bool) -> DatasetSplit:
        """All samples of a Dataset, of which the first is read; if not labelled, inputs will do."""
        indices = torch.arange(len(dataset))  # type: ignore[arg-type]
        if not len(indices):
            raise FreeTicketsError("the dataset is empty")
        classes = Classes(()) if labelled else None
        split = cls(dataset, indices, torch.zeros_like(indices), classes=classes)
        inputs, _ = split.read([0])
        return replace(split, shape=tuple(inputs.shape[1:]), dtype=inputs.dtype)

    def encode(self, labels: list[Any]) -> torch.Tensor:
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
                "the dataset gives other samples when it is read again: let what is random in it "
                "draw from random, numpy.random or torch, which are seeded for each sample, or "
                "seed its own generator by torch.initial_seed() in __getitem__"
            )

    def read(
        self, places: list[int], seed: int = 0, epoch: int = 0
    ) -> tuple[torch.Tensor, list[Any]]:
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


def plain_tensors(dataset: Dataset[Any]) -> tuple[torch.Tensor, ...] | None:
    """Return the tensors that a Dataset is made of; None if it is made of something else."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, Subset):
        tensors = plain_tensors(dataset.dataset)
        return tensors and tuple(tensor[list(dataset.indices)] for tensor in tensors)
    return None


class _Reader(Dataset[Any]):
    """Reads places; gives an error as a value, which torch would wrap in a page of traceback."""

    def __init__(self, read: Callable[[list[int]], Any]) -> None:
        self._read = read

    def __getitems__(self, places: list[int]) -> Any:
        try:
            return self._read(places)
        except FreeTicketsError as error:
            return error


def read_parts(
    read: Callable[[list[int]], Any], parts: list[list[int]], workers: int
) -> Iterator[Any]:
    """Give what `read` makes of each list of places, in order, and raise an error among it."""
    loader: DataLoader[Any] = DataLoader(
        _Reader(read),
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


def _check_same(what: str, first: Any, *others: Any) -> None:
    for other in others:
        if other != first:
            raise FreeTicketsError(f"some inputs {what} {first}, others {other}: make them alike")


def _pair(sample: Any, index: int, labelled: bool) -> tuple[Any, Any]:
    """Return the input and the label of a sample that a Dataset gave."""
    is_list = isinstance(sample, (tuple, list))
    if not labelled and not is_list and not isinstance(sample, dict):
        return sample, None
    if not is_list or len(sample) != 2:
        kind = type(sample).__name__
        if is_list:
            kind += f" of {len(sample)} ({', '.join(type(part).__name__ for part in sample)})"
        raise FreeTicketsError(
            f"sample {index} of the dataset is a {kind}: it must be a pair (input, label) only"
        )
    inputs, label = sample
    return inputs, label.item() if np.ndim(label) == 0 and hasattr(label, "item") else label
