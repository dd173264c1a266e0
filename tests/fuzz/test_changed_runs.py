"""What changed between two commands on one run: settings, data, files of other runs."""

import shutil
from pathlib import Path

import pytest
import torch
from fuzzing.kinds import TRAINING, trained
from PIL import Image

import freetickets as ft
from freetickets.data import load
from freetickets.data.batches import digest_split
from freetickets.data.samples import LazySplit
from freetickets.report.run import read_run
from freetickets.training.folder import Checkpoints


@pytest.fixture
def root(home):
    """Two finished runs and their data; each file may be changed, and is put back after it."""
    for number in (1, 2):
        trained(home, number)
    content = {path: path.read_bytes() for path in home.glob("run-*/**/*") if path.is_file()}
    content[home / "data.npz"] = (home / "data.npz").read_bytes()
    yield home
    for path in home.glob("run-*/**/*"):
        if path.is_file() and path not in content:
            path.unlink()
    for path, data in content.items():
        path.write_bytes(data)


def train(cli, root, *flags):
    data = ("--dataset", root / "data.npz", *TRAINING.split())
    return cli("train", "edst", *data, "--quiet", "-o", root / "run-1", *("--seed", 1, *flags))


def test_settings_edited_in_the_folder_are_refused_if_not_given(refused, cli, root, tmp_path):
    file = root / "run-1" / "config.yaml"
    sealed = file.read_text().replace("seed: 1", "seed: 5")
    for text in (sealed.partition("\n")[2], sealed):
        file.write_text(text)
        answer = train(cli, root, "--seed", 5)
        (line,) = answer.err.splitlines()
        assert "was changed since the run began" in line
        assert "--config" in line
    refused(read_run, root / "run-1", match="was changed since the run began")
    answer = cli("train", "--config", file, "-o", tmp_path / "new", "--quiet")
    assert answer.code == 0
    assert all(line.startswith("warning: a run of this plan") for line in answer.err.splitlines())


def test_tickets_of_two_runs_make_no_ensemble_by_accident(refused, root, tmp_path):
    name = Path("tickets") / "02.safetensors"
    shutil.copy(root / "run-2" / name, root / "run-1" / name)
    refused(ft.load, root / "run-1", match="belong to different runs")
    tickets = [ft.Ticket.load(root / f"run-{n}" / name) for n in (1, 2)]
    ft.Ensemble(tickets).save(tmp_path)  # but on purpose
    assert len(ft.load(tmp_path)) == 2
    own = root / "run-1" / name
    shutil.copy(own.with_name("01.safetensors"), own)
    refused(ft.load, root / "run-1", match=r"02\.safetensors is ticket 1")


def test_a_checkpoint_from_before_there_were_digests_is_resumed(cli, root):
    checkpoints = Checkpoints(root / "run-1" / "checkpoint", lambda _: None)
    tree = checkpoints.load()
    checkpoints.save({key: value for key, value in tree.items() if key not in ("settings", "data")})
    assert train(cli, root).code == 0


def test_data_are_told_apart_by_values_and_order_photos_by_name_and_label(images_npz, tmp_path):
    split = load(images_npz, "train")
    turned = split.subset(torch.arange(len(split)).flip(0))
    assert digest_split(split) == digest_split(load(images_npz, "train"))
    assert digest_split(split) != digest_split(turned)

    def digest(root, labels, width=8):
        (root / "cat").mkdir(parents=True, exist_ok=True)
        paths = tuple(root / "cat" / f"{n}.bmp" for n in (1, 2))
        for path in paths:
            Image.new("RGB", (width, 8)).save(path)
        return digest_split(LazySplit(paths, torch.tensor(labels), (3, 8, 8)))

    first = digest(tmp_path / "a", (0, 1))
    assert first == digest(tmp_path / "moved", (0, 1))
    assert first != digest(tmp_path / "a", (1, 0))
    assert first != digest(tmp_path / "a", (0, 1), width=16)
