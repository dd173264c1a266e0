"""Compiled networks predict what the networks themselves do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from freetickets import Sparsifier
from freetickets.kernels import inference, ops
from freetickets.kernels.inference import CompiledNetwork, compile_network
from freetickets.models import create_model
from freetickets.sparsity.topology import Topology

CIFAR, DIGITS = (3, 32, 32), (1, 28, 28)


def trained(network: nn.Module, shape: tuple[int, ...]) -> tuple[nn.Module, Topology]:
    """A sparse network whose BatchNorms have seen something."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.8, exploration=None, backend="masked")
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.affine:
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    with torch.no_grad():
        for _ in range(3):
            network(3 * torch.randn(8, *shape) + 1)
    return network.eval(), sparsifier.topology


def compiled(
    monkeypatch: pytest.MonkeyPatch, network: nn.Module, topology: Topology, batch: int, dense: bool
) -> nn.Module:
    """A compiled network that runs as such, its layers all dense or all sparse."""
    monkeypatch.setattr(
        inference, "dense_is_faster", lambda key, *_: False if key is None else dense
    )
    found = compile_network(network, topology, batch)
    assert isinstance(found, CompiledNetwork)
    return found


def assert_same(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("batch", [1, 3, 5, 16, 19])
@pytest.mark.parametrize(
    ("name", "shape"),
    [("wrn-10-1", CIFAR), ("resnet-18", CIFAR), ("cnn", DIGITS), ("mlp-64-64", DIGITS)],
)
def test_every_network_predicts_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, ...], batch: int, dense: bool
) -> None:
    network, topology = trained(create_model(name, shape, 10), shape)
    before = copy.deepcopy(network.state_dict())
    found = compiled(monkeypatch, network, topology, batch, dense)
    x = torch.randn(batch, *shape)
    with torch.no_grad():
        wanted = network(x)
        assert_same(found(x), wanted)
        # Any other number of samples will do.
        assert_same(found(x[: batch // 2 + 1]), network(x[: batch // 2 + 1]))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


class Block(nn.Module):
    """BatchNorms with one reader, with two, and one that is added to something."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.BatchNorm2d(8, **settings) for _ in range(3))
        self.stem, self.left, self.right, self.last = (
            nn.Conv2d(inputs, 8, 3, padding=1) for inputs in (3, 8, 8, 8)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu(self.first(x))
        x = x + self.left(y) + self.right(y)
        z = self.second(x)
        x = self.last(z) + z
        return F.relu(self.third(x)).mean((2, 3))


@pytest.mark.parametrize("batch", [2, 9])
def test_a_batch_norm_is_scaled_by_those_that_read_it(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    network, topology = trained(Block(), (3, 6, 7))
    found = compiled(monkeypatch, network, topology, batch, dense=False)
    scalings = []
    fused = ops.fused_conv2d

    def watched(*arguments: Any) -> Tensor:
        scalings.append(arguments[8])
        return fused(*arguments)

    monkeypatch.setattr(ops, "fused_conv2d", watched)
    x = torch.randn(batch, 3, 6, 7)
    with torch.no_grad():
        assert_same(found(x), network(x))
    # Twice: the network warms up before it is compared with the original.
    assert [scaling and scaling.relu for scaling in scalings[:4]] == [None, True, True, None]


@pytest.mark.parametrize("settings", [{"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize("batch", [2, 9])
def test_a_batch_norm_without_weights_or_statistics_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, bool], batch: int
) -> None:
    network, topology = trained(Block(**settings), (3, 6, 7))
    found = compiled(monkeypatch, network, topology, batch, dense=False)
    x = torch.randn(batch, 3, 6, 7)
    with torch.no_grad():
        assert_same(found(x), network(x))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y.mean((2, 3)) if y.sum() > 0 else y.amax((2, 3))


def test_what_cannot_be_traced_is_left_alone() -> None:
    network, topology = trained(Branching(), CIFAR)
    assert compile_network(network, topology, 8) is network


def test_a_dense_network_is_left_alone() -> None:
    network = create_model("wrn-10-1", CIFAR, 10).eval()
    assert compile_network(network, {}, 8) is network


def test_the_original_runs_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    network, topology = trained(create_model("mlp-64-64", DIGITS, 10), DIGITS)
    monkeypatch.setattr(inference, "dense_is_faster", lambda *_: True)
    found = compile_network(network, topology, 8)
    x, called = torch.randn(8, *DIGITS), []
    network.register_forward_hook(lambda *_: called.append(True))
    with torch.no_grad():
        assert torch.equal(found(x), network(x))
    assert len(called) == 2
