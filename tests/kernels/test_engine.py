"""Which layers are replaced in a living network, and where; `tests/sparsity` trains such ones."""

import copy

import pytest
import torch
from torch import nn

from freetickets.kernels.engine import Compression
from freetickets.kernels.layers import SparseConv2d, SparseLinear

pytestmark = pytest.mark.usefixtures("skipping_zeros")


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 6, 3, stride=2), nn.Flatten(), nn.Linear(54, 10),
    )  # fmt: skip


def masks_of(model, density=0.4):
    """A topology for every weight, which the network is held to from now on."""
    source = torch.Generator().manual_seed(1)
    masks = {}
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            masks[name] = torch.rand(parameter.shape, generator=source) < density
            parameter.data *= masks[name]
    return masks


def test_layers_are_replaced_under_the_names_of_their_weights_with_the_gradients_there():
    model = network()
    masks = masks_of(model)
    model(torch.randn(5, 3, 8, 8)).square().sum().backward()
    gradients = {name: model.get_parameter(name).grad for name in masks}
    engine = Compression(model, torch.optim.SGD(model.parameters()), masks)
    assert [*engine.layers] == ["0.weight", "3.weight", "5.weight"]
    for name, layer in engine.layers.items():
        assert type(layer) is (SparseLinear if name == "5.weight" else SparseConv2d)
        assert model.get_submodule(name.removesuffix(".weight")) is layer
        assert torch.equal(layer.mask, masks[name])
        assert torch.equal(layer.values.grad, gradients[name][masks[name]])


# ---- layers that are left alone


def sparse_names(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return list(Compression(model, optimizer, masks_of(model)).layers)


def test_shared_weights_other_kinds_and_a_network_of_one_layer_are_left_alone():
    shared = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    shared[2].weight = shared[0].weight
    kinds = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2), nn.Conv1d(4, 4, 3), nn.GRU(4, 4), nn.Embedding(4, 4),
        nn.Linear(4, 4, dtype=torch.float64), nn.Linear(4, 4),
    )  # fmt: skip
    for model, names in ((shared, ["1.weight"]), (kinds, ["5.weight"]), (nn.Linear(6, 6), [])):
        assert sparse_names(model) == names


class Listed(nn.Module):
    """Its code would go on calling the old layers, which nobody trains any more."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(6, 6) for _ in range(3))
        self.layers = [(self.first, torch.tanh), (self.second, torch.relu)]

    def forward(self, x):
        for layer, activation in self.layers:
            x = activation(layer(x))
        return self.third(x)


def test_a_layer_is_replaced_in_all_places_unless_the_network_keeps_it_in_a_list(error):
    layer = nn.Linear(6, 6)
    twice = nn.Sequential(layer, nn.Tanh(), layer)
    for model, names in ((twice, ["0.weight"]), (Listed(), ["third.weight"])):
        masked = copy.deepcopy(model)
        masks_of(masked)
        assert sparse_names(model) == names
        x = torch.randn(3, 6)
        assert error(model(x), masked(x)) < 1e-5
    assert twice[0] is twice[2]
