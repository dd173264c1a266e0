"""Substitute-ins hold the images that they say."""

from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from freetickets import data
from freetickets.data.shifted import load_ood
from freetickets.experiments.scales import SCALES, DataPart, Substitute
from freetickets.experiments.substitutes import SubstituteFiles, outline, pool, settle

PART = DataPart("fashion-mini", train=30, test=20, pool=2)
SUBSTITUTE = Substitute(PART, "cifar", natural=True, samples=12)


@pytest.fixture
def substitutes(tmp_path):
    return SubstituteFiles(tmp_path / "data", str(tmp_path / "empty"))


def test_pooling_is_the_mean_of_squares(refused):
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 6), dtype=np.uint8)
    corners = [images[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    assert np.abs(pool(images, 2) - np.mean(corners, axis=0)).max() <= 0.5
    assert pool(np.array([[[[0, 4], [4, 10]]]], np.uint8), 2).tolist() == [[[[4]]]]
    refused("pooled", pool, images, 4)


def test_a_part_is_the_first_images_pooled(substitutes):
    path = substitutes.dataset(PART)
    told = attrgetter("shape", "train_size", "test_size", "classes")
    assert told(data.get_spec(path)) == told(outline(PART))
    whole = data.load("fashion-mini", "train")
    part = data.load(path, "train")
    assert part.labels.tolist() == whole.labels[:30].tolist()
    assert np.array_equal(part.inputs.numpy(), pool(whole.inputs[:30].numpy(), 2))
    before = Path(path).stat().st_mtime_ns
    assert substitutes.dataset(PART) == path
    assert Path(path).stat().st_mtime_ns == before  # made once


def test_whole_data_need_no_file(substitutes):
    whole = Substitute(DataPart("cifar10"), "cifar")
    assert substitutes.dataset(whole.data) == "cifar10"
    assert substitutes.ood(whole, ["svhn"]) == {"svhn": ("svhn", "svhn")}
    assert substitutes.natural(whole) is None


def test_corruptions_are_made_of_the_samples_that_are_measured(substitutes):
    substitutes.corrupt(SUBSTITUTE, ["fog", "contrast"])
    folder = substitutes.folder / f"{PART.file}-C"
    assert np.load(folder / "fog.npy").shape == (5 * 12, 14, 14)
    assert {path.stem for path in folder.glob("*.npy")} == {"fog", "contrast", "labels"}
    substitutes.corrupt(SUBSTITUTE, ["fog"])  # nothing to do, nothing to complain of


def test_ood_sets_are_called_what_they_stand_for(substitutes):
    names = ("svhn", "cifar100", "gaussian-noise")
    found = substitutes.ood(SUBSTITUTE, names)
    assert {name: words for name, (_, words) in found.items()} == {
        "svhn": "negatives of fashion-mini",
        "cifar100": "shuffled tiles of fashion-mini",
        "gaussian-noise": "gaussian-noise",
    }
    inside = data.load(substitutes.dataset(PART), "test")
    for name in names[:2]:
        assert Path(found[name][0]).stem == name
        outside = load_ood(found[name][0], inside, (1, 14, 14))
        assert len(outside) == 12
        seen, unseen = ({row.numpy().tobytes() for row in x.inputs} for x in (inside, outside))
        assert not seen & unseen


def test_turned_images_stand_for_natural_shift(substitutes):
    folder = substitutes.natural(SUBSTITUTE)
    assert folder.name == "imagenet-a"
    assert {path.name for path in folder.iterdir()} < set(data.get_spec("fashion-mini").classes)


def test_missing_data_fall_back_and_are_told(tmp_path):
    settled, (said,) = settle(SCALES["small"], str(tmp_path))
    assert settled.substitutes["cifar10"].data.source == "fashion-mini"
    assert "cifar10 is not in the data folder" in said
    assert settle(SCALES["smoke"], str(tmp_path)) == (SCALES["smoke"], [])
