import dataclasses
import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest
import torch

from freetickets.data import cifar, load
from freetickets.data.cifar import read_pickle
from freetickets.data.download import PUBLISHERS


@pytest.fixture
def small(monkeypatch):
    """CIFAR's layout with 4 images a file, so that fakes are quickly written."""
    for name, layout in cifar.LAYOUTS.items():
        few = dataclasses.replace(layout, images={"train": 4, "test": 4})
        monkeypatch.setitem(cifar.LAYOUTS, name, few)


@pytest.fixture
def fake(small, write_pickle, rng):
    """Write CIFAR's files with random images."""

    def write(root, name, labels=(0, 1, 2, 9), count=4):
        layout = cifar.LAYOUTS[name]
        for file in (file for files in layout.files.values() for file in files):
            data = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
            content = {b"data": data, layout.labels.encode(): list(labels)}
            write_pickle(root / layout.folder / file, content)
        return root / layout.folder

    return write


@pytest.mark.parametrize(("name", "train"), [("cifar10", 20), ("cifar100", 4)])
def test_files_are_read_in_order(fake, tmp_path, name, train):
    folder = fake(tmp_path, name)
    split = load(name, "train", tmp_path, download=False)
    assert split.inputs.shape == (train, 3, 32, 32)
    assert split.labels.tolist() == [0, 1, 2, 9] * (train // 4)
    inside = load(name, "train", folder, download=False)
    assert torch.equal(inside.inputs, split.inputs)


def test_wrong_contents_are_refused(refused, fake, tmp_path):
    for options, message in (
        ({"labels": (0, 1, 2, 10)}, "does not hold 4 labels from 0 to 9"),
        ({"labels": (0, 1, 2)}, "does not hold 4 labels"),
        ({"labels": (0, 1, 2, 3.0)}, "BINFLOAT has no place in a CIFAR file"),
        ({"count": 3}, "does not hold 4 images"),
    ):
        fake(tmp_path, "cifar10", **options)
        refused(message, load, "cifar10", "test", tmp_path)


def archive(monkeypatch, source, folder, extra=()):
    """Pack a folder as CIFAR-10's archive, with its checksum known."""
    file = folder / "cifar-10-python.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(source, arcname=source.name)
        for name in extra:
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
    md5 = hashlib.md5(file.read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHERS["cifar10"].md5, file.name, md5)


@pytest.fixture
def published(fake, server, tmp_path, monkeypatch):
    """A server that offers a fake archive, with paths in it that lead out of the folder."""
    url, served = server
    source = fake(tmp_path / "source", "cifar10")
    layout = cifar.LAYOUTS["cifar10"]
    extra = ("../outside", "/tmp/outside", f"{layout.folder}/../outside", f"{layout.folder}/more")
    archive(monkeypatch, source, served, extra)
    monkeypatch.setenv("FREETICKETS_MIRROR", url)
    return source


def test_a_missing_data_set_is_downloaded_and_unpacked_once(published, tmp_path, monkeypatch):
    root = tmp_path / "root"
    first = load("cifar10", "test", root)
    monkeypatch.setenv("FREETICKETS_MIRROR", "http://127.0.0.1:9")
    for place in (root, published):
        assert torch.equal(first.inputs, load("cifar10", "test", place).inputs)
    written = {path.name for path in root.rglob("*") if path.is_file()}
    known = {file for files in cifar.LAYOUTS["cifar10"].files.values() for file in files}
    assert written == known | {"cifar-10-python.tar.gz"}
    assert not (tmp_path / "outside").exists()


def test_an_archive_on_disk_is_checked_used_and_must_have_the_files(
    refused, published, server, tmp_path, no_data, fake, monkeypatch
):
    root = tmp_path / "root"
    root.mkdir()
    content = (server[1] / "cifar-10-python.tar.gz").read_bytes()
    (root / "cifar-10-python.tar.gz").write_bytes(content)
    assert len(load("cifar10", "train", root, download=False)) == 20
    other = tmp_path / "other"
    other.mkdir()
    (other / "cifar-10-python.tar.gz").write_bytes(content[:-100])
    refused("wrong checksum", load, "cifar10", "train", other)
    (tmp_path / "wrong").mkdir()
    archive(monkeypatch, tmp_path / "wrong", tmp_path)
    refused("cannot unpack", load, "cifar10", "train", tmp_path)


def test_without_data_and_download_the_user_is_told_what_to_do(refused, no_data):
    refused("cifar-100.* is not there: .*--data-dir", load, "cifar100", "train", download=False)
    refused("check the network", load, "cifar100", "train")


@pytest.mark.parametrize(
    ("name", "split", "each"),
    [("cifar10", "train", 5000), ("cifar10", "test", 1000), ("cifar100", "test", 100)],
)
def test_the_real_sets_are_balanced_and_have_the_known_mean(real_data, name, split, each):
    layout = cifar.LAYOUTS[name]
    root = real_data(f"{layout.folder}/{layout.files[split][0]}")
    data = load(name, split, root, download=False)
    assert set(torch.bincount(data.labels).tolist()) == {each}
    if split == "train":
        assert data.labels[0] == 6  # a frog
        mean = torch.stack([channel.float().mean() for channel in data.inputs.unbind(1)]) / 255
        torch.testing.assert_close(mean, torch.tensor([0.4914, 0.4822, 0.4465]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("protocol", range(5))
def test_every_dialect_of_pickles_is_read(tmp_path, protocol):
    content = {"labels": [2, 0, 1, 300, -1, 70_000, True, None], "more": ((), (1,), (1, 2, 3, 4))}
    content |= {"twice": ["text"] * 2, "empty": {}, "one": {"a": (1, 2)}, "large": 1 << 70}
    if protocol > 2:  # before, Python 3 has no way to write bytes that calls nothing
        content["data"] = np.arange(12, dtype=np.uint8).reshape(3, 4)
    (tmp_path / "a").write_bytes(pickle.dumps(content, protocol))
    found = read_pickle(tmp_path / "a")
    assert np.array_equal(found.pop("data", None), content.pop("data", None))
    assert found == content


def test_anything_but_a_dictionary_of_plain_things_is_refused(refused, tmp_path, write_pickle):
    for value, message in (
        ([1, 2], "no dictionary"),
        ({b"data": np.zeros(3, np.int64)}, "not of bytes"),
        ({b"data": np.zeros(3, object)}, "not of bytes"),
        ({b"data": np.zeros((2, 3), np.uint8, order="F")}, "6 bytes for an array"),
        ({1: 2}, "int instead of a text"),
    ):
        write_pickle(tmp_path / "a", value)
        refused(message, read_pickle, tmp_path / "a")
    refused("can't read", read_pickle, tmp_path / "b")
