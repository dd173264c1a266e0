"""A run that was stopped, however, ends like one that was not: bit for bit."""

from __future__ import annotations

import contextlib
import csv
import os
import random
import re
import signal
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import freetickets as ft
from freetickets.errors import DamagedFileError, FreeTicketsError, StoppedError
from freetickets.storage import load_tree, save_tree
from freetickets.training.progress import Reporter

# 54 of 60 samples: 6 steps an epoch, 24 a run; dropout, so that the torch generator matters.
SMALL: dict[str, Any] = {
    "batch_size": 10,
    "epochs": 4,
    "quiet": True,
    "validation": 0.1,
    "model_options": {"dropout": 0.3},
}
METHODS = {
    "edst": ft.EDST(tickets=2, interval=2),
    "dst": ft.DST(tickets=2, interval=2),
    "dense": ft.Dense(),
}


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


@pytest.fixture
def at_step(monkeypatch):
    """Makes something happen at a step, counted from now on."""

    def set_up(step, action):
        count = 0

        def counted(*_):
            nonlocal count
            count += 1
            if count == step:
                action()

        monkeypatch.setattr(Reporter, "step", counted)

    return set_up


def kill():
    raise Killed


def no_training():
    raise AssertionError("a finished run was trained again")


def read_log(folder):
    """The log without the times, and the seal that covers them."""
    with (folder / "log.csv").open() as file:
        return [
            {name: value for name, value in row.items() if name not in ("seconds", "sha256")}
            for row in csv.DictReader(file)
        ]


def assert_same_run(digests, folder, expected):
    assert digests(folder / "tickets") == digests(expected / "tickets")
    assert read_log(folder) == read_log(expected)
    assert not [file for file in folder.rglob(".*") if file.is_file()]


@pytest.mark.parametrize("checkpoint_seconds", [0, 1e9], ids=["each-step", "phase-ends"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_many_steps_and_resumed_it_ends_the_same(
    features, tmp_path, digests, at_step, method, preset, optimizer, checkpoint_seconds
):
    def train(name, **more):
        settings = {**SMALL, "preset": preset, "optimizer": optimizer, "lr": 0.01, **more}
        return METHODS[method].fit("mlp-8", features, output=tmp_path / name, **settings)

    whole = train("whole")
    for steps in (1, 7, 2, 9, 4):  # of each life, counted from where it is resumed
        at_step(steps, kill)
        with pytest.raises(Killed):
            train("killed", checkpoint_seconds=checkpoint_seconds)
    at_step(0, kill)
    resumed = train("killed", checkpoint_seconds=checkpoint_seconds)
    assert_same_run(digests, tmp_path / "killed", tmp_path / "whole")
    x = features[0]
    assert np.array_equal(resumed.member_proba(x), whole.member_proba(x))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_killed_around_any_write_it_ends_the_same(
    features, tmp_path, digests, monkeypatch, preset, moment
):
    method = ft.EDST(tickets=2, interval=2)
    settings = {**SMALL, "epochs": 2, "preset": preset}
    method.fit("mlp-8", features, output=tmp_path / "whole", **settings)
    replace = os.replace
    for number in range(1, 100):
        left = number

        def counted(*paths):
            nonlocal left
            left -= 1
            if left == 0 and moment == "before":
                raise Killed
            replace(*paths)
            if left == 0:
                raise Killed

        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", counted)
            try:
                method.fit("mlp-8", features, output=folder, **settings)
                break  # all writes have had their turn
            except Killed:
                pass
        method.fit("mlp-8", features, output=folder, **settings)
        assert_same_run(digests, folder, tmp_path / "whole")
    assert number > 12


@pytest.mark.parametrize(
    ("model", "recipe"),
    [
        ("cnn-2", {"augmentation": "pad-crop-flip"}),
        # Cycles, Nesterov, alternating flips; rates of their own for norms and a sparse layer.
        (
            "fast-2-3-3",
            {
                "recipe": "fast",
                "augmentation": "translate-alternate",
                "lr_factors": {"norm-bias": 8.0, "fc": 0.5},
            },
        ),
    ],
    ids=["small", "fast"],
)
@pytest.mark.parametrize("backend", ["auto", "masked"])
def test_images_are_augmented_and_whitened_alike_after_a_kill(
    tmp_path, digests, at_step, backend, model, recipe
):
    images = np.random.default_rng(0).integers(0, 255, (60, 9, 9), dtype=np.uint8)
    settings = {**SMALL, **recipe, "checkpoint_seconds": 0, "backend": backend}
    method = ft.EDST(tickets=2, interval=3, grow="momentum")

    def train(name):
        method.fit(model, (images, np.arange(60) % 3), output=tmp_path / name, **settings)

    settings.pop("model_options")
    train("whole")
    for steps in (5, 11):
        at_step(steps, kill)
        with pytest.raises(Killed):
            train("killed")
    at_step(0, kill)
    train("killed")
    assert_same_run(digests, tmp_path / "killed", tmp_path / "whole")


class Noisy(Dataset[Any]):
    """Samples that draw from all three generators each time they are read."""

    def __init__(self, features):
        self._features = features

    def __len__(self):
        return 60

    def __getitem__(self, index):
        x, y = self._features
        shift = random.random() + np.random.rand()  # noqa: NPY002
        return x[index] + torch.rand(6) + shift, int(y[index])


def test_a_dataset_that_augments_by_chance_goes_on_the_same(features, tmp_path, digests, at_step):
    def train(name, workers):
        settings = {**SMALL, "checkpoint_seconds": 0, "workers": workers}
        EDST.fit("mlp-8", Noisy(features), output=tmp_path / name, **settings)

    EDST = METHODS["edst"]  # noqa: N806
    train("whole", 0)
    for steps, workers in ((1, 0), (8, 1), (3, 0)):
        at_step(steps, kill)
        random.seed(steps)  # whatever the process drew before
        with pytest.raises(Killed):
            train("killed", workers)
    at_step(0, kill)
    train("killed", 0)
    assert_same_run(digests, tmp_path / "killed", tmp_path / "whole")


class Residual(nn.Module):
    """Weights of one shape, whatever is done with them."""

    def __init__(self, act):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 6), act, nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x + self.act(self.first(x)))


@pytest.mark.parametrize("finished", [True, False])
def test_another_network_of_equal_shapes_is_not_taken_for_the_one_that_was_trained(
    features, tmp_path, at_step, finished
):
    settings = {**SMALL, "model_options": {}, "checkpoint_seconds": 0, "output": tmp_path}
    if not finished:
        at_step(5, kill)
    with contextlib.suppress(Killed):
        ft.Dense().fit(lambda: Residual(nn.ReLU()), features, **settings)
    at_step(0, kill)
    with pytest.raises(FreeTicketsError, match=r"was started with another network: .*--output"):
        ft.Dense().fit(lambda: Residual(nn.Tanh()), features, **settings)
    with pytest.raises(FreeTicketsError, match="was started with another network"):
        ft.Dense().fit(Residual(nn.Tanh()), features, **settings)
    ensemble = ft.Dense().fit(Residual(nn.ReLU()), features, **settings)  # the same, as an object
    assert len(ensemble) == 1


def test_runs_that_do_not_say_which_network_they_are_of_go_on(features, tmp_path, at_step):
    settings = {**SMALL, "model_options": {}, "checkpoint_seconds": 0, "output": tmp_path}
    at_step(5, kill)
    with pytest.raises(Killed):
        ft.Dense().fit(lambda: Residual(nn.ReLU()), features, **settings)
    at_step(0, kill)
    for file in (tmp_path / "checkpoint").iterdir():  # as older versions wrote it
        tree = load_tree(file, "freetickets-checkpoint")
        assert tree.pop("network")
        tree.pop("validation_data")
        save_tree(file, tree, "freetickets-checkpoint")
    assert len(ft.Dense().fit(lambda: Residual(nn.ReLU()), features, **settings)) == 1


def test_mixed_precision_goes_on_the_same(features, tmp_path, digests, at_step):
    settings = {**SMALL, "amp": True, "checkpoint_seconds": 0}
    method = METHODS["edst"]
    method.fit("mlp-8", features, output=tmp_path / "whole", **settings)
    at_step(13, kill)
    with pytest.raises(Killed):
        method.fit("mlp-8", features, output=tmp_path / "killed", **settings)
    at_step(0, kill)
    method.fit("mlp-8", features, output=tmp_path / "killed", **settings)
    assert_same_run(digests, tmp_path / "killed", tmp_path / "whole")


# ---- signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(
    features, tmp_path, digests, at_step, number
):
    method = METHODS["dst"]
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    method.fit("mlp-8", features, output=tmp_path / "whole", **SMALL)
    for steps, where in [
        (3, "run 1 after step 3"),
        (20, "run 1 after step 23"),
        (9, "run 2 after step 8"),
    ]:
        at_step(steps, lambda: os.kill(os.getpid(), number))
        with pytest.raises(
            StoppedError, match=f"{where}; everything is saved .*run the same command"
        ):
            method.fit("mlp-8", features, output=tmp_path / "stopped", **SMALL)
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    at_step(0, kill)
    method.fit("mlp-8", features, output=tmp_path / "stopped", **SMALL)
    assert_same_run(digests, tmp_path / "stopped", tmp_path / "whole")


def test_a_signal_in_the_last_step_loses_nothing(features, tmp_path, digests, at_step):
    method = METHODS["edst"]
    method.fit("mlp-8", features, output=tmp_path / "whole", **SMALL)
    at_step(24, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(StoppedError):
        method.fit("mlp-8", features, output=tmp_path / "stopped", **SMALL)
    at_step(1, no_training)
    method.fit("mlp-8", features, output=tmp_path / "stopped", **SMALL)
    assert_same_run(digests, tmp_path / "stopped", tmp_path / "whole")


def test_a_second_ctrl_c_ends_at_once(features, tmp_path, at_step):
    def twice():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    at_step(3, twice)
    with pytest.raises(KeyboardInterrupt):
        METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    assert not (tmp_path / "checkpoint").exists()


def test_without_an_output_a_stopped_run_says_that_nothing_is_saved(features, at_step):
    at_step(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(StoppedError, match="nothing is saved"):
        METHODS["edst"].fit("mlp-8", features, **SMALL)


def test_training_works_in_a_thread_that_gets_no_signals(features):
    done: list[ft.Ensemble] = []
    thread = threading.Thread(
        target=lambda: done.append(METHODS["edst"].fit("mlp-8", features, **SMALL))
    )
    thread.start()
    thread.join()
    assert len(done[0]) == 2


# ---- what is in the folder


def half_a_run(at_step, method, data, folder, **more):
    """Collects one ticket, then stops."""
    settings = {**SMALL, "checkpoint_seconds": 0, **more}
    model = settings.pop("model", "mlp-8")
    at_step(20, kill)
    with pytest.raises(Killed):
        method.fit(model, data, output=folder, **settings)
    at_step(0, kill)
    assert len(list((folder / "tickets").iterdir())) == 1


def test_a_finished_run_is_not_trained_again(features, tmp_path, at_step, digests):
    first = METHODS["dst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    before = digests(tmp_path)
    at_step(1, no_training)
    again = METHODS["dst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    assert digests(tmp_path) == before
    assert np.array_equal(first.member_proba(features[0]), again.member_proba(features[0]))


def test_a_log_that_got_lost_is_written_again(features, tmp_path, at_step):
    METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    log = read_log(tmp_path)
    (tmp_path / "log.csv").unlink()
    at_step(1, no_training)
    METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    assert read_log(tmp_path) == log


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 12),
        ("optimizer", "adam"),
        ("lr", 0.07),
        ("momentum", 0.5),
        ("validation", 0.2),
        ("seed", 1),
        ("epochs", 5.0),
        ("preset", "paper"),
        ("amp", True),
        ("label_smoothing", 0.1),
        ("nesterov", True),
        ("lr_factors", {"fc*": 2.0}),
    ],
)
def test_a_changed_setting_is_named_and_no_file_is_touched(
    features, tmp_path, at_step, digests, setting, value
):
    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    before = digests(tmp_path)
    with pytest.raises(
        FreeTicketsError, match=rf"other settings \({setting}: .* -> {re.escape(str(value))}\)"
    ):
        METHODS["edst"].fit("mlp-8", features, output=tmp_path, **{**SMALL, setting: value})
    assert digests(tmp_path) == before


def test_an_option_of_the_method_and_the_model_can_not_change_either(features, tmp_path, at_step):
    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    with pytest.raises(FreeTicketsError, match=r"other settings \(sparsity: 0\.8 -> 0\.7\)"):
        ft.EDST(tickets=2, interval=2, sparsity=0.7).fit(
            "mlp-8", features, output=tmp_path, **SMALL
        )
    with pytest.raises(FreeTicketsError, match=r"other settings \(model: mlp-8 -> mlp-9\)"):
        METHODS["edst"].fit("mlp-9", features, output=tmp_path, **SMALL)


@pytest.mark.parametrize("part", [0, 1], ids=["inputs", "labels"])
def test_other_data_is_noticed(features, tmp_path, part):
    METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    other = list(features)
    other[part] = other[part].flip(0)
    with pytest.raises(FreeTicketsError, match=r"other settings \(dataset: arrays-\w+ -> arrays-"):
        METHODS["edst"].fit("mlp-8", tuple(other), output=tmp_path, **SMALL)


def test_how_often_to_save_may_change(features, tmp_path, at_step):
    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    settings = {**SMALL, "checkpoint_seconds": 7, "workers": 1, "device": "cpu"}
    assert len(METHODS["edst"].fit("mlp-8", features, output=tmp_path, **settings)) == 2


def test_settings_can_be_mended_as_long_as_nothing_was_saved(features, tmp_path):
    with pytest.raises(FreeTicketsError, match="unknown score"):
        ft.EDST(tickets=2, prune="magnitud").fit("mlp-8", features, output=tmp_path, **SMALL)
    assert len(METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)) == 2


def test_a_damaged_newest_checkpoint_is_passed_over_and_the_end_is_the_same(
    features, tmp_path, at_step, digests, capfd
):
    METHODS["edst"].fit("mlp-8", features, output=tmp_path / "whole", **SMALL)
    half_a_run(at_step, METHODS["edst"], features, tmp_path / "killed")
    newest = sorted((tmp_path / "killed" / "checkpoint").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    METHODS["edst"].fit("mlp-8", features, output=tmp_path / "killed", **SMALL)
    (warning,) = capfd.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {newest} is damaged")
    assert_same_run(digests, tmp_path / "killed", tmp_path / "whole")


def test_damaged_checkpoints_only_are_an_error_and_tickets_stay(
    features, tmp_path, at_step, digests
):
    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    for file in (tmp_path / "checkpoint").iterdir():
        file.write_bytes(b"")
    before = digests(tmp_path / "tickets")
    with pytest.raises(DamagedFileError, match="no checkpoint"):
        METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    assert digests(tmp_path / "tickets") == before


def test_a_ticket_that_got_lost_or_damaged_is_named(features, tmp_path, at_step):
    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    ticket = tmp_path / "tickets" / "01.safetensors"
    ticket.write_bytes(ticket.read_bytes()[:-1])
    with pytest.raises(FreeTicketsError, match=r"01\.safetensors is damaged"):
        METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    ticket.unlink()
    with pytest.raises(FreeTicketsError, match=r"01\.safetensors"):
        METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)


def test_the_time_of_all_lives_is_in_the_ledger(features, tmp_path, at_step):
    from freetickets.reading import read_json

    half_a_run(at_step, METHODS["edst"], features, tmp_path)
    before = read_json(tmp_path / "ledger.json")
    METHODS["edst"].fit("mlp-8", features, output=tmp_path, **SMALL)
    after = read_json(tmp_path / "ledger.json")
    assert after["phases"][0]["seconds"] == before["phases"][0]["seconds"] > 0
    assert after["seconds"] == pytest.approx(sum(p["seconds"] for p in after["phases"]))
    assert after["seconds"] > before["seconds"]


def test_the_generator_of_a_stopped_run_is_given_back(features, at_step):
    at_step(3, kill)
    state = torch.get_rng_state()
    with pytest.raises(Killed):
        METHODS["edst"].fit("mlp-8", features, **SMALL)
    assert torch.equal(torch.get_rng_state(), state)
