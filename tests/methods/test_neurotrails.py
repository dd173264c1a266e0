"""A shared trunk and sparse heads that learn from the mean of their losses."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from freetickets.methods import NeuroTrails


def network():
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(4, 4), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(4, 3))


def test_a_third_of_the_stages_is_shared():
    made: Any = NeuroTrails(members=3).transform(network())
    weights = [
        sum(p.dim() == 2 for p in part.parameters()) for part in (made.trunk, *made.branches)
    ]
    assert weights == [2, 4, 4, 4]


def test_gradients_are_those_of_the_mean_loss():
    torch.manual_seed(0)
    made: Any = NeuroTrails(members=3).transform(network())
    x, y = torch.randn(10, 4), torch.arange(10) % 3
    made.train()
    logits, labels = made(x, y)
    cross_entropy(logits, labels).backward()
    found = [p.grad.clone() for p in made.parameters()]
    made.zero_grad()
    trunk = made.trunk(x)
    losses = [cross_entropy(branch(trunk), y) for branch in made.branches]
    torch.stack(losses).mean().backward()
    for ours, parameter in zip(found, made.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad)


def test_trunk_and_heads_are_explored_as_one_topology():
    x = torch.randn(60, 6)
    method = NeuroTrails(members=2, sparsity=0.6, interval=2)
    fitted = method.fit(
        "mlp-16-16-16", (x, (x[:, 0] > 0).long()), epochs=4, batch_size=12, quiet=True,
        backend="masked",
    )  # fmt: skip
    (ticket,) = fitted.tickets
    assert len(fitted) == 2
    masks = ticket.topology
    assert any(name.startswith("trunk") for name in masks)
    assert {name.split(".")[1] for name in masks if name.startswith("branches")} == {"0", "1"}
    zeros = sum(int((~mask).sum()) for mask in masks.values())
    size = sum(weight.numel() for name, weight in ticket.state.items() if weight.dim() == 2)
    assert zeros / size == pytest.approx(0.6, abs=0.01)
