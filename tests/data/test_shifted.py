from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from freetickets.data import Batches, LazySplit, Split, arrays, load
from freetickets.data.shifted import (
    CorruptedArrays,
    corrupted_photos,
    fingerprints,
    frost_of,
    load_ood,
    natural_photos,
    refuse_known,
)
from freetickets.storage import write_json

CLASSES = ("n01", "n02", "n03")


@pytest.fixture
def inside(rng):
    return arrays(rng.integers(0, 256, (6, 3, 4, 5), dtype=np.uint8), np.arange(6) % 3)


def write(folder, inside, name="fog", count=6):
    """The published layout: severity 1 of all images, then 2, and so on."""
    folder.mkdir(exist_ok=True)
    images = inside.inputs[:count].numpy().transpose(0, 2, 3, 1)
    stack = np.concatenate([images // severity for severity in range(1, 6)])
    np.save(folder / f"{name}.npy", stack)
    np.save(folder / "labels.npy", np.tile(inside.labels[:count].numpy().astype(np.uint8), 5))
    return stack


@pytest.mark.parametrize("count", [6, 4])
@pytest.mark.parametrize(
    ("ours", "theirs"),  # the latter of TensorFlow Datasets
    [("fog", "fog"), ("glass_blur", "frosted_glass_blur"), ("elastic_transform", "elastic")],
)
def test_a_severity_is_its_part_of_the_file(refused, inside, tmp_path, ours, theirs, count):
    write(tmp_path, inside, theirs, count)
    if count < 6:
        words = r"holds 4 of the 6 test images: .* --samples 4"
        refused(words, CorruptedArrays, tmp_path, inside, 6)
    arrays = CorruptedArrays(tmp_path, inside, 4)
    images = arrays.open(ours)
    assert isinstance(images, np.memmap)
    for severity in range(1, 6):
        split = arrays.split(images, severity)
        assert torch.equal(split.inputs, inside.inputs[:4] // severity)
        assert torch.equal(split.labels, inside.labels[:4])


def test_grey_images_may_have_no_axis_of_channels(tmp_path):
    inside = Split(torch.arange(32, dtype=torch.uint8).view(2, 1, 4, 4), torch.tensor([0, 1]))
    np.save(tmp_path / "fog.npy", np.tile(inside.inputs[:, 0].numpy(), (5, 1, 1)))
    np.save(tmp_path / "labels.npy", np.tile([0, 1], 5))
    arrays = CorruptedArrays(tmp_path, inside, 2)
    assert torch.equal(arrays.split(arrays.open("fog"), 3).inputs, inside.inputs)


def test_labels_shapes_and_files_are_checked_and_frost_is_known(refused, inside, tmp_path):
    stack = write(tmp_path, inside)
    missing = r"lacks snow.npy: get it, or name types"
    refused(missing, CorruptedArrays(tmp_path, inside, 6).open, "snow")
    for wrong in (stack[:-1], stack.astype(np.float32), stack.transpose(0, 3, 1, 2)):
        np.save(tmp_path / "snow.npy", wrong)
        words = r"snow.npy is .*, not uint8 \(30, 4, 5, 3\)"
        refused(words, CorruptedArrays(tmp_path, inside, 6).open, "snow")
    (tmp_path / "snow.npy").write_bytes(b"ice")
    refused(r"snow.npy is not a readable .npy", CorruptedArrays(tmp_path, inside, 6).open, "snow")
    np.save(tmp_path / "labels.npy", np.tile([2, 1, 0], 10))
    refused("belongs to another data set", CorruptedArrays, tmp_path, inside, 6)
    (tmp_path / "labels.npy").unlink()
    refused(r"labels.npy is missing", CorruptedArrays, tmp_path, inside, 6)
    assert frost_of(tmp_path) is None
    write_json(tmp_path / "corruptions.json", {"frost": "synthetic"})
    assert frost_of(tmp_path) == "synthetic"


def photo(path, shade, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("L", size, 0)
    image.paste(shade, (0, 0, 1, size[1]))  # the left column, which the crop of photos cuts off
    image.save(path)


def test_corrupted_photos_are_labelled_by_their_folders_and_not_cropped_again(refused, tmp_path):
    for label, name in enumerate(CLASSES[1:], start=1):
        photo(tmp_path / "fog" / "3" / name / "a.png", 100 * label)
    split = corrupted_photos(tmp_path, "fog", 3, CLASSES, (1, 8, 8))
    assert split.labels.tolist() == [1, 2]
    ((inputs, _),) = Batches(split, 2, shuffle=False).epoch(0)
    assert (inputs[:, 0, :, 0] * 255).round().unique().tolist() == [100, 200]
    assert split.subset([1]).cropped
    refused(r"lacks fog/4: get it", corrupted_photos, tmp_path, "fog", 4, CLASSES, (1, 8, 8))


def test_natural_photos_say_which_classes_they_are_of(refused, tmp_path):
    for name in ("n03", "n01"):
        photo(tmp_path / name / "a.png", 50, (20, 16))
    (tmp_path / "README.txt").write_text("about")
    split, classes = natural_photos(tmp_path, CLASSES, (1, 8, 8))
    assert (split.labels.tolist(), classes) == ([0, 2], [0, 2])
    assert not split.cropped
    photo(tmp_path / "n99" / "a.png", 50)
    refused("n99: there is no such class", natural_photos, tmp_path, CLASSES, (1, 8, 8))
    (tmp_path / "none").mkdir()
    refused("holds no images by class", natural_photos, tmp_path / "none", CLASSES, (1, 8, 8))
    refused("is not a folder", natural_photos, tmp_path / "gone", CLASSES, (1, 8, 8))


# ---- samples of no class

COLOUR = (3, 8, 8)


@pytest.fixture
def known(rng):
    """What an ensemble was trained on."""
    return arrays(rng.integers(0, 256, (30, *COLOUR), dtype=np.uint8), np.arange(30) % 3)


def test_noise_is_that_of_the_authors_and_the_same_each_time(known, refused):
    split = load_ood("gaussian-noise", known, COLOUR)
    assert (split.inputs.shape, split.dtype) == ((10_000, *COLOUR), torch.uint8)
    assert set(split.labels.tolist()) == {-1}
    values = split.inputs.numpy().ravel() / 255
    # Beyond one, that is two deviations, the normal distribution is cut: half at either end.
    for end in (0, 1):
        assert (values == end).mean() == pytest.approx(stats.norm.sf(2.0), abs=2e-3)
    between = values[(values > 0) & (values < 1)]
    expected = stats.truncnorm(-2, 2, 0.5, 0.25)
    assert between.mean() == pytest.approx(0.5, abs=1e-3)
    assert between.std() == pytest.approx(expected.std(), abs=1e-3)
    assert stats.kstest(between[:20_000], expected.cdf).statistic < 0.015
    floats = Split(torch.zeros(3, 6), torch.zeros(3, dtype=torch.int64))
    photos = LazySplit((Path("a.png"),), torch.zeros(1, dtype=torch.int64), COLOUR)
    refused("takes floats", load_ood, "gaussian-noise", floats, (6,))
    refused("not for photos on disk", load_ood, "additive-noise", photos, COLOUR)
    assert len(load_ood("gaussian-noise", photos, COLOUR, samples=4)) == 4
    for name in ("gaussian-noise", "additive-noise"):
        whole = load_ood(name, known, COLOUR, samples=20).inputs
        assert torch.equal(load_ood(name, known, COLOUR, samples=7).inputs, whole[:7])
    noisy = load_ood("additive-noise", known, COLOUR).inputs
    assert noisy.shape == known.inputs.shape
    change = (noisy.double() - known.inputs.double()).numpy() / 255
    middle = (known.inputs >= 126) & (known.inputs <= 129)  # nothing is cut there but the noise
    assert change[middle.numpy()].std() == pytest.approx(0.24, abs=0.05)
    assert abs(change).max() <= 0.5 + 1 / 255


def test_paths_are_read_as_for_predictions_converted_if_asked_for(refused, known, tmp_path, rng):
    refused(r"fashion-mini are 1 x 28 x 28.*--resize", load_ood, "fashion-mini", known, COLOUR)
    split = load_ood("fashion-mini", known, COLOUR, resize=True, samples=5)
    assert split.inputs.shape == (5, *COLOUR)
    assert torch.equal(split.inputs[:, 0], split.inputs[:, 1])
    same = load_ood("fashion-mini", known, (1, 28, 28))
    assert torch.equal(same.inputs, load("fashion-mini", "test").inputs)
    images = rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    for number, image in enumerate(images):
        path = tmp_path / "pictures" / f"class{number // 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    for path in (str(tmp_path / "pictures"), str(tmp_path / "x.npy")):
        split = load_ood(path, known, COLOUR, samples=4)
        assert np.array_equal(split.inputs.numpy(), images.transpose(0, 3, 1, 2)[:4])
        assert split.labels.tolist() == [-1] * 4
        refused("--resize", load_ood, path, known, (1, 4, 4))
        assert load_ood(path, known, (1, 4, 4), resize=True).inputs.shape == (6, 1, 4, 4)


def test_what_is_not_there_is_told_apart(refused, known, no_data):
    refused("unknown OoD set 'svnh': did you mean 'svhn'", load_ood, "svnh", known, COLOUR)
    for path in ("some/where", "gone.npy"):
        refused("there is no such file or folder", load_ood, path, known, COLOUR)
    for name in ("svhn", "cifar10", "cifar100", "fashion-mnist", "mnist"):
        refused("allow the download", load_ood, name, known, (3, 32, 32), download=False)


def test_images_that_the_ensemble_knows_are_refused(refused, known):
    prints = fingerprints([known])
    assert len(prints) == 30
    fresh = load_ood("gaussian-noise", known, COLOUR, samples=100).inputs
    refuse_known("noise", fresh, prints)
    words = "2 of the 102 images of noise are in the data set"
    refused(words, refuse_known, "noise", torch.cat([fresh, known.inputs[:2]]), prints)
    refuse_known("noise", torch.cat([fresh, known.inputs[:1]]), prints)  # one twin may be chance


def test_the_published_sets_are_read(known, real_data):
    root = real_data("test_32x32.mat")
    split = load_ood("svhn", known, (3, 32, 32), root, download=False)
    assert split.inputs.shape[1:] == (3, 32, 32)
    assert int(split.labels.max()) == -1
    refuse_known("svhn", split.inputs, fingerprints([load("cifar10", "test", root)]))
