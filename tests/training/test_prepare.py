"""What a network is shown before it is trained: the same samples, always, and once."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import freetickets as ft
from freetickets.data import Batches, LazySplit, Split
from freetickets.models.prepare import Whitening, prepare
from freetickets.training.session import prepare_on

SMALL: dict[str, Any] = {"batch_size": 10, "epochs": 1, "quiet": True, "lr": 0.01}


class Curious(nn.Module):
    """A module of a user's own that notes what it is shown."""

    def __init__(self):
        super().__init__()
        self.seen: list[Tensor] = []
        self.register_buffer("mean", torch.zeros(()))

    def prepare_on(self, inputs):
        self.seen.append(inputs)
        self.mean += inputs.mean()

    def forward(self, x):
        return x - self.mean


def pixels(count, side=4):
    """Images of the class 0, then those of the class 1; each has its own colour."""
    numbers = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1)
    return Split(numbers.expand(-1, 1, side, side), torch.arange(count) * 2 // count)


def shown(split, batch_size=16, **options):
    """What a network is shown of a split."""
    network = Curious()
    prepare_on(network, Batches(split, batch_size, **options))
    (inputs,) = network.seen
    return inputs


def test_samples_are_shown_as_the_network_gets_them_of_many_only_some(monkeypatch):
    found = shown(pixels(50), mean=(0.5,), std=(0.25,), augmentation="pad-crop-flip")
    expected = (torch.arange(50) / 255 - 0.5) / 0.25
    torch.testing.assert_close(found, expected.view(-1, 1, 1, 1).expand(-1, 1, 4, 4))
    with monkeypatch.context() as patch:
        patch.setattr("freetickets.training.session._NUMBERS", 100)
        assert [len(shown(pixels(50, side=side))) for side in (4, 11)] == [6, 1]
    monkeypatch.setattr("freetickets.training.session._SAMPLES", 10)
    found = shown(pixels(200))
    assert (found[:, 0, 0, 0] * 255).round().tolist() == list(range(0, 200, 20))


@pytest.mark.parametrize(
    "options", [{"seed": 7}, {"rank": 1, "world": 3}, {"shuffle": False}, {"batch_size": 3}]
)
def test_seed_ranks_and_batches_change_nothing(options):
    assert torch.equal(shown(pixels(37), **options), shown(pixels(37)))


def test_images_on_disk_are_decoded_and_features_shown_to_those_that_ask(tmp_path, monkeypatch):
    paths = []
    for number in range(4):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (6, 6), (60 * number, 0, 255)).save(paths[-1])
    split = LazySplit(tuple(paths), torch.tensor([0, 0, 1, 1]), (3, 6, 6))
    found = shown(split, batch_size=2, augmentation="imagenet")
    assert (found[:, 0, 0, 0] * 255).round().tolist() == [0, 60, 120, 180]
    assert found.shape == (4, 3, 6, 6)
    x = torch.randn(20, 5)
    assert torch.equal(shown(Split(x, torch.arange(20) % 2)), x)
    monkeypatch.setattr(Batches, "epoch", None)
    prepare_on(nn.Linear(2, 2), Batches(pixels(20), 5))


def own():
    return nn.Sequential(Curious(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))


def test_modules_of_ones_own_are_prepared_on_what_is_not_held_out_and_saved(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (40, 1, 4, 4), np.uint8)
    built: list[nn.Module] = []

    def build():
        built.append(own())
        return built[-1]

    method = ft.DST(tickets=2, sparsity=0.5, interval=2)
    data = images, np.arange(40) % 2
    ensemble = method.fit(build, data, output=tmp_path, validation=0.25, **SMALL)
    assert [len(inputs) for network in built for inputs in network[0].seen] == [30, 30]
    first, second = (ticket.state["0.mean"] for ticket in ensemble.tickets)
    assert first != 0
    assert torch.equal(first, second), "all runs see the same"
    loaded = ft.load(tmp_path, own)
    assert np.array_equal(loaded.member_proba(images), ensemble.member_proba(images))


def test_the_tickets_of_a_run_hold_the_whitening_of_its_images(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (40, 3, 9, 9), np.uint8)
    data = images, np.arange(40) % 3
    method = ft.EDST(tickets=2, sparsity=0.5, interval=2)
    ensemble = method.fit("fast-4-4-4", data, output=tmp_path, validation=0.0, **SMALL)
    mean, std = (torch.tensor(ensemble.info[name]).view(3, 1, 1) for name in ("mean", "std"))
    expected = Whitening(3)
    prepare(expected, (torch.from_numpy(images) / 255 - mean) / std)
    for ticket in ensemble.tickets:
        found = ticket.state["whitening.conv.weight"]
        torch.testing.assert_close(found, expected.conv.weight.detach(), atol=1e-4, rtol=1e-4)
        assert "whitening.conv.weight" not in ticket.topology
        assert ticket.state["whitening.conv.bias"].abs().max() > 0, "its bias is trained"
    loaded = ft.load(tmp_path)
    assert np.array_equal(loaded.member_proba(images), ensemble.member_proba(images))
