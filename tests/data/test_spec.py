from pathlib import Path

import pytest

from freetickets.data import dataset_names, get_spec, load


@pytest.mark.parametrize("name", dataset_names())
def test_every_name_has_a_consistent_spec(name, no_data):
    spec = get_spec(name)
    assert spec.name == name
    assert len(spec.mean) == len(spec.std) == spec.shape[0]
    assert len(set(spec.classes)) == len(spec.classes) in (10, 100, 1000)
    assert spec.augmentation in ("none", "pad-crop-flip", "reflect-crop-flip", "imagenet")
    assert spec.recipe in ("small", "cifar", "imagenet")
    assert list(spec.classes) == sorted(spec.classes) or name != "cifar100"
    assert "licence" in spec.source or "non-commercial" in spec.source


def test_names_and_paths_that_are_no_data_set_are_one_line_each(refused, no_data):
    Path("notes.txt").write_text("hello")
    for name, message in (
        ("cifar-10", "did you mean 'cifar10'"),
        ("", "unknown dataset ''"),
        ("./nowhere", "no such folder or file"),
        ("mine.npz", "no such folder or file"),
        ("notes.txt", "is not a data set"),
    ):
        refused(message, get_spec, name)
    assert get_spec("imagenet", image_size=64).shape == (3, 64, 64)
    refused("fixed size", get_spec, "cifar10", image_size=64)
    refused("1 or more", get_spec, "imagenet", image_size=0)
    refused("choose 'train' or 'test'", load, "fashion-mini", "validation")


def test_public_names_are_found():
    import freetickets.data as data

    for name in data.__all__:
        assert callable(getattr(data, name))
    # A submodule of the same name would hide the function once it is imported.
    assert data.load.__module__ == "freetickets.data.loading"
    with pytest.raises(AttributeError):
        _ = data.nothing
