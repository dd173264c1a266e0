import json
from pathlib import Path

import numpy as np
import pytest

from freetickets.data.corruptions import corrupt
from freetickets.data.corruptions.folder import CorruptedSet

LABELS = np.arange(12) % 3


@pytest.fixture
def opened(photos, tmp_path):
    """Opens the set of the twelve photos, with other settings if asked."""

    def open_it(**changes):
        settings = {"folder": tmp_path / "X-C", "dataset": "x", "images": photos, "labels": LABELS}
        settings |= {"severities": (1, 2, 3, 4, 5), "seed": 0, "frost": None}
        return CorruptedSet(**{**settings, **changes})

    return open_it


def test_a_file_holds_severity_after_severity_and_labels_are_tiled(photos, opened):
    corrupted = opened()
    assert sum(corrupted.write("shot_noise")) == 60
    saved = np.load(corrupted.folder / "shot_noise.npy")
    for severity in range(1, 6):
        part = saved[12 * (severity - 1) : 12 * severity]
        assert np.array_equal(part, corrupt(photos, "shot_noise", severity))
    labels = np.load(corrupted.folder / "labels.npy")
    assert labels.dtype == np.uint8
    assert np.array_equal(labels, np.tile(LABELS, 5))


def test_processes_do_not_change_the_bytes(photos, opened, tmp_path):
    many = np.tile(photos, (43, 1, 1, 1))  # more than one block
    labels = np.zeros(len(many), int)
    folders = [tmp_path / "one", tmp_path / "two"]
    for count, folder in enumerate(folders, 1):
        corrupted = opened(folder=folder, images=many, labels=labels, severities=(2, 5))
        assert list(corrupted.write("snow", count)) == [500, 16, 500, 16]
    one, two = (np.load(folder / "snow.npy") for folder in folders)
    assert np.array_equal(one, two)


def test_a_finished_file_counts_and_an_unfinished_one_does_not(opened):
    corrupted = opened()
    work = corrupted.write("contrast")
    next(work)
    work.close()
    assert not corrupted.has("contrast")
    list(corrupted.write("contrast"))
    assert opened().has("contrast")
    (corrupted.folder / "contrast.npy").write_bytes(b"half a file")
    assert not opened().has("contrast")
    np.save(corrupted.folder / "contrast.npy", np.zeros((3, 32, 32, 3), np.uint8))
    assert not opened().has("contrast")


def test_a_folder_of_other_settings_is_left_alone(refused, opened, digests):
    folder = opened().folder
    before = digests(folder)
    for changes, text in (
        ({"seed": 1}, r"\(seed 0, not 1\)"),
        ({"severities": (1, 2)}, "severities"),
        ({"frost": Path("somewhere")}, r"\(frost synthetic, not files\)"),
        ({"dataset": "y"}, r"\(dataset x, not y\)"),
        ({"images": np.zeros((12, 32, 32, 3), np.uint8)}, r"other settings \(images\)"),
    ):
        refused(text, opened, **changes)
        assert digests(folder) == before


@pytest.mark.parametrize("content", ["{", "[]", '{"seed": 0}', None])
def test_a_note_that_says_something_else_or_none_is_refused(refused, opened, content):
    note = opened(seed=4).folder / "corruptions.json"
    told = json.loads(note.read_text())
    assert (told["seed"], told["frost"], told["samples"]) == (4, "synthetic", 12)
    assert told["freetickets"]
    note.unlink() if content is None else note.write_text(content)
    refused("holds other files" if content is None else "choose another --output", opened)
