"""Trainings that end before they are done, in this process."""

import csv
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from freetickets.training.progress import Reporter


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


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


def kill():
    """Ends the process, as far as a training can tell."""
    raise Killed


@pytest.fixture
def at_step(monkeypatch):
    """Makes something happen at a step, counted from now on; at step 0 nothing ever does."""

    def set_up(step, action=kill):
        count = itertools.count(1)
        monkeypatch.setattr(Reporter, "step", lambda *_: next(count) == step and action())

    return set_up


@pytest.fixture
def killed_at(at_step):
    """Trains, and is killed at steps counted in each of its lives."""

    def run(train, *steps):
        for step in steps:
            at_step(step)
            with pytest.raises(Killed):
                train()
        at_step(0)

    return run
