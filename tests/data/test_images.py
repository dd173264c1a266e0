import numpy as np
import pytest
import torch
from PIL import Image

from freetickets.data.images import list_images, read_images

SHAPE = (3, 8, 6)


@pytest.fixture
def picture(tmp_path, rng):
    array = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    return tmp_path / "a.png", torch.from_numpy(array).permute(2, 0, 1)


def test_files_folders_and_arrays_give_the_same_images(tmp_path, picture):
    path, expected = picture
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    path.rename(tmp_path / "folder" / "deep" / "a.png")
    (tmp_path / "folder" / "notes.txt").write_text("passed over")
    np.save(tmp_path / "b.npy", expected.numpy()[None])
    np.savez(tmp_path / "c.npz", x=expected.permute(1, 2, 0).numpy()[None], y=np.zeros(1))
    np.savez(tmp_path / "d.npz", anything=expected.numpy()[None])
    result = read_images([tmp_path / name for name in ("folder", "b.npy", "c.npz", "d.npz")], SHAPE)
    assert result.dtype == torch.uint8
    assert torch.equal(result, expected.expand(4, *SHAPE))
    assert torch.equal(read_images(str(tmp_path / "folder"), SHAPE), expected[None])


def test_the_order_is_that_of_the_list(tmp_path):
    for name in ("b", "a", "c"):
        Image.new("L", (6, 8), ord(name)).save(tmp_path / f"{name}.png")
    assert [path.name for path in list_images(tmp_path)] == ["a.png", "b.png", "c.png"]
    assert read_images(tmp_path, (1, 8, 6))[:, 0, 0, 0].tolist() == [97, 98, 99]


def test_another_size_is_refused_unless_resizing_is_asked_for(refused, tmp_path):
    Image.new("RGB", (20, 30), "red").save(tmp_path / "big.png")
    refused(r"big\.png is 20 x 30 .* 6 x 8: .*--resize", read_images, tmp_path / "big.png", SHAPE)
    resized = read_images(tmp_path / "big.png", SHAPE, resize=True)
    assert resized.shape == (1, *SHAPE)
    assert resized[0, :, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3, 8, 6), np.complex64), "holds complex64"),
        (np.zeros((2, 3, 9, 6), np.uint8), r"\(3, 9, 6\), not \(3, 8, 6\)"),
        (np.zeros((3,), np.uint8), "images are"),
    ],
)
def test_arrays_of_something_else_are_refused(refused, tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    refused(message, read_images, tmp_path / "a.npy", SHAPE)


def test_damaged_missing_and_empty_are_one_line_each(refused, tmp_path, picture):
    path, expected = picture
    np.save(tmp_path / "a.npy", expected.numpy()[None])
    np.savez(tmp_path / "b.npz", p=np.zeros(1), q=np.zeros(1))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-10])
    (tmp_path / "empty").mkdir()
    path.write_bytes(path.read_bytes()[:60])
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    for name, message in (
        ("a.png", "cannot read"),
        ("a.npy", "not a readable"),
        ("b.npz", "name the array"),
        ("objects.npy", "not a readable"),
        ("empty", "holds no images"),
        ("nowhere", "no such file"),
    ):
        refused(message, read_images, tmp_path / name, SHAPE)
    refused("no images were given", read_images, [], SHAPE)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_that_are_no_finite_numbers_are_counted(refused, tmp_path, value):
    features = np.zeros((3, 4))
    features[0, :2] = value
    np.save(tmp_path / "a.npy", features)
    refused(r"a\.npy has 2 values that are not finite", read_images, tmp_path / "a.npy", (4, 1, 1))
