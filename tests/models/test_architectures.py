"""The architectures are those of the papers: counts, parameter names, initialisation."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from freetickets.models import create_model
from freetickets.models.resnet import Block
from freetickets.models.small import Divide
from freetickets.training.ledger import count_macs, forward_flops


def build(name, shape, classes):
    """A network without memory: shapes are all that these tests look at."""
    with torch.device("meta"):
        return create_model(name, shape, classes)


def test_a_network_has_as_many_parameters_as_in_its_paper():
    for name, side, classes, parameters, weights in (
        ("wrn-28-10", 32, 10, 36_479_194, 36_461_232),
        ("wrn-28-10", 32, 100, 36_536_884, 36_518_832),
        ("wrn-16-8", 32, 10, 10_961_370, 10_954_160),
        ("resnet-18", 224, 1000, 11_689_512, 11_678_912),
        ("resnet-34", 224, 1000, 21_797_672, 21_779_648),
        ("resnet-50", 224, 1000, 25_557_032, 25_502_912),
        ("resnet-101", 224, 1000, 44_549_160, 44_442_816),
        ("resnet-152", 224, 1000, 60_192_808, 60_040_384),
        ("cifar-resnet-20", 32, 10, 272_474, 270_896),
    ):
        sizes = [(p.dim(), p.numel()) for p in build(name, (3, side, side), classes).parameters()]
        assert sum(size for _, size in sizes) == parameters
        assert sum(size for dim, size in sizes if dim > 1) == weights


def weight_names(model):
    named = [name for name, p in model.named_parameters() if p.dim() > 1]
    return [name.removesuffix(".weight") for name in named]


def test_weights_have_the_names_of_the_paper_tables_and_of_torchvision():
    expected = ["conv1"]
    for stage in (1, 2, 3):
        expected += [f"block{stage}.0.{layer}" for layer in ("conv1", "shortcut", "conv2")]
        expected += [f"block{stage}.{i}.conv{j}" for i in (1, 2, 3) for j in (1, 2)]
    assert weight_names(build("wrn-28-10", (3, 32, 32), 10)) == [*expected, "fc"]
    names = weight_names(build("wrn-10-1", (3, 32, 32), 10))  # where shapes don't differ
    assert [n for n in names if "shortcut" in n] == ["block2.0.shortcut", "block3.0.shortcut"]
    resnet = build("resnet-50", (3, 224, 224), 1000)
    names = weight_names(resnet)
    first = [f"layer1.0.{layer}" for layer in ("conv1", "conv2", "conv3", "downsample.0")]
    assert names[:6] == ["conv1", *first, "layer1.1.conv1"]
    assert (names[-1], len(names)) == ("fc", 54)
    layers = resnet.get_submodule("layer2.0").named_modules()
    strides = {name: m.stride[0] for name, m in layers if isinstance(m, nn.Conv2d)}
    assert strides == {"conv1": 1, "conv2": 2, "conv3": 1, "downsample.0": 2}


@pytest.mark.parametrize(("inputs", "stride"), [(4, 1), (2, 1), (4, 2)])
def test_a_wide_block_skips_as_pre_activation_does(inputs, stride):
    block = Block(inputs, 4, stride, dropout=0.0).double().eval()
    x = torch.randn(2, inputs, 6, 6, dtype=torch.float64)
    kept = x.clone()
    scale = 1 / math.sqrt(1 + block.bn1.eps)  # BatchNorm as it starts: mean 0, variance 1
    active = F.relu(x * scale)
    inner = F.relu(F.conv2d(active, block.conv1.weight, stride=stride, padding=1) * scale)
    residual = F.conv2d(inner, block.conv2.weight, padding=1)
    assert (block.shortcut is None) == (inputs == 4 and stride == 1)
    skip = x if block.shortcut is None else F.conv2d(active, block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), skip + residual)
    assert torch.equal(x, kept)


def test_wide_resnet_starts_as_the_released_code_does():
    torch.manual_seed(0)
    model = create_model("wrn-10-4", (3, 32, 32), 10)
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            wanted = math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
            assert module.weight.std().item() == pytest.approx(wanted, rel=0.05)
            assert module.bias is None
    assert torch.count_nonzero(model.fc.bias) == 0
    assert 0 < model.fc.weight.abs().max().item() <= 1 / math.sqrt(model.fc.in_features)


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


def test_fast_networks_cost_what_is_counted_and_begin_near_the_identity():
    model = create_model("fast-64-128-128", (3, 32, 32), 10)
    # Weights of a filter x filters x places: the convolution in front of a pool sees larger maps.
    pairs = [(24, 64, 31), (64, 64, 15), (64, 128, 15), (128, 128, 7), (128, 128, 7), (128, 128, 3)]
    macs = [12 * 24 * 31**2, *[9 * a * b * side**2 for a, b, side in pairs], 128 * 10]
    costs = count_macs(model, (3, 32, 32))
    assert list(costs.values()) == macs
    assert forward_flops(costs) == pytest.approx(108e6, rel=0.01)
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
