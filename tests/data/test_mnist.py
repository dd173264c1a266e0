from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from freetickets.data.mnist import load_mnist
from freetickets.errors import FreeTicketsError


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">i4").tobytes()
    return header + array.tobytes()


def test_digits_are_read_where_torchvision_puts_them(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    images = np.zeros((10_000, 28, 28), np.uint8)
    images[:5] = rng.integers(0, 256, (5, 28, 28))
    labels = rng.integers(0, 10, 10_000, dtype=np.uint8)
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    split = load_mnist(tmp_path, download=False)
    assert np.array_equal(split.inputs[:, 0].numpy(), images)
    assert np.array_equal(split.labels.numpy(), labels)


def test_fashion_in_the_root_is_not_taken_for_digits(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(b"clothes")
    with pytest.raises(FreeTicketsError, match="is not there"):
        load_mnist(tmp_path, download=False)


def test_a_missing_file_is_fetched_and_its_checksum_checked(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, served = server
    (served / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    monkeypatch.setenv("FREETICKETS_MIRROR", address)
    with pytest.raises(FreeTicketsError, match="has the wrong checksum"):
        load_mnist(tmp_path, download=True)
    assert not list(tmp_path.rglob("MNIST/raw/*"))
