"""Datasets that are read each epoch: what is random in them is a function of its place."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from freetickets.data import Batches, DatasetSplit
from freetickets.data.loading import training_data
from freetickets.data.samples import plain_tensors


class Jittered(Dataset[Any]):
    """Twelve samples; each draws from all three generators when it is read."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        noise = [random.random(), np.random.rand(), float(torch.rand(()))]  # noqa: NPY002
        return torch.tensor([index, *noise], dtype=torch.float32), index % 3


class Given(Dataset[Any]):
    """Gives what it is told to."""

    def __init__(self, *samples):
        self._samples = samples

    def __len__(self):
        return len(self._samples)

    def __getitem__(self, index):
        return self._samples[index]


def read(dataset):
    split = training_data(dataset)[1]()
    assert isinstance(split, DatasetSplit)
    return split


def by_index(batches, epoch, start=0):
    rows = torch.cat([inputs for inputs, _ in batches.epoch(epoch, start)])
    return {int(row[0]): row[1:].tolist() for row in rows}


def states():
    numpys = np.random.get_state()[1].tolist()  # noqa: NPY002
    return random.getstate(), numpys, torch.get_rng_state().tolist()


def test_a_sample_is_a_function_of_seed_epoch_and_index_alone():
    before, split = states(), read(Jittered())
    expected, other = (by_index(Batches(split, 4, seed=5), epoch) for epoch in (2, 3))
    assert states() == before  # the generators of the process are left alone
    assert sorted(expected) == list(range(12))
    for draws in range(3):
        values = {each[draws] for epoch in (expected, other) for each in epoch.values()}
        assert len(values) == 24
    later = by_index(Batches(split, 4, seed=5), 2, start=2)
    assert len(later) == 4
    assert later == {index: expected[index] for index in later}
    assert by_index(Batches(split, 4, seed=5, workers=2), 2) == expected
    assert by_index(Batches(split, 7, seed=5, shuffle=False), 2) == expected
    halves = [by_index(Batches(split, 4, seed=5, rank=rank, world=2), 2) for rank in (0, 1)]
    assert halves[0] | halves[1] == expected
    chosen = by_index(Batches(split.subset([9, 1]), 2, seed=5), 2)
    assert chosen == {index: expected[index] for index in (1, 9)}
    assert by_index(Batches(split, 4, seed=6), 2) != expected


def test_labels_are_those_of_the_samples_as_they_are_read():
    class Turned(Dataset[Any]):
        """The label is what was drawn: how often the sample was turned."""

        def __len__(self):
            return 40

        def __getitem__(self, index):
            turns = random.randrange(3)
            return np.full(2, turns, np.float32), "abc"[turns]

    batches = Batches(read(Turned()), 8)
    seen = [torch.cat([labels for _, labels in batches.epoch(epoch)]) for epoch in (0, 1)]
    assert not torch.equal(*seen)
    for inputs, labels in batches.epoch(0):
        assert torch.equal(inputs[:, 0].long(), labels)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_in_any_layout_are_read_as_arrays_are(workers):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
    dataset = Given(*((image, np.int64(i % 2)) for i, image in enumerate(images)))
    spec, load = training_data(dataset, workers=workers)
    arrays, _ = training_data((images, np.arange(6) % 2))
    assert (spec.shape, spec.mean, spec.std) == ((3, 8, 9), arrays.mean, arrays.std)
    inputs, labels = next(Batches(load(), 6, shuffle=False, workers=workers).epoch(0))
    torch.testing.assert_close(inputs * 255, torch.from_numpy(images).permute(0, 3, 1, 2).float())
    assert labels.tolist() == [0, 1] * 3
    pillow = Given(*((Image.new("RGB", (5, 4), (i, 2, 3)), i % 2) for i in range(4)))
    assert training_data(pillow, workers=workers)[0].shape == (3, 4, 5)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([(np.zeros(3), 0)] * 5 + [(np.zeros(3), 0, 0)], "^sample 5 of .* a tuple of 3"),
        ([(np.zeros(3), {"id": 1}, 0)] * 2, r"sample 0 .* a tuple of 3 \(ndarray, dict, int\)"),
        ([(np.zeros(3),)] * 2, "a tuple of 1"),
        ([{"x": np.zeros(3), "y": 0}] * 2, r"sample 0 .* is a dict: give a pair"),
        ([np.zeros(3)] * 2, r"is a ndarray: give a pair \(input, label\)"),
        ([(np.zeros(3), 0), (np.zeros(4), 1)], r"have the shape \(3,\), others \(4,\)"),
        ([(np.zeros(3), 0), (np.full(3, np.nan), 1)], "not finite"),
        ([(np.zeros(3), 0), (np.zeros(3), 0.5)], "y has the value 0.5, which is not a class"),
        ([(np.zeros(3), torch.eye(2)[i]) for i in (0, 1)], r"y is float32 of shape \(2, 2\)"),
        ([], "the dataset is empty"),
    ],
)
def test_samples_that_are_no_pairs_of_two_are_one_line(refused, samples, message, workers):
    refused(message, training_data, Given(*samples), workers=workers)


def test_a_dataset_with_a_generator_of_its_own_is_refused_unless_it_is_seeded(refused):
    class Own(Dataset[Any]):
        def __init__(self, seeded):
            self._seeded, self._rng = seeded, np.random.default_rng(0)

        def __len__(self):
            return 6

        def __getitem__(self, index):
            if self._seeded:
                self._rng = np.random.default_rng(torch.initial_seed())
            return self._rng.random(2), index % 2

    refused(r"gives other samples .* torch\.initial_seed\(\)", training_data, Own(seeded=False))
    batches = Batches(read(Own(seeded=True)), 6, shuffle=False)
    first, again, other = (next(batches.epoch(epoch))[0] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_datasets_that_are_plain_tensors_are_found(refused):
    x, y = torch.arange(10.0)[:, None], torch.arange(10) % 2
    inner = Subset(TensorDataset(x, y), range(9, 0, -1))
    tensors = plain_tensors(Subset(inner, [0, 3]))
    assert tensors is not None
    assert [tensor.flatten().tolist() for tensor in tensors] == [[9, 6], [1, 0]]
    assert plain_tensors(Subset(Jittered(), [0])) is None
    refused("train_data has 3 tensors: it must have two", training_data, TensorDataset(x, x, y))
