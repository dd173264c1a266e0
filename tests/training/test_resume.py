"""A run that was stopped, however, ends like one that was not: bit for bit."""

import random
import re
import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.errors import StoppedError
from freetickets.reading import read_json
from freetickets.storage import load_tree, save_tree

from ..conftest import interrupt
from .conftest import Noisy, read_log

# 54 of 60 samples: 6 steps an epoch, 24 a run; dropout, so that the torch generator matters.
SMALL: dict[str, Any] = {
    "batch_size": 10, "epochs": 4, "quiet": True, "validation": 0.1,
    "model_options": {"dropout": 0.3},
}  # fmt: skip
EDST, DST = ft.EDST(tickets=2, interval=2), ft.DST(tickets=2, interval=2)
METHODS = {"edst": EDST, "dst": DST, "dense": ft.Dense()}


def no_training():
    raise AssertionError("a finished run was trained again")


@pytest.fixture
def train(features, tmp_path):
    """Trains a small run in a folder below that of the test."""

    def run(name=".", method=EDST, model="mlp-8", data=features, **more):
        return method.fit(model, data, output=tmp_path / name, **{**SMALL, **more})

    return run


@pytest.fixture
def killed(train, killed_at):
    """Trains in the folder "killed", and is killed at steps counted in each of its lives."""

    def run(*steps, name="killed", **settings):
        killed_at(lambda: train(name, **{"checkpoint_seconds": 0, **settings}), *steps)

    return run


@pytest.fixture
def half(killed, tmp_path):
    """The folder of a run that collected one of two tickets, then was killed."""
    killed(20, name=".")
    assert len(list((tmp_path / "tickets").iterdir())) == 1
    return tmp_path


@pytest.fixture
def assert_same_run(digests, tmp_path):
    """Fails unless two runs of the test ended the same and left nothing behind."""

    def check(name="killed", expected="whole"):
        folder, other = tmp_path / name, tmp_path / expected
        assert digests(folder / "tickets") == digests(other / "tickets")
        assert read_log(folder) == read_log(other)
        assert not [file for file in folder.rglob(".*") if file.is_file()]

    return check


@pytest.mark.parametrize("checkpoint_seconds", [0, 1e9], ids=["each-step", "phase-ends"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_many_steps_and_resumed_it_ends_the_same(
    features, train, killed, assert_same_run, method, preset, optimizer, checkpoint_seconds
):
    settings = {"method": METHODS[method], "preset": preset, "optimizer": optimizer, "lr": 0.01}
    whole = train("whole", **settings)
    killed(1, 7, 2, 9, 4, checkpoint_seconds=checkpoint_seconds, **settings)
    resumed = train("killed", checkpoint_seconds=checkpoint_seconds, **settings)
    assert_same_run()
    assert np.array_equal(resumed.member_proba(features[0]), whole.member_proba(features[0]))


# Cycles, Nesterov, alternating flips; rates of their own for norms and a sparse layer.
FAST: dict[str, Any] = {"recipe": "fast", "augmentation": "translate-alternate"}
FAST |= {"lr_factors": {"norm-bias": 8.0, "fc": 0.5}}


@pytest.mark.parametrize(
    ("model", "recipe"),
    [("cnn-2", {"augmentation": "pad-crop-flip"}), ("fast-2-3-3", FAST)],
    ids=["small", "fast"],
)
@pytest.mark.parametrize("backend", ["auto", "masked"])
def test_images_are_alike_after_a_kill(train, killed, assert_same_run, backend, model, recipe):
    images = np.random.default_rng(0).integers(0, 255, (60, 9, 9), dtype=np.uint8)
    method = ft.EDST(tickets=2, interval=3, grow="momentum")
    settings = {**recipe, "model": model, "method": method, "backend": backend}
    settings |= {"data": (images, np.arange(60) % 3), "model_options": {}}
    train("whole", **settings)
    killed(5, 11, **settings)
    train("killed", **settings)
    assert_same_run()


def test_a_dataset_that_draws_goes_on_the_same(features, train, killed, assert_same_run):
    data = Noisy(features)
    train("whole", data=data)
    for steps, workers in ((1, 0), (8, 1), (3, 0)):
        random.seed(steps)  # whatever the process drew before
        killed(steps, data=data, workers=workers)
    train("killed", data=data)
    assert_same_run()


def test_mixed_precision_passes_a_damaged_one_over(train, killed, tmp_path, assert_same_run, capfd):
    train("whole", amp=True)
    killed(13, amp=True)
    newest = max((tmp_path / "killed" / "checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    train("killed", amp=True)
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {newest} is damaged")
    assert_same_run()


class Residual(nn.Module):
    """Weights of one shape, whatever is done with them."""

    def __init__(self, act, width=6):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, width), act, nn.Linear(width, 3)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


OWN = {"method": ft.Dense(), "model_options": {}, "checkpoint_seconds": 0}


@pytest.mark.parametrize("finished", [True, False])
def test_another_network_is_not_taken_for_the_trained_one(refused, train, killed, finished):
    if finished:
        train(model=lambda: Residual(nn.ReLU()), **OWN)
    else:
        killed(5, name=".", model=lambda: Residual(nn.ReLU()), **OWN)
    others = (lambda: Residual(nn.Tanh()), Residual(nn.Tanh()), lambda: Residual(nn.ReLU(), 7))
    for other in others:
        refused(r"with another network: .*--output", train, model=other, **OWN)
    assert len(train(model=Residual(nn.ReLU()), **OWN)) == 1  # the same, as an object


def test_runs_that_do_not_say_which_network_they_are_of_go_on(train, killed, tmp_path):
    killed(5, name=".", model=lambda: Residual(nn.ReLU()), **OWN)
    for file in (tmp_path / "checkpoint").iterdir():  # as older versions wrote it
        tree = load_tree(file, "freetickets-checkpoint")
        assert tree.pop("network")
        tree.pop("validation_data")
        save_tree(file, tree, "freetickets-checkpoint")
    assert len(train(model=lambda: Residual(nn.ReLU()), **OWN)) == 1


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_step_saves_and_says_what_next(train, at_step, assert_same_run, number):
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    train("whole", DST)
    for steps, run, step in [(3, 1, 3), (20, 1, 23), (9, 2, 8)]:
        at_step(steps, lambda: interrupt(number))
        words = f"run {run} after step {step}; everything is saved .*run the same command"
        with pytest.raises(StoppedError, match=words):
            train("killed", DST)
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    at_step(0)
    train("killed", DST)
    assert_same_run()


def test_a_signal_in_the_last_step_loses_nothing(train, at_step, assert_same_run):
    train("whole")
    at_step(24, interrupt)
    with pytest.raises(StoppedError):
        train("killed")
    at_step(1, no_training)
    train("killed")
    assert_same_run()


def test_a_second_ctrl_c_or_no_output_leaves_nothing_saved(train, at_step, tmp_path, features):
    at_step(3, lambda: (interrupt(), interrupt()))
    with pytest.raises(KeyboardInterrupt):
        train()
    assert not (tmp_path / "checkpoint").exists()
    state = torch.get_rng_state()
    at_step(3, interrupt)
    with pytest.raises(StoppedError, match="nothing is saved"):
        EDST.fit("mlp-8", features, **SMALL)
    assert torch.equal(torch.get_rng_state(), state)


def test_training_works_in_a_thread_that_gets_no_signals(train):
    done: list[ft.Ensemble] = []
    thread = threading.Thread(target=lambda: done.append(train()))
    thread.start()
    thread.join()
    assert len(done[0]) == 2


# ---- what is in the folder


def test_a_finished_run_is_not_trained_again(features, train, tmp_path, at_step, digests):
    first = train()
    before = digests(tmp_path)
    at_step(1, no_training)
    again = train()
    assert digests(tmp_path) == before
    assert np.array_equal(first.member_proba(features[0]), again.member_proba(features[0]))
    log = read_log(tmp_path)
    (tmp_path / "log.csv").unlink()
    train()
    assert read_log(tmp_path) == log  # what got lost is written again


CHANGES = {
    "batch_size": 12, "optimizer": "adam", "lr": 0.07, "momentum": 0.5, "validation": 0.2,
    "seed": 1, "epochs": 5.0, "preset": "paper", "amp": True, "label_smoothing": 0.1,
    "nesterov": True, "lr_factors": {"fc*": 2.0}, "model": "mlp-9",
}  # fmt: skip


def test_a_changed_setting_is_named_and_no_file_is_touched(refused, train, half, digests):
    before = digests(half)
    for setting, value in CHANGES.items():
        words = rf"other settings \({setting}: .* -> {re.escape(str(value))}\)"
        refused(words, train, **{setting: value})
    sparser = ft.EDST(tickets=2, interval=2, sparsity=0.7)
    refused(r"other settings \(sparsity: 0\.8 -> 0\.7\)", train, method=sparser)
    assert digests(half) == before
    assert len(train(checkpoint_seconds=7, workers=1, device="cpu")) == 2  # these may change


def test_settings_can_be_mended_until_a_save_and_other_data_is_noticed(refused, train, features):
    refused("unknown score", lambda: train(method=ft.EDST(tickets=2, prune="magnitud")))
    assert len(train()) == 2
    train()
    x, y = features
    for other in ((x.flip(0), y), (x, y.flip(0))):
        refused(r"\(dataset: arrays-\w+ -> arrays-", train, data=other)


def test_tickets_stay_without_checkpoints_and_lost_ones_are_named(refused, train, half, digests):
    before = digests(half / "tickets")
    kept = {file: file.read_bytes() for file in (half / "checkpoint").iterdir()}
    for file in kept:
        file.write_bytes(b"")
    refused("no checkpoint", train)
    assert digests(half / "tickets") == before
    for file, data in kept.items():
        file.write_bytes(data)
    ticket = half / "tickets" / "01.safetensors"
    ticket.write_bytes(ticket.read_bytes()[:-1])
    refused(r"01\.safetensors is damaged", train)
    ticket.unlink()
    refused(r"01\.safetensors", train)


def test_the_time_of_all_lives_is_in_the_ledger(train, half):
    before = read_json(half / "ledger.json")
    train()
    after = read_json(half / "ledger.json")
    assert after["phases"][0]["seconds"] == before["phases"][0]["seconds"] > 0
    assert after["seconds"] == pytest.approx(sum(p["seconds"] for p in after["phases"]))
    assert after["seconds"] > before["seconds"]
