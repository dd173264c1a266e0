"""A digest of training data: a run that is resumed must find what it began with."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import numpy.typing as npt
import torch

from .batches import AnySplit
from .dataset import DatasetSplit
from .split import Split


def digest_split(split: AnySplit) -> str:
    """A digest of samples, their labels and their order.

    Photos on disk are not read for it, which could take hours: their names, sizes and labels
    stand for them.

    Example:
        >>> one = Split(torch.zeros(2, 3), torch.tensor([0, 1]))
        >>> other = Split(torch.zeros(2, 3), torch.tensor([1, 0]))
        >>> digest_split(one) == digest_split(other)
        False
    """
    if isinstance(split, DatasetSplit):
        return split.digest
    content = hashlib.sha256()
    _add(content, split.labels)
    if isinstance(split, Split):
        _add(content, split.inputs)
    else:
        for path in split.paths:  # the folder above may move, as data roots do
            content.update(f"{path.parent.name}/{path.name}|{os.stat(path).st_size}|".encode())
    return content.hexdigest()[:16]


def _add(content: hashlib._Hash, tensor: torch.Tensor) -> None:
    array: npt.NDArray = np.ascontiguousarray(tensor.numpy())
    content.update(f"{array.dtype}{array.shape}".encode())
    content.update(array.reshape(-1).view(np.uint8).data)
