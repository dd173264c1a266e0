import numpy as np
import pytest
import torch
from PIL import Image

from freetickets.data.images import count_inputs, list_images, read_images

SHAPE = (3, 8, 6)


@pytest.fixture
def picture(tmp_path, rng):
    array = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    return tmp_path / "a.png", torch.from_numpy(array).permute(2, 0, 1)


def test_files_folders_and_arrays_give_the_same_images_in_order(tmp_path, picture):
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
    for name in ("b", "a", "c"):
        Image.new("L", (6, 8), ord(name)).save(tmp_path / f"{name}.png")
    assert [path.name for path in list_images(tmp_path)][:3] == ["a.png", "b.png", "c.png"]
    grey = [tmp_path / f"{name}.png" for name in "abc"]
    assert read_images(grey, (1, 8, 6))[:, 0, 0, 0].tolist() == [97, 98, 99]


def test_images_of_another_size_are_refused_unless_resized(refused, tmp_path, picture):
    Image.new("RGB", (20, 30), "red").save(tmp_path / "big.png")
    refused(r"big\.png is 20 x 30 .* 6 x 8: .*--resize", read_images, tmp_path / "big.png", SHAPE)
    resized = read_images(tmp_path / "big.png", SHAPE, resize=True)
    assert resized.shape == (1, *SHAPE)
    assert resized[0, :, 0, 0].tolist() == [255, 0, 0]
    path, _ = picture
    pixels = np.asarray(Image.open(path))
    np.save(tmp_path / "a.npy", pixels[None])
    np.savez(tmp_path / "b.npz", images=np.asfortranarray(np.stack([pixels] * 2)), y=np.zeros(2))
    files = [path, tmp_path / "a.npy", tmp_path / "b.npz"]
    first, *others = read_images(files, (1, 5, 4), resize=True)
    assert len(others) == 3
    assert all(torch.equal(first, other) for other in others)
    assert count_inputs(files) == 4
    refused("a.npy are 3 x 8 x 6, .*--resize", read_images, tmp_path / "a.npy", (1, 5, 4))


def test_what_can_not_be_read_is_one_line(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    for name, content, message in (
        ("a.npy", np.zeros((2, 3, 8, 6), np.complex64), "holds complex64"),
        ("a.npy", np.zeros((2, 3, 9, 6)), r"holds samples of \(3, 9, 6\), not \(3, 8, 6\)"),
        ("a.npy", np.zeros((3,), np.uint8), "images are"),
        ("a.npy", np.array(3.0), "holds a single value"),
        ("a.npy", np.full((2, 3, 8, 6), np.nan), r"a\.npy has 288 values that are not finite"),
        ("a.npy", np.full((1, 3, 8, 6), 1e39), r"a\.npy has 144 values that are not finite"),
        ("a.npy", np.zeros((0, *SHAPE), np.uint8), r"no images were given: .*a\.npy"),
        ("a.npy", np.array([None]), "not a readable .npy"),
        ("a.npz", {"p": np.zeros(1), "q": np.zeros(1)}, "name the array"),
        ("a.npy", b"\x93NUMPY", "not a readable .npy"),
        ("a.png", b"\x89PNG", "can't be read as an image"),
        ("empty", None, "holds no images"),
        ("nowhere", None, "no such file"),
    ):
        if isinstance(content, bytes):
            (tmp_path / name).write_bytes(content)
        elif isinstance(content, dict):
            np.savez(tmp_path / name, **content)
        elif content is not None:
            np.save(tmp_path / name, content, allow_pickle=True)
        refused(message, read_images, tmp_path / name, SHAPE)
