"""A trajectory is stored without a change to the training, and stored alike after a kill."""

import time
from typing import Any

import numpy as np
import pytest
import torch

import freetickets as ft
from freetickets.config import Config
from freetickets.data import get_spec
from freetickets.evaluation import Predictions
from freetickets.evaluation.trajectory import read_trajectory
from freetickets.kernels.library import available
from freetickets.methods import METHODS
from freetickets.training.trajectory import Recorder

from ..methods import small as small_methods

SMALL: dict[str, Any] = {
    "backend": "sparse" if available() else "masked",
    "batch_size": 20,  # 108 of 120 samples: 6 steps an epoch
    "epochs": 6, "lr": 0.05, "quiet": True, "validation": 0.1, "model_options": {"dropout": 0.2},
}  # fmt: skip


def small(name):
    return small_methods.SMALL[name][0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_the_same_with_and_without(name, images_npz, tmp_path, digests):
    method, before = small(name), torch.get_rng_state()
    model = "cnn-4" if name == "batch-ensemble" else "mlp-8-8"
    for folder, every in (("without", 0), ("with", 1)):
        method.fit(model, str(images_npz), output=tmp_path / folder, trajectory=every, **SMALL)
    assert digests(tmp_path / "with" / "tickets") == digests(tmp_path / "without" / "tickets")
    assert not (tmp_path / "without" / "trajectory").exists()
    assert torch.equal(torch.get_rng_state(), before)  # those of the caller
    assert sum(each.collected for each in read_trajectory(tmp_path / "with")) == len(
        ft.load(tmp_path / "with").tickets
    )


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("name", ["edst", "dst", "ltr", "mimo"])
def test_where_a_ticket_was_collected_is_what_it_predicts(name, preset, images_npz, tmp_path):
    ensemble = small(name).fit(
        "cnn-4", str(images_npz), output=tmp_path, trajectory=4, preset=preset, **SMALL
    )
    test = ft.data.load(images_npz, "test")
    found = [each for each in read_trajectory(tmp_path) if each.collected]
    assert [each.ticket for each in found] == list(range(1, len(ensemble.tickets) + 1))
    for point, ticket in zip(found, ensemble.tickets, strict=True):
        assert (point.run, point.step) == (ticket.info["run"], ticket.info["step"])
        expected = np.log(ft.Ensemble([ticket]).predict_proba(test))
        np.testing.assert_allclose(point.log_probs, expected, atol=1e-4)
        assert np.array_equal(point.labels, test.labels.numpy())


def test_a_checkpoint_is_stored_every_so_many_epochs_and_at_each_ticket(images_npz, tmp_path):
    for every in (1, 4):
        small("edst").fit(
            "mlp-8", str(images_npz), output=tmp_path / str(every), trajectory=every, **SMALL
        )
    each, some = (read_trajectory(tmp_path / str(every)) for every in (1, 4))
    steps = [point.step for point in each]
    tickets = [ticket.info["step"] for ticket in ft.load(tmp_path / "1").tickets]
    assert steps == sorted({*range(6, 37, 6), *tickets})
    assert [point.step for point in some] == sorted({24, *tickets})
    assert [point.epoch for point in each] == [step / 6 for step in steps]
    for point in each:
        assert (point.run, point.ticket) == (1, 1 if point.step <= tickets[0] else 2)
        assert point.phase.startswith(("explore", "refine"))
    saved = Predictions.load(tmp_path / "4" / "trajectory" / "1-24.npz")
    assert saved.outputs.shape == (1, 45, 3)
    assert saved.outputs.dtype == np.float32
    assert saved.info["kind"] == "trajectory"
    assert saved.info["samples"] == list(range(45))
    assert saved.info["collected"] is (24 in tickets)


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("name", ["edst", "dst", "mc-dropout"])
def test_killed_and_resumed_it_stores_the_same_bytes(
    name, preset, images_npz, tmp_path, digests, monkeypatch, killed_at
):
    settings = {**SMALL, "preset": preset, "trajectory": 1}

    def train(folder, **more):
        small(name).fit("mlp-8", str(images_npz), output=tmp_path / folder, **settings, **more)

    train("whole")
    with monkeypatch.context() as patch:
        # The bytes must not hold the time at which they were written.
        now = time.time
        patch.setattr(time, "time", lambda: now() + 1e6)
        killed_at(lambda: train("killed", checkpoint_seconds=1e9), 5)
        killed_at(lambda: train("killed", checkpoint_seconds=0), 9, 8)
    train("killed")
    for part in ("trajectory", "tickets"):
        assert digests(tmp_path / "killed" / part) == digests(tmp_path / "whole" / part)


def test_the_interval_may_change_midway_and_counts_then(images_npz, tmp_path, digests, killed_at):
    def train(folder, every, **more):
        ft.Dense().fit(
            "mlp-8", str(images_npz), output=tmp_path / folder, trajectory=every, **SMALL, **more
        )

    train("whole", 1)
    killed_at(lambda: train("changed", 0, checkpoint_seconds=0), 15)  # in the third epoch
    train("changed", 2)
    found = digests(tmp_path / "changed" / "trajectory")
    assert set(found) == {"1-24.npz", "1-36.npz"}
    whole = digests(tmp_path / "whole" / "trajectory")
    assert all(found[file] == whole[file] for file in found)
    assert digests(tmp_path / "changed" / "tickets") == digests(tmp_path / "whole" / "tickets")


def test_runs_begun_anew_forget_theirs_and_finished_ones_store_none(images_npz, tmp_path, capsys):
    def train(every):
        ft.Dense().fit("mlp-8", str(images_npz), trajectory=every, output=tmp_path, **SMALL)

    train(0)
    train(1)
    assert "so no trajectory is stored" in capsys.readouterr().err
    assert not (tmp_path / "trajectory").exists()
    for every in (1, 4):
        for file in (tmp_path / "checkpoint").iterdir():
            file.unlink()
        train(every)
    assert [each.step for each in read_trajectory(tmp_path)] == [24, 36]


def test_of_a_large_test_set_the_same_thousand_samples_are_taken_whatever_the_seed():
    spec = get_spec("fashion-mini")
    chosen = []
    for seed in (0, 7):
        config = Config(trajectory=1, output="runs/x", seed=seed).resolved(spec)
        recorder = Recorder(config, spec, "probabilities")
        chosen.append(recorder.info["samples"])
    assert chosen[0] == chosen[1] == sorted(set(chosen[0]))
    assert len(chosen[0]) == 1000
    test = ft.data.load("fashion-mini", "test")
    labels = recorder.batches.split.labels
    assert torch.equal(labels, test.labels[torch.tensor(chosen[0])])
    assert torch.bincount(labels).min() > 50, "every class is there"


def test_what_has_no_test_set_or_folder_is_refused_at_once(refused, features, images_npz, tmp_path):
    for data, settings, words in (
        (features, {"output": tmp_path, "trajectory": 1}, "your own arrays have none"),
        (str(images_npz), {"trajectory": 1}, "give it as output"),
        (str(images_npz), {"output": tmp_path, "trajectory": -1}, "must be at least 0"),
    ):
        refused(words, ft.Dense().fit, "mlp-8", data, quiet=True, **settings)
