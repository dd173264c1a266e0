import gzip
import hashlib
from importlib import resources

import numpy as np
import pytest
import torch

from freetickets.data import fashion, load
from freetickets.data.download import PUBLISHERS
from freetickets.data.fashion import load_idx


def idx(array):
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + lengths + array.tobytes()


@pytest.fixture
def fake(monkeypatch, rng):
    """The test set of Fashion-MNIST, of 5 images: the contents of its two files."""
    monkeypatch.setitem(fashion._PARTS, "test", ("t10k", 5))
    images = rng.integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.array([3, 1, 4, 1, 5], np.uint8)
    return images, {"t10k-images-idx3-ubyte": idx(images), "t10k-labels-idx1-ubyte": idx(labels)}


def test_the_embedded_set_is_small_balanced_and_looks_like_fashion():
    for split, each in (("train", 1000), ("test", 200)):
        data = load("fashion-mini", split)
        assert torch.bincount(data.labels).tolist() == [each] * 10
        assert data.inputs.dtype == torch.uint8
        assert abs(data.inputs.float().mean() / 255 - 0.2860) < 0.01
    folder = resources.files("freetickets.data").joinpath("embedded")
    assert len(folder.joinpath("fashion_mini.npz").read_bytes()) < 6_000_000
    assert "Zalando SE" in folder.joinpath("LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["FashionMNIST/raw", "fashion-mnist", "."])
@pytest.mark.parametrize("compressed", [True, False])
def test_files_are_found_where_users_have_them(fake, no_data, folder, compressed):
    images, files = fake
    (no_data / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = no_data / folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    split = load("fashion-mnist", "test", no_data)
    assert torch.equal(split.inputs[:, 0], torch.from_numpy(images))
    assert split.labels.tolist() == [3, 1, 4, 1, 5]


def test_missing_files_go_to_torchvisions_folder(refused, fake, server, tmp_path, monkeypatch):
    url, served = server
    for name, content in fake[1].items():
        packed = gzip.compress(content)
        (served / f"{name}.gz").write_bytes(packed)
        sums = PUBLISHERS["fashion-mnist"].md5
        monkeypatch.setitem(sums, f"{name}.gz", hashlib.md5(packed).hexdigest())
    monkeypatch.setenv("FREETICKETS_MIRROR", url)
    assert len(load("fashion-mnist", "test", tmp_path)) == 5
    assert (tmp_path / "FashionMNIST/raw/t10k-labels-idx1-ubyte.gz").is_file()
    # They are not taken for MNIST's digits, whose files have the same names, but other checksums.
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"clothes")
    refused("is not there", load_idx, "mnist", "test", tmp_path, False)
    refused("has the wrong checksum", load_idx, "mnist", "test", tmp_path, True)
    assert not list(tmp_path.glob("MNIST/raw/*"))


def test_digits_are_read_where_torchvision_puts_them_and_damage_refused(tmp_path, rng, refused):
    images = np.zeros((10_000, 28, 28), np.uint8)
    images[:5] = rng.integers(0, 256, (5, 28, 28))
    labels = rng.integers(0, 10, 10_000, dtype=np.uint8)
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    split = load_idx("mnist", "test", tmp_path, False)
    assert np.array_equal(split.inputs[:, 0].numpy(), images)
    assert np.array_equal(split.labels.numpy(), labels)
    content = idx(np.arange(5, dtype=np.uint8))
    for other in (content[:-1], content + b"\0", b"\1" + content[1:], b""):
        (tmp_path / "labels").write_bytes(other)
        refused("does not hold bytes of shape", fashion.read_idx, tmp_path / "labels", (5,))
    content = gzip.compress(content)
    for other in (content[:-4], content[:12] + b"\xff\xff" + content[14:], b"no gzip"):
        (tmp_path / "labels.gz").write_bytes(other)
        refused("get it again", fashion.read_idx, tmp_path / "labels.gz", (5,))
