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
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import freetickets as ft
from freetickets.config import read_config
from freetickets.data import cifar, decode, npz
from freetickets.data.cifar import read_pickle
from freetickets.data.download import Remote
from freetickets.data.images import list_images, read_images
from freetickets.data.npz import read_arrays
from freetickets.data.svhn import read_mat
from freetickets.experiments.results import read_record
from freetickets.predictions import Predictions
from freetickets.reading import read_json
from freetickets.storage import save_tree
from freetickets.ticket import Ticket

# ---- .npz


def header(shape, kind="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": kind, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


def write_zip(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", content)
    return path


@pytest.mark.parametrize(
    ("claimed", "held", "method", "match"),
    [
        (10**12, 64, zipfile.ZIP_DEFLATED, "not as long as it says"),
        (1 << 20, 4 << 20, zipfile.ZIP_DEFLATED, "would unpack to 4,194,"),  # 1,000 times its size
        (16, 64, zipfile.ZIP_LZMA, "not packed as NumPy packs"),
    ],
)
def test_an_array_that_claims_or_unpacks_to_more_than_the_file_holds(
    refused, tmp_path, claimed, held, method, match
):
    path = write_zip(tmp_path / "a.npz", header((claimed,)) + bytes(held), method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(npz, "_BOMB_BYTES", 1 << 20)
        refused(read_arrays, path, "x", match=match)


def test_an_archive_that_backs_such_a_claim_in_its_directory(refused, tmp_path):
    path = write_zip(tmp_path / "a.npz", header((10**9,)) + bytes(64))
    content = path.read_bytes()
    (real,) = {info.file_size for info in zipfile.ZipFile(path).infolist()}
    claimed = struct.pack("<I", real - 64 + 4 * 10**9)
    path.write_bytes(content.replace(struct.pack("<I", real), claimed))
    refused(read_arrays, path, "x", match="would unpack to")


def test_two_arrays_of_one_name(refused, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header((1,)) + bytes(4))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", header((1,)) + bytes(4))
    refused(read_arrays, tmp_path / "a.npz", "x", match="two arrays of one name")


@pytest.mark.parametrize("text", ["(" * 200, "{" * 3000, "[" * 9000, "'descr': " * 500])
def test_a_header_that_is_no_header(refused, tmp_path, text):
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    path = write_zip(tmp_path / "a.npz", content)
    refused(read_arrays, path, "x", match="not a readable .npz")
    (tmp_path / "a.npy").write_bytes(content)
    refused(read_images, tmp_path / "a.npy", (1, 8, 8), match="not a readable .npy")


def test_predictions_that_hold_python_objects(refused, tmp_path):
    np.savez(tmp_path / "a.npz", log_probs=np.array([{}], object), labels=[0], info="{}")
    refused(Predictions.load, tmp_path / "a.npz", match="Python objects, which could run")


INFO = {"dataset": "toy", "combine": "probabilities"}


@pytest.mark.parametrize(
    ("log_probs", "labels", "info", "match"),
    [
        (np.full((1, 2, 2), np.nan, "f4"), [0, 1], INFO, "not numbers"),
        (np.zeros((1, 2, 2), "f4"), [0.5, 1.0], INFO, "labels float64"),
        (np.zeros((1, 2, 2), "f4"), [0, 1], {**INFO, "parts": 2}, "parts must be a list"),
        (np.zeros((1, 2, 2), "f4"), [0, 1], {**INFO, "parts": []}, "parts without names"),
        (np.zeros((1, 2, 2), "f4"), [0, 1], [], "must be a map"),
    ],
)
def test_predictions_that_predict_nothing(refused, tmp_path, log_probs, labels, info, match):
    np.savez(tmp_path / "a.npz", log_probs=log_probs, labels=labels, info=json.dumps(info))
    refused(Predictions.load, tmp_path / "a.npz", match=match)


# ---- pickles


TWICE = b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(60))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.", "is damaged"),  # a long text
        (b"\x80\x02}r\xff\xff\xff\x7f.", "larger than the file"),  # a far place in its memory
        (b"\x80\x02)q\x00" + TWICE + b".", "recalls more than texts"),  # tuples of tuples of tuples
        (b"\x80\x02}2.", "DUP has no place"),
        (b"\x80\x02U\x01aQ.", "BINPERSID has no place"),
        (b"\x80\x02\x82\x01.", "EXT1 has no place"),
        (b"\x80\x02}K\x01K\x01s.", "int instead of a text"),
        (b"(" * 100_000 + b".", "is damaged"),
    ],
)
def test_a_pickle_that_takes_more_than_it_is(refused, tmp_path, content, match):
    (tmp_path / "a").write_bytes(content)
    refused(read_pickle, tmp_path / "a", match=match)


def test_a_pickle_of_negative_sides(refused, tmp_path):
    class Evil:
        def __reduce__(self):
            state = (1, (-2, -3), np.dtype("u1"), False, b"sixsix")
            return np.array([], "u1").__reduce__()[0], (np.ndarray, (0,), b"b"), state

    (tmp_path / "a").write_bytes(pickle.dumps({"data": Evil()}, protocol=4))
    refused(read_pickle, tmp_path / "a", match=r"6 bytes for an array of shape \(-2, -3\)")


# ---- MATLAB files


def mat(*elements):
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def packed(content):
    data = zlib.compress(content)
    return struct.pack("<II", 15, len(data)) + data


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (mat(struct.pack("<II", 14, 0xFFFFFFFF)), "4,294,967,295 bytes are promised"),
        (mat(packed(struct.pack("<II", 14, 0xFFFFFFF0))), "an array of 4,294,967,288 bytes"),
        (mat(packed(struct.pack("<II", 14, 8) + bytes(1 << 24))), "another length than promised"),
        (mat(packed(struct.pack("<II", 14, 16) + struct.pack("<IIII", 6, 8, 6, 0))), "numbers"),
        (b"\x89HDF\r\n\x1a\n" + bytes(600), "no header"),
    ],
)
def test_a_mat_file_that_promises_what_it_does_not_hold(refused, tmp_path, content, match):
    (tmp_path / "a.mat").write_bytes(content)
    refused(read_mat, tmp_path / "a.mat", match=match)


# ---- images


def png(width, height):
    def chunk(name, data):
        length, check = (struct.pack(">I", n) for n in (len(data), zlib.crc32(name + data)))
        return length + name + data + check

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1 << 16)))
    return b"\x89PNG\r\n\x1a\n" + size + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9_000, 60_000])
def test_an_image_of_too_many_pixels(refused, tmp_path, side):
    (tmp_path / "a.png").write_bytes(png(side, side))
    refused(read_images, tmp_path / "a.png", (3, 8, 8), True, match="too many pixels")


def test_an_image_that_another_program_would_have_to_draw(refused, tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.eps")
    (tmp_path / "a.eps").rename(tmp_path / "a.png")
    refused(decode.open_image, tmp_path / "a.png", 3, match="be read as an image")


def test_a_pipe_among_the_images_is_passed_over(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "real.png")
    os.mkfifo(tmp_path / "pipe.png")  # opening it would wait for ever
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    assert [path.name for path in list_images(tmp_path)] == ["real.png"]


# ---- archives


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_an_archive_with_a_link_in_place_of_a_file(refused, tmp_path, monkeypatch, kind):
    layout = cifar.LAYOUTS["cifar100"]
    path = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("../../escaped", "/absolute", f"{layout.folder}/train"):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    remote = Remote(layout.archive.url, hashlib.md5(path.read_bytes()).hexdigest())
    monkeypatch.setitem(cifar.LAYOUTS, "cifar100", replace(layout, archive=remote))
    refused(cifar.load_cifar, "cifar100", "train", tmp_path, False, match="train is not a file")
    assert {each.name for each in tmp_path.rglob("*")} == {path.name, layout.folder}


# ---- texts


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("method: !!python/object/apply:os.mkdir [run]", "not valid YAML"),
        ("#" * (1 << 20) + "\nseed: 1", "can't be a file of settings"),
        ("seed: " + "9" * 5000, "seed must be|not valid YAML"),
    ],
)
def test_settings_that_are_more_than_settings(refused, tmp_path, monkeypatch, text, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(text)
    refused(read_config, tmp_path / "a.yaml", match=match)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ['{"a":' * 100_000, "9" * 10_000])
def test_json_that_is_nested_or_long_without_end(refused, tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    refused(read_json, tmp_path / "a.json", match="is damaged")
    assert read_record(tmp_path / "a.json") is None


# ---- tickets


@pytest.mark.parametrize("shape", [[1 << 40], [-8], [0], ["8"], [1 << 62, 4]])
def test_a_ticket_with_a_good_checksum_and_a_bad_shape(refused, tmp_path, shape):
    part = {"shape": shape, "topology": torch.zeros(1, dtype=torch.uint8), "values": torch.ones(0)}
    tree = {"info": {}, "order": ["w"], "sparse": {"w": part}, "dense": {}, "same": {}}
    save_tree(tmp_path / "a", tree, "freetickets-ticket")
    refused(Ticket.load, tmp_path / "a", match="is damaged")


def test_a_ticket_can_not_choose_code_to_run(refused, tmp_path):
    ticket = Ticket({"w": torch.ones(1)}, {}, {"model": "os:getcwd", "method": "dense"})
    ticket.save(tmp_path / "tickets" / "01.safetensors")
    refused(ft.load, tmp_path, match="is your own")


def test_a_pickle_in_the_place_of_a_ticket_or_an_array(refused, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    (tmp_path / "a").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")  # a header of that length
    refused(Ticket.load, tmp_path / "a", match="not a FreeTickets file")
    torch.save(Evil(), tmp_path / "a")
    refused(Ticket.load, tmp_path / "a", match="not a FreeTickets file")
    (tmp_path / "a.npy").write_bytes(pickle.dumps(Evil()))
    refused(read_images, tmp_path / "a.npy", (1, 8, 8), match="not a readable .npy")
    assert not (tmp_path / "run").exists()
