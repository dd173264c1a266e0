"""Every method trains, predicts, is saved, loaded and resumed, on every kind of network."""

import numpy as np
import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.methods import METHODS

from ..conftest import Killed
from .small import SETTINGS, SMALL, Transformer


class Own(nn.Module):
    """A network that the project did not write."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 10), nn.Linear(10, 10), nn.Linear(10, 3)

    def forward(self, x):
        x = torch.relu(self.first(x.flatten(1)))
        return self.head(x + torch.tanh(self.second(x)))


def test_no_method_is_left_out():
    # Examples, of docstrings too, may have registered theirs in the same process.
    ours = "freetickets.methods."
    assert SMALL.keys() == {n for n, kind in METHODS.items() if kind.__module__.startswith(ours)}


@pytest.mark.parametrize("name", METHODS)
def test_it_trains_predicts_and_is_loaded_again(name, features, tmp_path):
    method, members = SMALL[name]
    x = features[0]
    ensemble = method.fit("mlp-16-12", features, output=tmp_path / "run", **SETTINGS)
    found = ensemble.member_proba(x)
    assert found.shape == (members, 60, 3)
    assert len(ensemble) == members
    assert np.allclose(found.sum(-1), 1)
    assert np.array_equal(found, ensemble.member_proba(x)), "predicting twice gives the same"
    if members > 1:
        assert not np.allclose(found[0], found[1])
    assert np.mean(ensemble.predict(x) == features[1].numpy()) > 0.5
    ensemble.save(tmp_path / "saved")
    for folder in ("run", "saved"):
        assert np.array_equal(ft.load(tmp_path / folder).member_proba(x), found)


@pytest.mark.parametrize(
    ("model", "recipe"), [("cnn-4", "fast"), ("wrn-10-1", "small"), ("fast-4-4-4", "fast")]
)
@pytest.mark.parametrize("name", METHODS)
def test_it_works_on_images(name, model, recipe):
    method, members = SMALL[name]
    images = np.random.default_rng(0).integers(0, 255, (40, 3, 9, 9), dtype=np.uint8)
    settings = {**SETTINGS, "epochs": 4, "batch_size": 16, "recipe": recipe}
    ensemble = method.fit(model, (images, np.arange(40) % 3), **settings)
    assert ensemble.member_proba(images[:5]).shape == (members, 5, 3)


TRANSFORMABLE = ("edst", "dst", "static", "mc-dropout", "mimo", "batch-ensemble")


@pytest.mark.parametrize(
    ("name", "network"), [*[(n, Own) for n in METHODS], *[(n, Transformer) for n in TRANSFORMABLE]]
)
def test_it_works_on_a_network_of_ones_own(name, network, features):
    method, members = SMALL[name]
    found = method.fit(network, features, **SETTINGS).member_proba(features[0])
    assert found.shape == (members, 60, 3)
    assert members == 1 or not np.allclose(found[0], found[1])


@pytest.mark.parametrize("recipe", ["small", "fast"])
@pytest.mark.parametrize("name", METHODS)
def test_killed_again_and_again_it_ends_alike(name, recipe, features, tmp_path, at_step, digests):
    method, _ = SMALL[name]
    settings = {**SETTINGS, "epochs": 6, "checkpoint_seconds": 0, "recipe": recipe}
    settings["model_options"] = {"dropout": 0.2}

    def train(folder):
        method.fit("mlp-8-8", features, output=tmp_path / folder, **settings)

    train("whole")
    for kills in range(100):
        at_step(5)
        try:
            train("killed")
        except Killed:
            continue
        assert kills >= 4
        break
    assert digests(tmp_path / "killed" / "tickets") == digests(tmp_path / "whole" / "tickets")
