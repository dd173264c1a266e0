"""Any network that has zeros predicts fast what it predicted before, and is left as it was."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import freetickets as ft
from freetickets.kernels.inference import CompiledNetwork, nonzeros
from freetickets.kernels.library import available
from freetickets.models import create_model

from .zoo.checks import compiled_for_good, make_sparse
from .zoo.entry import lived_in

SHAPE = (3, 16, 16)
pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built")


@pytest.fixture(autouse=True)
def _sparse():
    with compiled_for_good(lambda _: "sparse"):
        yield


def network(name):
    torch.manual_seed(0)
    found = create_model(name, SHAPE, 10)
    lived_in(found, lambda samples: (torch.randn(samples, *SHAPE),))
    return found.eval()


def layers(found):
    return [m for m in found.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]


class Threshold(nn.Module):
    def forward(self, weight):
        return weight * (weight.abs() > 0.05)


def by_hooks(found):
    for layer in layers(found):
        prune.random_unstructured(layer, "weight", amount=0.7)
        prune.l1_unstructured(layer, "weight", amount=0.3)  # a second time: a container


def by_structure(found):
    for layer in layers(found):
        prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=1)


def by_parametrization(found):
    for layer in layers(found):
        parametrize.register_parametrization(layer, "weight", Threshold().eval())
    found.eval()


def by_state(found):
    donor = copy.deepcopy(found)
    make_sparse(donor, 0.2)
    found.load_state_dict(donor.state_dict())


def by_sparsifier(found):
    optimizer = torch.optim.SGD(found.parameters(), lr=0.01)
    ft.Sparsifier(found, optimizer, 0.8, exploration=None, backend="auto")
    found.train()
    found(torch.randn(4, *SHAPE)).square().mean().backward()
    optimizer.step()
    found.eval()


@pytest.mark.parametrize(
    "make", [by_hooks, by_structure, by_parametrization, by_state, by_sparsifier]
)
@pytest.mark.parametrize("name", ["cifar-resnet-8", "wrn-10-1"])
def test_whatever_made_the_zeros_they_are_found_and_the_network_is_left_alone(name, make):
    given = network(name)
    make(given)
    with torch.no_grad():
        given(torch.randn(1, *SHAPE))  # which has hooks compute weights
    before = {key: value.clone() for key, value in given.state_dict().items()}
    kinds = [type(module) for module in given.modules()]
    found = ft.compile(given, torch.randn(2, *SHAPE))
    assert isinstance(found, CompiledNetwork)
    assert len(found._ways) == 1
    for samples in (1, 7, 40):
        x = torch.randn(samples, *SHAPE)
        with torch.no_grad():
            wanted, answer = given(x), found(x)
        assert (answer - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    assert found.fallbacks == {}
    active = sum(int(mask.sum()) for mask in found._parts._topology.values())
    zeros = [(layer.weight == 0).sum() for layer in layers(given)]
    assert active == sum(
        layer.weight.numel() - int(none)
        for layer, none in zip(layers(given), zeros, strict=True)
        if none
    )
    assert sum(zeros) > 0
    assert [type(module) for module in given.modules()] == kinds
    assert given.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in given.state_dict().items())
    wanted = found(x)
    with torch.no_grad():
        for parameter in given.parameters():
            parameter.zero_()
    assert torch.equal(found(x), wanted)


def test_a_network_in_training_mode_is_refused_in_one_line(refused):
    given = network("wrn-10-1")
    list(given.modules())[-1].train()
    refused("in training mode: call its eval", ft.compile, given)


def test_what_can_not_be_sped_up_or_copied_runs_as_it_did():
    lstm, x = nn.LSTM(3, 4).eval(), torch.randn(5, 2, 3)
    with torch.no_grad():
        assert torch.equal(ft.compile(lstm, x)(x)[0], lstm(x)[0])
    given = network("wrn-10-1")
    prune.l1_unstructured(layers(given)[1], "weight", amount=0.5)
    assert list(nonzeros(given)) == [
        f"{name}.weight" for name, module in given.named_modules() if module is layers(given)[1]
    ]
    x = torch.randn(2, *SHAPE, requires_grad=True)
    for each in (ft.compile(given), given):
        x.grad, last = None, x.grad
        each(x).sum().backward()
    assert torch.allclose(x.grad, last)
    given.lock = (each for each in ())  # no generator can be copied
    with pytest.warns(UserWarning, match="the network runs as it is: cannot pickle"):
        assert ft.compile(given) is given
