"""Data given in Python: one way in, whatever is done with it."""

import doctest
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from freetickets.data import Batches, DatasetSplit, Split, loading
from freetickets.data.samples import as_inputs
from freetickets.data.spec import get_spec


class Frame:
    """A data frame, as far as anyone can tell."""

    def __init__(self, *columns):
        self._columns = columns

    def to_numpy(self):
        kinds = {np.asarray(column).dtype for column in self._columns}
        dtype = kinds.pop() if len(kinds) == 1 else object  # as pandas does with booleans
        return np.array(list(zip(*self._columns, strict=True)), dtype=dtype)


def predicted(x, shape, integers=False):
    """What the networks of an ensemble would get."""
    splits = list(loading.unlabelled(x, shape, integers, 2))
    assert all(isinstance(split, Split) for split in splits)
    return torch.cat([split.inputs for split in splits])


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12).reshape(4, 3) / 4,
        torch.arange(12).reshape(4, 3) / 4,
        torch.arange(12).reshape(4, 3).bfloat16() / 4,
        (np.arange(12).reshape(4, 3) / 4).tolist(),
        Frame([0.0, 0.5, 1.0], [1.0, 2.0, 3.0]),
        Frame([0.5, 1.5], [1, 2], [True, False]),
        Frame([True, False], [False, False]),
        np.arange(8).reshape(4, 2),
        np.zeros((4, 5, 6), np.uint8),
        np.zeros((4, 5, 6, 3), np.uint8),
        np.zeros((4, 3, 5, 6), np.uint8),
        np.zeros((4, 3, 5, 6)),
    ],
    ids=lambda x: f"{type(x).__name__}",
)
def test_what_can_be_trained_on_can_be_predicted(x):
    labels = np.arange(len(as_inputs(x))) % 2
    spec, load = loading.training_data((x, labels))
    split = loading.take_as_numbers(load())
    assert torch.equal(predicted(x, spec.shape), split.inputs)


def test_what_can_not_be_read_is_refused_alike_in_training_and_prediction(refused):
    for x, message in (
        ([[np.nan, 1.0], [0.0, 1.0]], "x has values that are not finite"),
        (Frame([0.5, np.nan], [True, False]), "x has values that are not finite"),
        (Frame([1.0, 2.0], ["a", "b"]), "x has text or missing values in it"),
        (Frame([1.0, 2.0], [None, True]), "x has text or missing values in it"),
        (np.zeros((2, 2), complex), "x is complex128 of shape"),
    ):
        refused(message, loading.training_data, (x, [0, 1]))
        refused(message, predicted, x, (2,))


def test_integers_are_token_ids_or_the_numbers_of_a_table_also_of_a_dataset(refused):
    tokens = np.arange(8, dtype=np.int32).reshape(4, 2)
    spec, load = loading.training_data((tokens, [0, 1, 0, 1]))
    assert spec.integers
    assert load().dtype == torch.int64
    assert loading.take_as_numbers(load()).dtype == torch.float32
    assert predicted(tokens, (2,), integers=True).dtype == torch.int64
    refused("was trained on integers: give integers", predicted, tokens / 2, (2,), integers=True)
    for cube in (tokens.reshape(4, 2, 1), tokens.reshape(4, 1, 2)):
        refused("x is integers of shape", predicted, cube, cube.shape[1:])
    tokens = Computed(4, lambda index: ([index, index + 1], index % 2 == 0))
    spec, load = loading.training_data(tokens)
    assert (spec.integers, spec.classes) == (True, ("False", "True"))
    assert loading.take_as_numbers(load()).dtype == torch.float32
    for integers, dtype in ((True, torch.int64), (False, torch.float32)):
        (found,) = loading.unlabelled(tokens, (2,), integers, at_once=9)
        assert found.dtype == dtype


class Computed(Dataset):
    """So many samples, each what a function gives for its index."""

    def __init__(self, count, sample):
        self._count, self._sample = count, sample

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        return self._sample(index)


def given(*samples):
    """A dataset that gives what it is told to."""
    return Computed(len(samples), samples.__getitem__)


def test_only_a_part_of_an_array_is_held_when_it_is_predicted(refused, tmp_path):
    class Watched:
        """An array that lies elsewhere, and counts the rows that it gives at a time."""

        shape, dtype, most = (100, 6), np.dtype(np.float64), 0

        def __len__(self):
            return self.shape[0]

        def __getitem__(self, rows):
            self.most = max(self.most, rows.stop - rows.start)
            return np.full((len(range(*rows.indices(len(self)))), 6), 0.5)

    watched = Watched()
    sizes = [len(split) for split in loading.unlabelled(watched, (6,), False, 8)]
    assert (sum(sizes), watched.most) == (100, 8)
    on_disk = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (100, 6))
    on_disk[7, 3] = np.nan
    parts = loading.unlabelled(on_disk, (6,), False, 4)
    assert len(next(parts)) == 4  # before the bad row is looked at
    refused("not finite", next, parts)


def test_names_tell_data_apart_and_the_page_about_it_prints_what_it_says():
    x = np.arange(12.0).reshape(6, 2)
    labels = [[0, 1] * 3, [1, 0] * 3, [1, 2] * 3, ["a", "b"] * 3, [False, True] * 3]
    names = {loading.training_data((x, y))[0].name for y in labels}
    names.add(loading.training_data((x + 1, labels[0]))[0].name)
    assert len(names) == 6
    assert loading.training_data((x, labels[0]))[0].name == "arrays-de6fff97"  # as in older runs
    page = Path(__file__).parents[2] / "docs" / "data.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 3


@pytest.mark.parametrize("data", [3, torch.zeros(4, 2), (1, 2, 3), Frame([1.0], [2.0]), Stream()])
def test_what_is_no_data_is_one_line(refused, data):
    kind = type(data).__name__
    words = rf"^train_data must be a data set's name, a pair .* with a length, not a {kind}$"
    refused(words, loading.training_data, data)


# ---- validation


def test_arrays_folders_and_files_validate_by_the_training_classes(refused, image_tree, tmp_path):
    spec, _ = loading.training_data((np.zeros((4, 2)), ["b", "a", "c", "a"]))
    name, load = loading.validation_data((np.ones((2, 2)), ["c", "a"]), spec)
    assert name.startswith("arrays-")
    assert load().labels.tolist() == [2, 0]
    words = "label 'z', which is not a class of the training"
    refused(words, loading.validation_data, (np.ones((2, 2)), ["c", "z"]), spec)
    refused(r"^validation_data must be", loading.validation_data, 7, spec)
    folder = image_tree(classes=("cat", "cow", "dog"), count=1)
    spec = get_spec(folder)
    (folder / "val" / "cow" / "0.png").unlink()
    (folder / "val" / "cow").rmdir()
    split = loading.load_validation(folder / "val", spec)
    assert split.labels.tolist() == [0, 2]
    assert split.inputs[:, 0, 0, 0].tolist() == [0, 200]
    (folder / "val" / "hen").mkdir()
    words = "hen: there is no such class in the training data"
    refused(words, loading.load_validation, folder / "val", spec)
    spec = get_spec("fashion-mini")
    images = np.zeros((3, 28, 28), np.uint8)
    np.savez(tmp_path / "v.npz", x=images, y=np.array([0, 9, 1]))
    split = loading.load_validation("v.npz", spec, tmp_path)  # below the data root
    assert split.shape == (1, 28, 28)
    assert split.labels.tolist() == [0, 9, 1]
    refused("no validation data at", loading.load_validation, "nowhere", spec, tmp_path)


def jittered(index):
    """A sample that draws from all three generators when it is read."""
    noise = [random.random(), np.random.rand(), float(torch.rand(()))]  # noqa: NPY002
    return torch.tensor([index, *noise], dtype=torch.float32), index % 3


def read(dataset):
    split = loading.training_data(dataset)[1]()
    assert isinstance(split, DatasetSplit)
    return split


def by_index(batches, epoch, start=0):
    rows = torch.cat([inputs for inputs, _ in batches.epoch(epoch, start)])
    return {int(row[0]): row[1:].tolist() for row in rows}


def states():
    numpys = np.random.get_state()[1].tolist()  # noqa: NPY002
    return random.getstate(), numpys, torch.get_rng_state().tolist()


def test_a_sample_is_a_function_of_seed_epoch_and_index_alone():
    before, split = states(), read(Computed(12, jittered))
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
    def turned(index):
        """The label is what was drawn: how often the sample was turned."""
        turns = random.randrange(3)
        return np.full(2, turns, np.float32), "abc"[turns]

    batches = Batches(read(Computed(40, turned)), 8)
    seen = [torch.cat([labels for _, labels in batches.epoch(epoch)]) for epoch in (0, 1)]
    assert not torch.equal(*seen)
    for inputs, labels in batches.epoch(0):
        assert torch.equal(inputs[:, 0].long(), labels)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_in_any_layout_are_read_as_arrays_are(workers):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
    dataset = given(*((image, np.int64(i % 2)) for i, image in enumerate(images)))
    spec, load = loading.training_data(dataset, workers=workers)
    arrays, _ = loading.training_data((images, np.arange(6) % 2))
    assert (spec.shape, spec.mean, spec.std) == ((3, 8, 9), arrays.mean, arrays.std)
    inputs, labels = next(Batches(load(), 6, shuffle=False, workers=workers).epoch(0))
    torch.testing.assert_close(inputs * 255, torch.from_numpy(images).permute(0, 3, 1, 2).float())
    assert labels.tolist() == [0, 1] * 3
    pillow = given(*((Image.new("RGB", (5, 4), (i, 2, 3)), i % 2) for i in range(4)))
    assert loading.training_data(pillow, workers=workers)[0].shape == (3, 4, 5)


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
    refused(message, loading.training_data, given(*samples), workers=workers)


def test_a_dataset_with_a_generator_of_its_own_is_refused_unless_it_is_seeded(refused):
    rng = np.random.default_rng(0)
    own = Computed(6, lambda index: (rng.random(2), index % 2))
    refused(r"gives other samples .* torch\.initial_seed\(\)", loading.training_data, own)

    def seeded(index):
        return np.random.default_rng(torch.initial_seed()).random(2), index % 2

    batches = Batches(read(Computed(6, seeded)), 6, shuffle=False)
    first, again, other = (next(batches.epoch(epoch))[0] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_datasets_that_are_plain_tensors_are_found(refused):
    x, y = torch.arange(10.0)[:, None], torch.arange(10) % 2
    inner = Subset(TensorDataset(x, y), range(9, 0, -1))
    tensors = loading.plain_tensors(Subset(inner, [0, 3]))
    assert [tensor.flatten().tolist() for tensor in tensors] == [[9, 6], [1, 0]]
    assert loading.plain_tensors(Subset(Computed(12, jittered), [0])) is None
    refused(
        "train_data has 3 tensors: it must have two", loading.training_data, TensorDataset(x, x, y)
    )
