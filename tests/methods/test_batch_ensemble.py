"""BatchEnsemble against as many separate networks with the multiplied weights."""

import copy

import pytest
import torch
from torch import nn

from freetickets.methods.members import weight_layers
from freetickets.methods.networks.batch_ensemble import RankOneLayer
from freetickets.methods.shared import BatchEnsemble
from freetickets.models import create_model

from . import small


class Mixed(nn.Module):
    """Groups, strides, one dimension, tokens folded into the batch, a layer used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, stride=2, groups=2)
        self.line = nn.Conv1d(8, 6, 2)
        self.token = nn.Linear(6, 6)
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        x = self.line(self.conv(x).flatten(2))
        tokens = x.transpose(1, 2).flatten(0, 1)
        tokens = self.token(torch.tanh(self.token(tokens)))
        return self.fc(tokens.view(len(x), -1, 6).mean(1))


NETWORKS = small.NETWORKS | {
    "mixed": (Mixed, (4, 7, 7)),
    "linear": (lambda: nn.Linear(3, 4), (3,)),
}


def separate_networks(plain, model):
    """One network for each member, with the weights W * outer(r, s)."""
    names = {id(layer): name for name, layer in weight_layers(plain).items()}
    networks = []
    for member in range(model.members):
        network = copy.deepcopy(plain)
        for name in names.values():
            ours, theirs = model.network.get_submodule(name), network.get_submodule(name)
            assert isinstance(ours, RankOneLayer)
            weight = ours.layer.weight.detach()
            groups = getattr(theirs, "groups", 1)
            s = ours.s[member].detach().view(groups, -1)  # each group reads inputs of its own
            s = s.repeat_interleave(len(weight) // groups, dim=0)
            r = ours.r[member].detach()[:, None]
            factors = (r * s).view(*s.shape, *[1] * (weight.ndim - 2))
            theirs.weight = nn.Parameter(weight * factors)
            if ours.bias is not None:
                theirs.bias = nn.Parameter(ours.bias[member].detach().clone())
        networks.append(network)
    return networks


def made(name, examples="tiled"):
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    plain = build()
    model = BatchEnsemble(members=3, examples=examples).transform(copy.deepcopy(plain))
    layers = [module for module in model.modules() if isinstance(module, RankOneLayer)]
    with torch.no_grad():  # as after some training
        for parameter in (each for layer in layers for each in layer.parameters()):
            parameter += 0.1 * torch.randn_like(parameter)
    return plain.eval(), model.eval(), torch.randn(7, *shape)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("examples", ["tiled", "split"])
def test_it_is_as_many_networks_with_the_multiplied_weights(name, examples):
    plain, model, x = made(name, examples)
    labels, networks = torch.arange(7), separate_networks(plain, model)
    with torch.no_grad():
        expected = torch.stack([network(x) for network in networks])
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-4)
        logits, targets = model(x, labels)
        if examples == "split":
            parts = zip(networks, x.tensor_split(3), strict=True)
            expected = torch.cat([network(part) for network, part in parts])
    torch.testing.assert_close(logits, expected.reshape(logits.shape), atol=1e-5, rtol=1e-4)
    assert torch.equal(targets, labels if examples == "split" else labels.repeat(3))
    assert model.training_share == pytest.approx(1 / 3 if examples == "split" else 1)
    if examples == "split":  # a batch may be smaller than the ensemble
        assert model(x[:2], labels[:2])[0].shape == (2, 4)


def test_factors_start_as_signs_norms_are_shared_and_misfits_refused(refused):
    torch.manual_seed(0)
    network = create_model("mlp-300-100", (50,), 10)
    bias = network.fc1.bias.detach().clone()
    model = BatchEnsemble(members=4).transform(network)
    factors = model.undecayed()
    assert sorted(f.numel() for f in factors) == sorted(4 * n for n in (50, 300, 300, 100, 100, 10))
    for factor in factors:
        assert set(factor.flatten().tolist()) == {-1.0, 1.0}
    assert torch.cat([f.flatten() for f in factors]).mean().abs() < 0.1
    own = {id(parameter) for parameter in model.parameters()}
    assert all(id(factor) in own for factor in factors)
    assert torch.equal(model.network.fc1.bias, bias.expand(4, -1))
    _, model, x = made("cnn")
    model.train()(x, torch.arange(7) % 4)
    assert model.network.stage1.bn.num_batches_tracked == 1
    model = BatchEnsemble(members=4).transform(TimeFirst(nn.Linear(8, 4)))
    refused(r"5 rows for 8 samples.*batch_first=True", model, torch.randn(2, 5, 8))
    refused("LayerNorm has none", BatchEnsemble().transform, nn.LayerNorm(4))


class TimeFirst(nn.Sequential):
    def forward(self, x):
        return super().forward(x.transpose(0, 1)).mean(0)
