import csv
import io
import json
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import freetickets as ft
from freetickets.data import decode

KEYS = ["input", "class", "probability", "total", "aleatoric", "epistemic"]


@pytest.fixture
def images(images_npz):
    return np.load(images_npz)["x_test"][:6]


@pytest.fixture
def folder(images, tmp_path):
    (tmp_path / "images" / "deep").mkdir(parents=True)
    for number, image in enumerate(images):
        place = "deep/" if number > 3 else ""
        Image.fromarray(image).save(tmp_path / "images" / f"{place}{number}.png")
    return tmp_path / "images"


def test_images_folders_and_arrays_of_the_same_pixels_are_predicted_alike(
    cli, trained, images, folder, tmp_path
):
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "x.npz", x=images)
    by_folder = json.loads(cli("predict", trained.folder, folder, "--json").out)
    assert [list(row) for row in by_folder] == [KEYS] * 6
    assert [Path(row["input"]).stem for row in by_folder] == list("012345")
    for file in ("x.npy", "x.npz"):
        rows = json.loads(cli("predict", trained.folder, tmp_path / file, "--json").out)
        assert [row.pop("input") for row in rows] == [f"{tmp_path / file}[{i}]" for i in range(6)]
        assert rows == [{key: row[key] for key in KEYS[1:]} for row in by_folder]
    (single,) = json.loads(cli("predict", trained.folder, folder / "3.png", "--json").out)
    assert single == by_folder[3]


def test_rows_are_the_ensembles_own_predictions(cli, trained, images, tmp_path):
    np.save(tmp_path / "x.npy", images)
    rows = json.loads(cli("predict", trained.folder, tmp_path / "x.npy", "--json").out)
    ensemble = ft.load(trained.folder)
    probs = ensemble.predict_proba(images[:, None])
    unsure = ensemble.uncertainty(images[:, None])
    for i, row in enumerate(rows):
        assert row["class"] == ("top", "middle", "bottom")[probs[i].argmax()]
        assert row["probability"] == pytest.approx(probs[i].max(), abs=1e-6)
        for name in ("total", "aleatoric", "epistemic"):
            assert row[name] == pytest.approx(getattr(unsure, name)[i], abs=1e-6)


def test_csv_is_the_default_and_says_the_same_as_json(cli, trained, folder, tmp_path):
    answer = cli("predict", trained.folder, folder)
    assert (answer.code, answer.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    expected = json.loads(cli("predict", trained.folder, folder, "--json").out)
    assert rows == [{key: str(value) for key, value in row.items()} for row in expected]
    assert cli("predict", trained.folder, folder, "-o", tmp_path / "p.csv").out == ""
    assert (tmp_path / "p.csv").read_text() == answer.out


def test_a_name_with_a_comma_stays_one_cell(cli, one_line, trained, folder):
    refused = cli("predict", trained.folder, folder, "-o", folder / "0.png" / "p.csv")
    assert "can't write" in one_line(refused)
    name = folder / 'a, "b"\n.png'
    (folder / "0.png").rename(name)
    (row,) = csv.DictReader(io.StringIO(cli("predict", trained.folder, name).out))
    assert row["input"] == str(name)


def test_an_image_of_another_size_is_refused_or_resized(cli, one_line, trained, tmp_path):
    Image.new("RGB", (20, 30), (9, 200, 7)).save(tmp_path / "big.jpg")
    line = one_line(cli("predict", trained.folder, tmp_path / "big.jpg"))
    assert "big.jpg is 20 x 30 pixels, the network takes 8 x 8: resize it, or" in line
    assert "--resize" in line
    answer = cli("predict", trained.folder, tmp_path / "big.jpg", "--resize", "--json")
    assert len(json.loads(answer.out)) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.write_bytes(b"no image"), "cannot|no image|not an image|damaged|can't"),
        (lambda p: p.write_bytes(b""), "cannot|no image|not an image|damaged|can't"),
        (lambda p: p.mkdir(), "holds no images"),
        (lambda p: None, "there is no such file or folder"),
    ],
    ids=["nonsense", "empty", "empty-folder", "missing"],
)
def test_what_is_no_image_is_one_line(cli, one_line, trained, tmp_path, make, message):
    make(tmp_path / "x.png")
    line = one_line(cli("predict", trained.folder, tmp_path / "x.png"))
    assert any(part in line for part in message.split("|"))
    assert "x.png" in line


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *(((2, 9, 9), np.uint8), ((2, 8, 8), np.int64), ((2, 3, 8, 8), np.uint8)),
        *(((2, 5), np.float32), ((2,), object)),
    ],
)
def test_an_array_that_does_not_fit_is_one_line(cli, one_line, trained, tmp_path, shape, dtype):
    np.save(tmp_path / "x.npy", np.zeros(shape, dtype))
    assert "x.npy" in one_line(cli("predict", trained.folder, tmp_path / "x.npy"))


@pytest.mark.parametrize("ending", ["npy", "npz", "fortran.npz", "folder"])
def test_inputs_are_read_batch_by_batch_whatever_they_are(
    cli, trained, folder, images, tmp_path, ending
):
    many = np.tile(images, (20, 1, 1))
    source = tmp_path / f"x.{ending}"
    if ending == "folder":
        source.mkdir()
        for number, image in enumerate(many):
            Image.fromarray(image).save(source / f"{number:03d}.png")
    elif ending == "npy":
        np.save(source, many)
    else:
        np.savez_compressed(source, x=np.asfortranarray(many) if "fortran" in ending else many)
    expected = json.loads(cli("predict", trained.folder, folder, "--json").out)
    for size in (7, 1000):
        rows = json.loads(cli("predict", trained.folder, source, "--json", "-b", size).out)
        assert len(rows) == 120
        for row, known in zip(rows, expected * 20, strict=True):
            assert row["class"] == known["class"]
            assert row["probability"] == pytest.approx(known["probability"], abs=2e-6)


def test_no_more_than_a_batch_of_images_is_held_at_a_time(
    cli, trained, folder, tmp_path, monkeypatch
):
    alive, most = weakref.WeakValueDictionary[int, Any](), 0

    def watched(image):
        nonlocal most
        sample = np.array(decode.pixels(image))  # which views of it keep alive
        alive[id(sample)] = sample
        most = max(most, len(alive))
        return sample

    monkeypatch.setattr("freetickets.data.images.pixels", watched)
    inputs = [folder / "0.png"] * 100
    output = tmp_path / "p.csv"
    assert cli("predict", trained.folder, *inputs, "-b", 8, "-o", output).code == 0
    assert len(output.read_text().splitlines()) == 101
    assert most <= 2 * 8 + 1


def test_the_memory_of_a_prediction_does_not_grow_with_the_number_of_inputs(cli, trained, tmp_path):
    def peak(count):
        array = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (count, 8, 8))
        array[...] = 7
        del array
        tracemalloc.start()
        try:
            answer = cli("predict", trained.folder, tmp_path / "x.npy", "-o", tmp_path / "p")
            assert answer.code == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(2_000), peak(20_000)
    assert many - few < 18_000 * 64 / 4  # a quarter of the images, let alone their predictions


def test_a_long_prediction_says_how_far_it_is(cli, trained, folder, tmp_path, monkeypatch):
    assert cli("predict", trained.folder, folder, "-b", 2).err == ""
    monkeypatch.setattr("freetickets.progress._SILENCE", -1.0)
    answer = cli("predict", trained.folder, folder, "-b", 2)
    said = [line[:16] for line in answer.err.splitlines()]
    assert said == [f"[{share}%] predicted" for share in (" 33", " 67", "100")]
    assert answer.out.startswith("input,class,")


def test_before_a_bad_image_others_are_printed_but_leave_no_file(
    cli, one_line, trained, folder, tmp_path
):
    whole = cli("predict", trained.folder, folder, "-b", 2).out
    (folder / "zz.png").write_bytes(b"no image")
    answer = cli("predict", trained.folder, folder, "-b", 2)
    assert answer.code == 2
    assert whole.startswith(answer.out)
    assert len(answer.out.splitlines()) >= 5  # all but one batch, which is read ahead
    line = one_line(cli("predict", trained.folder, folder, "-b", 2, "-o", tmp_path / "p.csv"))
    assert "zz.png" in line
    assert not list(tmp_path.glob("*p.csv*"))


def test_normalised_floats_are_predicted_as_they_are(cli, trained, images, tmp_path):
    mean, std = ft.load(trained.folder).info["mean"], ft.load(trained.folder).info["std"]
    ready = ((images[:, None] / 255 - mean[0]) / std[0]).astype(np.float32)
    np.save(tmp_path / "raw.npy", images)
    np.save(tmp_path / "ready.npy", ready)
    rows = [
        json.loads(cli("predict", trained.folder, tmp_path / name, "--json").out)
        for name in ("raw.npy", "ready.npy")
    ]
    for a, b in zip(*rows, strict=True):
        assert a["class"] == b["class"]
        assert a["probability"] == pytest.approx(b["probability"], abs=1e-5)
