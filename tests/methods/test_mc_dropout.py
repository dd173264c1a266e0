"""MC Dropout against its definition: masks on units, and nothing else, in prediction."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.methods.shared import MCDropout
from freetickets.models import create_model


def rates(network):
    return [module.p for module in network.modules() if isinstance(module, nn.Dropout)]


def test_each_pass_drops_other_units_and_scales_the_rest():
    units = nn.Linear(1, 400)
    network = nn.Sequential(units, nn.Dropout(0.25), nn.Identity())
    x = torch.ones(2, 1)
    logits = MCDropout(passes=3).transform(network).eval()(x)
    dropped = logits == 0
    kept = torch.where(dropped, 0, units(x) / 0.75)
    torch.testing.assert_close(logits, kept)
    assert dropped.float().mean().item() == pytest.approx(0.25, abs=0.04)
    masks = dropped.flatten(0, 1).float()
    # Independent masks of 400 units agree in 1 - 2 * 0.25 * 0.75 of them.
    agreement = (masks[:, None] == masks).float().mean(-1)
    assert agreement[~torch.eye(6, dtype=torch.bool)].max() < 0.75


def test_norms_stay_in_evaluation_attention_drops_and_functions_do_not_do(refused):
    norm = nn.BatchNorm1d(4)
    network = MCDropout(passes=2).transform(nn.Sequential(norm, nn.Dropout(0.5), nn.Linear(4, 2)))
    x = torch.randn(8, 4) + 5
    expected = network.eval()(x)
    network.train()
    assert torch.equal(network(x), expected)
    assert norm.num_batches_tracked == 0
    assert all(module.training for module in network.modules())
    labels = torch.arange(8) % 2
    logits, targets = network(x, labels)  # trains like any network with dropout
    assert norm.num_batches_tracked == 1
    assert (logits.shape, targets is labels) == ((8, 2), True)
    with torch.no_grad():
        one, two = MCDropout(passes=2).transform(Attention()).eval()(torch.randn(3, 5, 4))
    assert not torch.allclose(one, two)
    refused("no place for dropout in Functional", MCDropout().transform, Functional(2, 2))


def test_a_networks_own_rates_win_and_without_any_each_layer_but_the_first_gets_one():
    network = MCDropout(passes=1).transform(create_model("mlp-8", (4,), 3))
    assert network(torch.randn(2, 4)).shape == (1, 2, 3)
    assert (network.members, network.training_share) == (1, 1.0)
    assert MCDropout(passes=30).transform(nn.Dropout()).training_share == pytest.approx(1 / 30)
    network = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.4), nn.Dropout(0.0), nn.Linear(2, 2))
    assert rates(MCDropout(dropout=0.2).transform(network)) == [0.4, 0.2]
    wrn = MCDropout().transform(create_model("wrn-16-1", (3, 8, 8), 4))
    assert rates(wrn) == [0.1] * 6
    assert all("Block" in str(type(m)) for m in wrn.modules() if hasattr(m, "dropout"))
    network = create_model("cifar-resnet-8", (3, 8, 8), 4)
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    model = MCDropout(dropout=0.3).transform(network)
    assert rates(model) == [0.3] * (len(layers) - 1)
    pairs = [m for m in model.modules() if isinstance(m, nn.Sequential) and len(m) == 2]
    guarded = [layer for drop, layer in pairs if isinstance(drop, nn.Dropout)]
    assert guarded == layers[1:]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.unused = nn.Dropout(0.5)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


class Functional(nn.Linear):
    def forward(self, x):
        return F.dropout(super().forward(x), training=self.training)
