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


@pytest.fixture
def rows_of(cli, trained):
    """What `predict --json` says, as JSON."""
    return lambda *words: json.loads(cli("predict", trained.folder, *words, "--json").out)


def test_images_folders_and_arrays_are_predicted_alike(rows_of, trained, images, folder, tmp_path):
    np.save(tmp_path / "x.npy", images)
    np.savez(tmp_path / "x.npz", x=np.asfortranarray(images))
    by_folder = rows_of(folder)
    probabilities = [row["probability"] for row in by_folder]
    assert [list(row) for row in by_folder] == [KEYS] * 6
    assert [Path(row["input"]).stem for row in by_folder] == list("012345")
    for file in ("x.npy", "x.npz"):
        rows = rows_of(tmp_path / file)
        assert [row.pop("input") for row in rows] == [f"{tmp_path / file}[{i}]" for i in range(6)]
        assert rows == [{key: row[key] for key in KEYS[1:]} for row in by_folder]
        in_batches = [row["probability"] for row in rows_of(tmp_path / file, "-b", 4)]
        assert in_batches == pytest.approx(probabilities, abs=2e-6)
    assert rows_of(folder / "3.png") == by_folder[3:4]
    ensemble = ft.load(trained.folder)
    probs, unsure = ensemble.predict_proba(images[:, None]), ensemble.uncertainty(images[:, None])
    for i, row in enumerate(by_folder):
        assert row["class"] == ("top", "middle", "bottom")[probs[i].argmax()]
        assert row["probability"] == pytest.approx(probs[i].max(), abs=1e-6)
        for name in KEYS[3:]:
            assert row[name] == pytest.approx(getattr(unsure, name)[i], abs=1e-6)


def test_csv_is_the_default_and_says_the_same_as_json(cli, rows_of, trained, folder, tmp_path):
    (folder / "0.png").rename(folder / '0, "b"\n.png')  # stays one cell
    answer = cli("predict", trained.folder, folder)
    assert (answer.code, answer.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert rows == [{key: str(value) for key, value in row.items()} for row in rows_of(folder)]
    assert cli("predict", trained.folder, folder, "-o", tmp_path / "p.csv").out == ""
    assert (tmp_path / "p.csv").read_text() == answer.out


def test_what_can_not_be_predicted_is_one_line(cli, one_line, rows_of, trained, folder, tmp_path):
    Image.new("RGB", (20, 30), (9, 200, 7)).save(tmp_path / "big.jpg")
    line = one_line(cli("predict", trained.folder, tmp_path / "big.jpg"))
    assert "big.jpg is 20 x 30 pixels, the network takes 8 x 8: resize it, or" in line
    assert len(rows_of(tmp_path / "big.jpg", "--resize")) == 1
    line = one_line(cli("predict", trained.folder, tmp_path / "none.png"))
    assert "none.png: there is no such file or folder" in line
    refused = cli("predict", trained.folder, folder, "-o", folder / "0.png" / "p.csv")
    assert "can't write" in one_line(refused)


def test_only_a_batch_of_images_is_held_at_a_time(cli, trained, folder, tmp_path, monkeypatch):
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
        np.save(tmp_path / "x.npy", np.full((count, 8, 8), 7, np.uint8))
        tracemalloc.start()
        try:
            answer = cli("predict", trained.folder, tmp_path / "x.npy", "-o", tmp_path / "p")
            assert answer.code == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(2_000), peak(20_000)
    assert many - few < 18_000 * 64 / 4  # a quarter of the images, let alone their predictions


def test_a_long_prediction_says_how_far_it_is(cli, trained, folder, monkeypatch):
    assert cli("predict", trained.folder, folder, "-b", 2).err == ""
    monkeypatch.setattr("freetickets.progress._SILENCE", -1.0)
    answer = cli("predict", trained.folder, folder, "-b", 2)
    said = [line[:16] for line in answer.err.splitlines()]
    assert said == [f"[{share}%] predicted" for share in (" 33", " 67", "100")]
    assert answer.out.startswith("input,class,")


def test_others_before_a_bad_image_are_printed_to_no_file(cli, one_line, trained, folder, tmp_path):
    whole = cli("predict", trained.folder, folder, "-b", 2).out
    (folder / "zz.png").write_bytes(b"no image")
    answer = cli("predict", trained.folder, folder, "-b", 2)
    assert answer.code == 2
    assert whole.startswith(answer.out)
    assert len(answer.out.splitlines()) >= 5  # all but one batch, which is read ahead
    line = one_line(cli("predict", trained.folder, folder, "-b", 2, "-o", tmp_path / "p.csv"))
    assert "zz.png" in line
    assert not list(tmp_path.glob("*p.csv*"))
