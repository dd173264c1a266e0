"""Data given in Python: one way in, whatever is done with it."""

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from freetickets.data import Split
from freetickets.data.loading import (
    load_validation,
    take_as_numbers,
    training_data,
    unlabelled,
    validation_data,
)
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
    splits = list(unlabelled(x, shape, integers, 2))
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
    spec, load = training_data((x, labels))
    split = take_as_numbers(load())
    assert isinstance(split, Split)
    assert torch.equal(predicted(x, spec.shape), split.inputs)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[np.nan, 1.0], [0.0, 1.0]], "x has values that are not finite"),
        (Frame([0.5, np.nan], [True, False]), "x has values that are not finite"),
        (Frame([1.0, 2.0], ["a", "b"]), "x has text or missing values in it"),
        (Frame([1.0, 2.0], [None, True]), "x has text or missing values in it"),
        (np.zeros((2, 2), complex), "x is complex128 of shape"),
    ],
)
def test_what_can_not_be_read_is_refused_alike_in_training_and_prediction(refused, x, message):
    refused(message, training_data, (x, [0, 1]))
    refused(message, predicted, x, (2,))


def test_integers_are_token_ids_or_the_numbers_of_a_table(refused):
    tokens = np.arange(8, dtype=np.int32).reshape(4, 2)
    spec, load = training_data((tokens, [0, 1, 0, 1]))
    assert spec.integers
    assert load().dtype == torch.int64
    assert take_as_numbers(load()).dtype == torch.float32
    assert predicted(tokens, (2,), integers=True).dtype == torch.int64
    refused("was trained on integers: give integers", predicted, tokens / 2, (2,), integers=True)
    for cube in (tokens.reshape(4, 2, 1), tokens.reshape(4, 1, 2)):
        refused("x is integers of shape", predicted, cube, cube.shape[1:])


class Tokens(Dataset[Any]):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return [index, index + 1], index % 2 == 0


def test_the_integers_of_a_dataset_are_taken_as_those_of_an_array():
    spec, load = training_data(Tokens())
    assert (spec.integers, spec.classes) == (True, ("False", "True"))
    assert take_as_numbers(load()).dtype == torch.float32
    for integers, dtype in ((True, torch.int64), (False, torch.float32)):
        (found,) = unlabelled(Tokens(), (2,), integers, at_once=9)
        assert found.dtype == dtype


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
    sizes = [len(split) for split in unlabelled(watched, (6,), False, 8)]
    assert (sum(sizes), watched.most) == (100, 8)
    on_disk = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (100, 6))
    on_disk[7, 3] = np.nan
    parts = unlabelled(on_disk, (6,), False, 4)
    assert len(next(parts)) == 4  # before the bad row is looked at
    refused("not finite", next, parts)


def test_names_tell_samples_labels_and_classes_apart():
    x = np.arange(12.0).reshape(6, 2)
    labels: list[Any] = [[0, 1] * 3, [1, 0] * 3, [1, 2] * 3, ["a", "b"] * 3, [False, True] * 3]
    names = {training_data((x, y))[0].name for y in labels}
    names.add(training_data((x + 1, labels[0]))[0].name)
    assert len(names) == 6
    assert training_data((x, labels[0]))[0].name == "arrays-de6fff97"  # as in older runs


class Stream(IterableDataset[Any]):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 3


@pytest.mark.parametrize("data", [3, torch.zeros(4, 2), (1, 2, 3), Frame([1.0], [2.0]), Stream()])
def test_what_is_no_data_is_one_line(refused, data):
    kind = type(data).__name__
    words = rf"^train_data must be a data set's name, a pair .* with a length, not a {kind}$"
    refused(words, training_data, data)


def test_the_page_about_data_prints_what_it_says():
    page = Path(__file__).parents[2] / "docs" / "data.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0


# ---- validation


def test_validation_data_has_the_classes_of_the_training_data(refused):
    spec, _ = training_data((np.zeros((4, 2)), ["b", "a", "c", "a"]))
    name, load = validation_data((np.ones((2, 2)), ["c", "a"]), spec)
    assert name.startswith("arrays-")
    assert load().labels.tolist() == [2, 0]
    words = "label 'z', which is not a class of the training"
    refused(words, validation_data, (np.ones((2, 2)), ["c", "z"]), spec)
    refused(r"^validation_data must be", validation_data, 7, spec)


def test_a_folder_of_classes_is_validation_data(refused, image_tree):
    folder = image_tree(classes=("cat", "cow", "dog"), count=1)
    spec = get_spec(folder)
    (folder / "val" / "cow" / "0.png").unlink()
    (folder / "val" / "cow").rmdir()
    split = load_validation(folder / "val", spec)
    assert isinstance(split, Split)
    assert split.labels.tolist() == [0, 2]
    assert split.inputs[:, 0, 0, 0].tolist() == [0, 200]
    (folder / "val" / "hen").mkdir()
    words = "hen: there is no such class in the training data"
    refused(words, load_validation, folder / "val", spec)


def test_an_npz_of_x_and_y_is_validation_data(refused, tmp_path):
    spec = get_spec("fashion-mini")
    images = np.zeros((3, 28, 28), np.uint8)
    np.savez(tmp_path / "v.npz", x=images, y=np.array([0, 9, 1]))
    split = load_validation("v.npz", spec, tmp_path)  # below the data root
    assert split.shape == (1, 28, 28)
    assert split.labels.tolist() == [0, 9, 1]
    refused("no validation data at", load_validation, "nowhere", spec, tmp_path)
