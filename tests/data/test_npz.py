import numpy as np
import pytest
import torch

from freetickets.data import Batches, get_spec, load
from freetickets.data.npz import read_arrays

IMAGES = {
    "x_train": np.zeros((6, 8, 8, 3), np.uint8),
    "y_train": np.arange(6) % 3,
    "x_test": np.ones((4, 8, 8, 3), np.uint8),
    "y_test": np.arange(4) % 3,
}
FEATURES = IMAGES | {"x_train": np.zeros((6, 5)), "x_test": np.ones((4, 5))}


@pytest.fixture
def write(tmp_path):
    def save(**content):
        np.savez_compressed(tmp_path / "mine.npz", **content)
        return tmp_path / "mine.npz"

    return save


def test_images_of_any_layout_and_features_are_a_data_set(write):
    spec = get_spec(write(**IMAGES))
    assert (spec.shape, spec.train_size, spec.test_size) == ((3, 8, 8), 6, 4)
    assert spec.classes == ("0", "1", "2")
    assert (len(spec.mean), spec.augmentation, spec.recipe) == (3, "none", "small")
    split = load(spec, "test")
    assert split.inputs.shape == (4, 3, 8, 8)
    assert split.inputs.dtype == torch.uint8
    spec = get_spec(write(**FEATURES, classes=np.array(["a", "b", "c"])))
    assert (spec.shape, spec.classes, spec.mean) == ((5, 1, 1), ("a", "b", "c"), ())
    split = load(spec, "train")
    assert split.inputs.shape == (6, 5, 1, 1)
    x, _ = next(Batches(split, 6, mean=spec.mean, std=spec.std).epoch(0))
    assert x.dtype == torch.float32
    x = {"x_train": np.zeros((6, 3, 8, 8)), "x_test": np.zeros((4, 3, 8, 8))}
    spec = get_spec(write(**(IMAGES | x)))
    assert (spec.shape, spec.mean) == ((3, 8, 8), ())


def test_the_spec_and_loading_say_what_is_wrong(refused, write):
    for change, message in (
        ({"y_test": np.arange(3)}, "not one a row"),
        ({"y_train": np.zeros((6, 1), int)}, "not one a row"),
        ({"x_test": np.ones((4, 8, 9, 3), np.uint8)}, "differ in shape"),
        ({"x_test": np.ones((0, 8, 8, 3), np.uint8)}, "empty"),
        ({"x_train": np.zeros((6, 8), int)}, "not uint8 images or floats"),
        ({"x_train": np.zeros((6, 8, 2))}, r"are \(N, F\) or"),
        ({"y_train": np.zeros(6)}, "integers from 0"),
        ({"y_train": np.arange(6) - 1}, "integers from 0"),
        ({"y_train": np.arange(6) * 10}, "label 50 of 6 samples"),
        ({"classes": np.arange(3)}, "must be two or more strings"),
        ({"x_test": None, "y_test": None}, "lacks x_test, y_test: it needs"),
    ):
        content = {key: value for key, value in (IMAGES | change).items() if value is not None}
        refused(message, get_spec, write(**content))
    path = write(**(FEATURES | {"y_test": np.array([0, 1, 2, 3])}))
    refused("the label 3, but only 3 classes", load, path, "test")
    path = write(**(FEATURES | {"x_test": np.full((4, 5), np.nan)}))
    refused(r"mine\.npz: x_test has 20 values", load, path, "test")
    refused("no array 'z', only: x_train, y_train", read_arrays, path, "z")
