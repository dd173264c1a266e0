import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from freetickets.data import LazySplit, Split, dataset_names, get_spec, load
from freetickets.data.spec import data_root


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


def test_small_images_are_held_in_memory(image_tree):
    folder = image_tree(size=(12, 10), count=3)
    (folder / "train" / "cat" / "notes.txt").write_text("passed over")
    (folder / "train" / "cat" / "._0.png").write_bytes(b"")
    (folder / "train" / ".cache").mkdir()
    spec = get_spec(str(folder))
    assert spec.shape == (3, 10, 12)
    assert (spec.train_size, spec.test_size, spec.classes) == (6, 6, ("cat", "dog"))
    assert (spec.augmentation, spec.recipe) == ("pad-crop-flip", "small")
    split = load(spec, "train")
    assert isinstance(split, Split)
    assert split.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert split.inputs[:, 0, 0, 0].tolist() == [0, 0, 0, 100, 100, 100]
    assert split.inputs[:, 1, 0, 0].tolist() == [0, 10, 20] * 2


def test_photos_stay_on_disk_unless_they_are_made_small(image_tree):
    folder = image_tree(size=(120, 100))
    spec = get_spec(folder)
    assert spec.shape == (3, 224, 224)
    assert (spec.augmentation, spec.recipe) == ("imagenet", "imagenet")
    split = load(folder, "test")
    assert isinstance(split, LazySplit)
    assert [path.parent.name for path in split.paths] == ["cat"] * 3 + ["dog"] * 3
    small = load(get_spec(folder, image_size=32), "train")
    assert isinstance(small, Split)
    assert small.inputs.shape == (6, 3, 32, 32)


def test_grey_images_have_one_channel(image_tree):
    folder = image_tree()
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    spec = get_spec(folder)
    assert (spec.shape[0], len(spec.mean), len(spec.std)) == (1, 1, 1)
    assert load(spec, "train").inputs.shape == (6, 1, 10, 12)


def test_what_a_folder_lacks_is_named(refused, image_tree, tmp_path):
    folder = image_tree()
    (folder / "val" / "cow").mkdir()
    refused("cow: there is no such class", get_spec, folder)
    (folder / "val" / "cow").rmdir()
    (folder / "train" / "cow").mkdir()
    refused("cow holds no images", get_spec, folder)
    (tmp_path / "empty" / "train").mkdir(parents=True)
    refused("needs train/<class>", get_spec, tmp_path / "empty")
    (tmp_path / "empty" / "test").mkdir()
    refused("two or more", get_spec, tmp_path / "empty")
    (folder / "train" / "cow").rmdir()
    shutil.rmtree(folder / "val" / "cat")
    assert load(folder, "test").labels.tolist() == [1, 1, 1]
    shutil.rmtree(folder / "val" / "dog")
    refused("val holds no images", get_spec, folder)


def test_imagenet_is_found_and_only_listed(refused, no_data, image_tree):
    refused(r"get it from image-net\.org and put", load, "imagenet", "train")
    folder = image_tree()
    assert len(get_spec("imagenet", folder).classes) == 1000
    refused("2 classes, ImageNet has 1000: for a subset", load, "imagenet", "train", folder)
    names = [f"n{number:08}" for number in range(1000)]
    for split in ("train", "val"):
        for name in names:
            (no_data / "imagenet" / split / name).mkdir(parents=True)
            (no_data / "imagenet" / split / name / "a.JPEG").write_bytes(b"not opened")
    assert get_spec("imagenet", no_data).classes == tuple(names)
    split = load(get_spec("imagenet", no_data, image_size=128), "test", no_data)
    assert isinstance(split, LazySplit)
    assert split.shape == (3, 128, 128)
    assert torch.equal(split.labels, torch.arange(1000))


def test_a_path_may_be_relative_to_the_data_root(image_tree, monkeypatch):
    folder = image_tree()
    assert get_spec("pictures", folder.parent).name == str(folder)
    monkeypatch.setenv("FREETICKETS_DATA", str(folder.parent))
    assert get_spec("pictures").name == str(folder)
    assert data_root("/from/argument").as_posix() == "/from/argument"
    monkeypatch.delenv("FREETICKETS_DATA")
    assert data_root().as_posix() == "data"
