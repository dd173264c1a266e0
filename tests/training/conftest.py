"""What trainings read, and what they write."""

import csv
import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Noisy(Dataset[Any]):
    """Samples that are augmented by chance each time they are read; it keeps what it gave."""

    def __init__(self, features, noise=1.0):
        self._features, self._noise = features, noise
        self.given: dict[int, set[float]] = {}

    def __len__(self):
        return len(self._features[1])

    def __getitem__(self, index):
        x, y = self._features
        shift = random.random() + np.random.rand() - 1  # noqa: NPY002
        sample = x[index] + self._noise * (torch.randn(6) + shift)
        self.given.setdefault(index, set()).add(float(sample[0]))
        return sample, int(y[index])


def read_log(folder):
    """The rows of a log as texts, but for the times and the seal that covers them."""
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "sha256")} for row in rows]
