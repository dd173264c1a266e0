import numpy as np
import pytest
import torch
from PIL import Image

from freetickets.data import Batches, Split
from freetickets.data.shifted import (
    CorruptedArrays,
    corrupted_photos,
    frost_of,
    natural_photos,
    shifted_folder,
)
from freetickets.storage import write_json

CLASSES = ("n01", "n02", "n03")


@pytest.fixture
def inside(rng):
    images = rng.integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
    return Split(torch.from_numpy(images), torch.arange(6) % 3)


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
    [
        ("fog", "fog"),
        ("glass_blur", "frosted_glass_blur"),
        ("elastic_transform", "elastic"),
    ],
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


def test_wrong_labels_shapes_and_files_are_one_line_each(refused, inside, tmp_path):
    stack = write(tmp_path, inside)
    missing = r"lacks snow.npy: get it, or name types"
    refused(missing, CorruptedArrays(tmp_path, inside, 6).open, "snow")
    for wrong in (stack[:-1], stack.astype(np.float32), stack.transpose(0, 3, 1, 2)):
        np.save(tmp_path / "snow.npy", wrong)
        words = r"snow.npy holds .*, not uint8 \(30, 4, 5, 3\)"
        refused(words, CorruptedArrays(tmp_path, inside, 6).open, "snow")
    (tmp_path / "snow.npy").write_bytes(b"ice")
    refused(r"snow.npy is not a readable .npy", CorruptedArrays(tmp_path, inside, 6).open, "snow")
    np.save(tmp_path / "labels.npy", np.tile([2, 1, 0], 10))
    refused("belongs to another data set", CorruptedArrays, tmp_path, inside, 6)
    (tmp_path / "labels.npy").unlink()
    refused(r"labels.npy is missing", CorruptedArrays, tmp_path, inside, 6)


def test_the_folder_and_its_frost_are_known(tmp_path):
    assert shifted_folder("cifar100", tmp_path) == tmp_path / "CIFAR-100-C"
    assert shifted_folder("/my/bars.npz", tmp_path) == tmp_path / "bars-C"
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
