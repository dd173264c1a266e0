import numpy as np
import pytest
import torch

from freetickets.data import load
from freetickets.data.svhn import read_mat

io = pytest.importorskip("scipy.io")


def test_images_are_turned_ten_is_zero_and_wrong_contents_are_refused(tmp_path, rng, refused):
    images = rng.integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
    io.savemat(tmp_path / "test_32x32.mat", {"X": images, "y": [[1], [9], [10], [2], [3]]})
    split = load("svhn", "test", tmp_path, download=False)
    assert split.labels.tolist() == [1, 9, 0, 2, 3]
    assert torch.equal(split.inputs[4, 2], torch.from_numpy(images[:, :, 2, 4].copy()))
    for content, message in (
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [11]]}, "label from 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1]]}, "label from 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "label from 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "does not hold images"),
        ({"y": [[1]]}, "does not hold images"),
    ):
        io.savemat(tmp_path / "test_32x32.mat", content)
        refused(message, load, "svhn", "test", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_of_numbers_are_those_that_scipy_reads(tmp_path, rng, packed):
    content = {
        "X": rng.integers(0, 256, (32, 32, 3, 7), dtype=np.uint8),
        "y": np.array([[1.0], [300.0]]),
        "tiny": np.array([[3]], np.int16),
        "wide": rng.normal(size=(5, 3)).astype(np.float32),
        "text": "left out",
    }
    io.savemat(tmp_path / "a.mat", content, do_compression=packed)
    found, expected = read_mat(tmp_path / "a.mat"), io.loadmat(tmp_path / "a.mat")
    assert set(found) == {"X", "y", "tiny", "wide"}
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], strict=True)


def test_real_house_numbers_have_all_digits_and_mostly_ones(real_data):
    labels = load("svhn", "test", real_data("test_32x32.mat"), download=False).labels
    counts = torch.bincount(labels, minlength=10)
    assert counts.min() > 0
    assert counts.argmax() == 1
