"""The fast network: its shapes, its costs by hand, and how it begins."""

import pytest
import torch
from torch import nn

from freetickets.models import create_model
from freetickets.models.small import Divide
from freetickets.training.ledger import count_macs, forward_flops


@pytest.mark.parametrize(
    ("shape", "side"),
    [((3, 32, 32), 3), ((1, 28, 28), 3), ((3, 16, 16), 1), ((3, 9, 9), 1), ((2, 20, 40), 2)],
)
def test_it_takes_any_small_image(shape, side):
    model = create_model("fast-4-6-5", shape, 7)
    maps = []
    model.get_submodule("pool").register_forward_pre_hook(lambda _, x: maps.append(x[0]))
    assert model(torch.randn(3, *shape)).shape == (3, 7)
    assert maps[0].shape[1:3] == (5, side)


def test_it_costs_what_is_counted_by_hand():
    model = create_model("fast-64-128-128", (3, 32, 32), 10)
    # Weights of a filter x filters x places: the convolution in front of a pool sees larger maps.
    pairs = [(24, 64, 31), (64, 64, 15), (64, 128, 15), (128, 128, 7), (128, 128, 7), (128, 128, 3)]
    macs = [12 * 24 * 31**2, *[9 * a * b * side**2 for a, b, side in pairs], 128 * 10]
    costs = count_macs(model, (3, 32, 32))
    assert list(costs.values()) == macs
    assert forward_flops(costs) == pytest.approx(108e6, rel=0.01)


def test_convolutions_begin_near_the_identity():
    torch.manual_seed(0)
    model = create_model("fast-16-32-8", (3, 32, 32), 10)
    for name, conv in model.named_modules():
        if isinstance(conv, nn.Conv2d) and conv.kernel_size == (3, 3):
            weight = conv.weight.detach()
            k = min(weight.shape[:2])
            centres = weight[:k, :k, 1, 1].diagonal()
            assert torch.equal(centres, torch.ones(k)), name
            rest = weight.clone()
            rest[range(k), range(k), 1, 1] = 0.1
            assert (rest != 0).all(), name
            assert rest.abs().max() <= max(0.1, (9 * weight.shape[1]) ** -0.5), name


def test_its_activation_its_bias_and_its_scale_are_options():
    for activation, kind in (("relu", nn.ReLU), ("gelu", nn.GELU)):
        model = create_model("fast-4-4-4", (3, 16, 16), 10, activation=activation, scale=9)
        assert sum(isinstance(module, kind) for module in model.modules()) == 7
    x = torch.randn(2, 3, 16, 16)
    whole = model.eval()(x)
    assert isinstance(model.get_submodule("scale"), Divide)
    model.scale = nn.Identity()
    torch.testing.assert_close(model(x), 9 * whole)
    for bias in (True, False):  # without it, nothing in front of the groups is trained
        model = create_model("fast-4-4-4", (3, 16, 16), 10, whitening_bias=bias)
        assert model.get_submodule("whitening")(x).requires_grad == bias
