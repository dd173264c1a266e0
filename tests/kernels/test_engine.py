"""Layers that are replaced in a living network, with an optimizer that has begun to train it."""

import copy

import pytest
import torch
from torch import nn

from freetickets.kernels.engine import Compression
from freetickets.kernels.layers import SparseConv2d, SparseLayer, SparseLinear

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


def train(model, optimizer, step=True):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(2))).square().sum()
    loss.backward()
    if step:
        optimizer.step()
    return loss.detach()


def compressed(learning_rate=0.1, **options):
    """A network, its topology, its optimizer, and its layers once they are replaced."""
    model = network()
    masks = masks_of(model)
    optimizer = torch.optim.SGD(model.parameters(), learning_rate, **options)
    return model, masks, optimizer, Compression(model, optimizer, masks)


def test_layers_are_replaced_under_the_names_of_their_weights():
    model, masks, _, engine = compressed()
    assert [*engine.layers] == ["0.weight", "3.weight", "5.weight"]
    for name, layer in engine.layers.items():
        assert type(layer) is (SparseLinear if name == "5.weight" else SparseConv2d)
        assert model.get_submodule(name.removesuffix(".weight")) is layer
        assert torch.equal(layer.mask, masks[name])


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad"])
def test_an_optimizer_goes_on_with_the_state_it_had(name):
    """The network was trained for a while before, dense in memory."""
    options = {"lr": 0.01, **({"momentum": 0.9} if name == "SGD" else {})}
    model = network()
    masks = masks_of(model)
    optimizer = getattr(torch.optim, name)(
        [{"params": list(model.parameters())[:2], "weight_decay": 0.1},
         {"params": list(model.parameters())[2:]}],
        **options,
    )  # fmt: skip
    for _ in range(2):
        train(model, optimizer)
    moved = {
        name: {
            key: value[masks[name]] if torch.is_tensor(value) and value.dim() else value
            for key, value in optimizer.state[model.get_parameter(name)].items()
        }
        for name in masks
    }
    weights = {model.get_parameter(name): name for name in masks}
    before = [list(group["params"]) for group in optimizer.param_groups]
    engine = Compression(model, optimizer, masks)
    new = {weight: engine.layers[name].values for weight, name in weights.items()}
    for old, group in zip(before, optimizer.param_groups, strict=True):
        assert [id(new.get(p, p)) for p in old] == [id(p) for p in group["params"]]
    assert set(optimizer.state) == set(model.parameters())
    for layer_name, layer in engine.layers.items():
        state, expected = optimizer.state[layer.values], moved[layer_name]
        assert state.keys() == expected.keys()
        for key, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(expected[key])), key


def test_a_gradient_that_is_there_already_moves_along():
    model = network()
    masks = masks_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, step=False)
    gradients = {name: model.get_parameter(name).grad.clone() for name in masks}
    engine = Compression(model, optimizer, masks)
    for name, layer in engine.layers.items():
        assert torch.equal(layer.values.grad, gradients[name][masks[name]])


def test_all_can_be_taken_back(error):
    model, masks, optimizer, engine = compressed(0.01, momentum=0.9)
    train(model, optimizer)
    twin, other = copy.deepcopy((model, optimizer))
    layers = dict(engine.layers)
    weights = engine.remove(optimizer)
    assert [type(module) for module in model] == [type(module) for module in network()]
    assert not any(isinstance(module, SparseLayer) for module in model.modules())
    for name, mask in masks.items():
        weight = weights[name]
        assert model.get_parameter(name) is weight
        assert sum(p is weight for g in optimizer.param_groups for p in g["params"]) == 1
        momentum = optimizer.state[weight]["momentum_buffer"]
        assert torch.equal(weight.grad[mask], layers[name].values.grad)
        for tensor in (weight, momentum, weight.grad):
            assert tensor.shape == mask.shape
            assert not tensor[~mask].any()
    torch.testing.assert_close(train(model, optimizer), train(twin, other))
    for name, mask in masks.items():
        assert error(model.get_parameter(name)[mask], twin.state_dict()[name][mask]) < 1e-5
        assert model.get_parameter(name)[~mask].any()  # nothing holds it any more


def test_an_optimizer_that_holds_on_to_its_list_of_weights_trains_the_new_ones():
    model = network().eval()
    masks = masks_of(model)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=2)
    engine = Compression(model, optimizer, masks)
    before = engine.layers["5.weight"].values.detach().clone()
    optimizer.step(lambda: train(model, optimizer, step=False))
    assert not torch.equal(engine.layers["5.weight"].values, before)


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
