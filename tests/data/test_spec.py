import subprocess
import sys
from pathlib import Path

import pytest

from freetickets.data import dataset_names, get_spec
from freetickets.errors import UnknownNameError


@pytest.mark.parametrize("name", dataset_names())
def test_every_name_has_a_consistent_spec(name, no_data):
    spec = get_spec(name)
    assert spec.name == name
    assert len(spec.mean) == len(spec.std) == spec.shape[0]
    assert len(set(spec.classes)) == len(spec.classes) in (10, 100, 1000)
    assert spec.augmentation in ("none", "pad-crop-flip", "reflect-crop-flip", "imagenet")
    assert spec.recipe in ("small", "cifar", "imagenet")
    assert "licence" in spec.source or "non-commercial" in spec.source


def test_cifar100_classes_are_in_the_order_of_their_labels():
    classes = get_spec("cifar100").classes
    assert list(classes) == sorted(classes)


def test_an_unknown_name_offers_the_nearest(no_data):
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10'"):
        get_spec("cifar-10")
    with pytest.raises(UnknownNameError):
        get_spec("")


def test_a_missing_path_is_called_missing(refused, no_data):
    for name in ("./nowhere", "mine.npz"):
        refused("no such folder or file", get_spec, name)


def test_a_file_that_is_no_data_set_is_refused(refused, no_data):
    Path("notes.txt").write_text("hello")
    refused("is not a data set", get_spec, "notes.txt")


def test_only_images_of_no_fixed_size_take_an_image_size(refused, no_data):
    assert get_spec("imagenet", image_size=64).shape == (3, 64, 64)
    refused("fixed size", get_spec, "cifar10", image_size=64)
    refused("1 or more", get_spec, "imagenet", image_size=0)


def test_names_and_specs_do_not_import_torch():
    script = (
        "import sys, freetickets.data as data; data.dataset_names(); data.get_spec('cifar10');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_public_names_are_found():
    import freetickets.data as data

    for name in data.__all__:
        assert callable(getattr(data, name))
    # A submodule of the same name would hide the function once it is imported.
    assert data.load.__module__ == "freetickets.data.loading"
    with pytest.raises(AttributeError):
        _ = data.nothing
