from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets.data import LazySplit, Split, arrays, hold_out, take
from freetickets.errors import FreeTicketsError

LABELS = np.arange(4)


def test_arrays_takes_numpy_and_torch_alike_and_says_what_is_wrong(rng, refused):
    x = rng.integers(0, 256, (4, 3, 8, 9), dtype=np.uint8)
    expected = torch.from_numpy(x)
    for given_x in (x, expected, x.transpose(0, 2, 3, 1)):
        assert torch.equal(arrays(given_x, LABELS).inputs, expected)
    assert torch.equal(arrays(x[:, 0], torch.from_numpy(LABELS)).inputs, expected[:, :1])
    for x, y, message in (
        (np.full((4, 2), np.nan), LABELS, "not finite"),
        (np.full((4, 2), 1e300), LABELS, "not finite"),
        (np.zeros((4, 2)), LABELS[:3], "4 inputs but 3 labels"),
        (np.zeros((4, 2, 2), np.int64), LABELS, "uint8 images or float"),
        (np.zeros(4), LABELS, "uint8 images or float"),
        (np.zeros((4, 2), np.uint8), LABELS, "images are"),
        (np.zeros((4, 2)), LABELS.astype(float), "labels are integers"),
        (np.zeros((4, 2)), LABELS[:, None], "labels are integers"),
        (np.zeros((4, 2)), LABELS - 1, "label -1"),
        (np.zeros((0, 2)), LABELS[:0], "empty"),
        ([[1.0], [1.0, 2.0]], LABELS, "x is not an array"),
    ):
        refused(message, arrays, x, y)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_arrays_makes_float32_of_any_float(dtype):
    split = arrays(np.arange(8).reshape(4, 2).astype(dtype), LABELS.astype(np.uint8))
    assert split.inputs.dtype == torch.float32
    assert split.inputs.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert split.labels.dtype == torch.int64
    x = np.zeros((4, 2), np.float32)
    x.setflags(write=False)
    assert len(arrays(x[::-1], LABELS)) == 4


def test_splits_give_subsets_and_shares_that_are_always_the_same(refused):
    labels = torch.arange(5)
    memory = Split(torch.arange(5.0)[:, None], labels).subset([4, 0])
    disk = LazySplit(tuple(Path(str(i)) for i in range(5)), labels, (3, 8, 8)).subset([4, 0])
    assert memory.inputs.flatten().tolist() == [4, 0]
    assert disk.paths == (Path("4"), Path("0"))
    assert memory.labels.tolist() == disk.labels.tolist() == [4, 0]
    with pytest.raises(FreeTicketsError):
        LazySplit((Path("0"),), labels, (3, 8, 8))
    split = Split(torch.arange(100.0)[:, None], torch.zeros(100, dtype=torch.int64))
    held = hold_out(split, 0.1)[1].inputs.flatten().int().tolist()
    # Pinned: another choice would make old and new results incomparable.
    assert held[:4] == [0, 6, 14, 42]
    assert take(split, None) is split
    refused("is 101, but there are 100 to train on", take, split, 101)
    split = Split(torch.zeros(4, 1), torch.arange(4))
    assert hold_out(split, 0) == (split, None)
    for fraction in (-0.1, 1.0, 0.01):
        refused("hold-out", hold_out, split, fraction)


@settings(deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=20, max_size=200), fraction=st.floats(0.2, 0.8))
def test_hold_out_takes_each_sample_once_and_the_share_of_each_class(labels, fraction):
    y = torch.tensor(labels)
    split = Split(torch.arange(len(y)).float()[:, None], y)
    train, validation = hold_out(split, fraction)
    seen = torch.cat([train.inputs, validation.inputs]).flatten()
    assert sorted(seen.tolist()) == list(range(len(y)))
    for label in set(labels):
        assert (validation.labels == label).sum() == round(fraction * labels.count(label))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=8, max_size=60), st.data())
def test_take_has_the_share_of_each_class(refused, labels, data):
    split = arrays(np.arange(len(labels), dtype=np.float32)[:, None], np.array(labels))
    samples = data.draw(st.integers(1, len(labels)))
    wanted = {c: round(samples / len(labels) * labels.count(c)) for c in set(labels)}
    if 0 in wanted.values():
        refused("classes empty: choose more", take, split, samples)
        return
    taken = take(split, samples)
    assert {c: int((taken.labels == c).sum()) for c in wanted} == wanted
    assert len(taken.inputs.unique()) == len(taken)
