"""Files made with intent: each is refused before it takes memory, time, or anything else."""

import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from freetickets.config import read_config
from freetickets.data import cifar, npz
from freetickets.data.cifar import read_pickle
from freetickets.data.download import PUBLISHERS
from freetickets.data.images import list_images, read_images
from freetickets.data.npz import read_arrays
from freetickets.data.svhn import read_mat
from freetickets.experiments.results import read_record
from freetickets.predictions import Predictions
from freetickets.reading import read_json
from freetickets.ticket import Ticket


def header(side):
    file, words = io.BytesIO(), {"descr": "<f4", "fortran_order": False, "shape": (side,)}
    np.lib.format.write_array_header_1_0(file, words)
    return file.getvalue()


def zipped(content, method=zipfile.ZIP_DEFLATED, names=("x.npy",)):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def written(text):
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def backed():
    """The archive says in its directory that it holds the gigabytes that its array claims."""
    real, claimed = (struct.pack("<I", len(header(10**9)) + size) for size in (64, 4 * 10**9))
    return zipped(header(10**9) + bytes(64)).replace(real, claimed)


class Evil:
    """A pickle of it makes a folder `run` here."""

    def __reduce__(self):
        return os.mkdir, ("run",)


class Negative:
    """An array whose sides are negative."""

    def __reduce__(self):
        state = (1, (-2, -3), np.dtype("u1"), False, b"sixsix")
        return np.array([], "u1").__reduce__()[0], (np.ndarray, (0,), b"b"), state


# Tuples of tuples of tuples, each of the last one twice.
TWICE = b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60))


def mat(*elements):
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def packed(content):
    data = zlib.compress(content)
    return struct.pack("<II", 15, len(data)) + data


def png(side):
    def chunk(name, data):
        length, check = (struct.pack(">I", n) for n in (len(data), zlib.crc32(name + data)))
        return length + name + data + check

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1 << 16)))
    return b"\x89PNG\r\n\x1a\n" + size + pixels + chunk(b"IEND", b"")


def eps():
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "EPS")
    return file.getvalue()


def torch_pickle():
    torch.save(Evil(), file := io.BytesIO())
    return file.getvalue()


LOADERS = {
    "npz": lambda path: read_arrays(path, "x"), "npy": lambda path: read_images(path, (1, 8, 8)),
    "pickle": read_pickle, "mat": read_mat,
    "png": lambda path: read_images(path, (3, 8, 8), resize=True), "yaml": read_config,
    "json": read_json, "safetensors": Ticket.load,
}  # fmt: skip
NO_HEADERS = ("(" * 200, "{" * 3000, "[" * 9000, "'descr': " * 500)
CASES = [
    ("npz", zipped(header(10**12) + bytes(64)), "not as long as it says"),
    ("npz", zipped(header(1 << 20) + bytes(4 << 20)), "would unpack to 4,194,"),  # 1,000 times
    ("npz", zipped(header(16) + bytes(64), zipfile.ZIP_LZMA), "not packed as NumPy packs"),
    ("npz", backed(), "would unpack to"),
    *(("npz", zipped(written(text)), "not a readable .npz") for text in NO_HEADERS),
    *(("npy", written(text), "not a readable .npy") for text in NO_HEADERS),
    ("npy", pickle.dumps(Evil()), "not a readable .npy"),
    ("pickle", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.", "is damaged"),  # a text
    ("pickle", b"\x80\x02)q\x00" + TWICE + b"}h<K\x01s.", "tuple instead of a text"),
    ("pickle", b"\x80\x02}2.", "DUP has no place"),
    ("pickle", b"\x80\x02U\x01aQ.", "BINPERSID has no place"),
    ("pickle", b"\x80\x02\x82\x01.", "EXT1 has no place"),
    ("pickle", b"(" * 100_000 + b".", "is damaged"),
    ("pickle", pickle.dumps({"data": Negative()}), r"6 bytes for an array of shape \(-2, -3\)"),
    ("pickle", pickle.dumps(Evil()), r"wants to run posix\.mkdir"),
    ("pickle", pickle.dumps({"data": Evil()}, 2), r"wants to run posix\.mkdir"),
    ("mat", mat(struct.pack("<II", 14, 0xFFFFFFFF)), "4,294,967,295 bytes are promised"),
    ("mat", mat(packed(struct.pack("<II", 14, 0xFFFFFFF0))), "an array of 4,294,967,288 bytes"),
    ("mat", mat(packed(struct.pack("<II", 14, 8) + bytes(1 << 24))), "length than promised"),
    ("mat", mat(packed(struct.pack("<IIIIII", 14, 16, 6, 8, 6, 0))), "numbers"),
    ("mat", b"\x89HDF\r\n\x1a\n" + bytes(600), "no header"),
    ("png", png(9_000), "too many pixels"),
    ("png", png(60_000), "too many pixels"),
    ("png", eps(), "be read as an image"),  # another program would have to draw it
    ("yaml", b"method: !!python/object/apply:os.mkdir [run]", "not valid YAML"),
    ("yaml", b"#" * (1 << 20) + b"\nseed: 1", "too many for a file of its kind"),
    ("yaml", b"seed: " + b"9" * 5000, "seed must be|not valid YAML"),
    ("json", b'{"a":' * 100_000, "is damaged"),
    ("json", b"9" * 10_000, "is damaged"),
    ("safetensors", struct.pack("<Q", 1 << 60) + b"{}", "not a FreeTickets file"),
    ("safetensors", torch_pickle(), "not a FreeTickets file"),
]


@pytest.mark.parametrize(
    ("kind", "content", "match"), CASES, ids=[f"{kind}-{match}" for kind, _, match in CASES]
)
def test_what_claims_or_runs_more_than_it_is(refused, tmp_path, monkeypatch, kind, content, match):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(npz, "_BOMB_BYTES", 1 << 20)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    refused(LOADERS[kind], path, match=match)
    assert not (tmp_path / "run").exists()
    assert kind != "json" or read_record(path) is None


def test_two_arrays_of_one_name_and_predictions_of_nothing_are_refused(refused, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        (tmp_path / "a.npz").write_bytes(zipped(header(1) + bytes(4), names=["x.npy"] * 2))
    refused(read_arrays, tmp_path / "a.npz", "x", match="two arrays of one name")
    for log_probs, labels, info, match in (
        (np.array([{}], object), [0], {}, "Python objects, which could run"),
        (np.full((1, 2, 2), np.nan, "f4"), [0, 1], INFO, "not numbers"),
        (ZEROS, [0.5, 1.0], INFO, "labels float64"),
        (ZEROS, [0, 1], {**INFO, "parts": 2}, "parts must be a list"),
        (ZEROS, [0, 1], [], "must be a map"),
    ):
        np.savez(tmp_path / "a.npz", log_probs=log_probs, labels=labels, info=json.dumps(info))
        refused(Predictions.load, tmp_path / "a.npz", match=match)


INFO = {"dataset": "toy", "combine": "probabilities"}
ZEROS = np.zeros((1, 2, 2), "f4")


def test_a_pipe_among_the_images_is_passed_over(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "real.png")
    os.mkfifo(tmp_path / "pipe.png")  # opening it would wait for ever
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    assert [path.name for path in list_images(tmp_path)] == ["real.png"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_an_archive_with_a_link_in_place_of_a_file(refused, tmp_path, monkeypatch, kind):
    layout = cifar.LAYOUTS["cifar100"]
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../escaped", "/absolute", f"{layout.folder}/train"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHERS["cifar100"].md5, path.name, md5)
    refused(cifar.load_cifar, "cifar100", "train", tmp_path, False, match="train is not a file")
    assert {each.name for each in tmp_path.rglob("*")} == {path.name, layout.folder}
