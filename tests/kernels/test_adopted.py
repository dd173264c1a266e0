"""Adopted layers stay PyTorch's own to everyone who looks, and compute what those do."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from freetickets.errors import FreeTicketsError
from freetickets.kernels import adopted, library
from freetickets.kernels.adopted import AdoptedConv2d, AdoptedLinear, adopt_sparse
from freetickets.kernels.choices import Choices

pytestmark = pytest.mark.usefixtures("skipping_zeros")

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(20, 12), (9, 20)),
    "linear of sequences": (lambda: nn.Linear(20, 12, bias=False), (3, 5, 20)),
    "conv": (lambda: nn.Conv2d(6, 8, 3, padding=1), (9, 6, 7, 5)),
    "strided": (lambda: nn.Conv2d(6, 8, 3, stride=2, bias=False), (4, 6, 7, 7)),
    "1x1": (lambda: nn.Conv2d(6, 8, 1), (17, 6, 4, 4)),
}


def twins(build, sparsity=0.7):
    """A layer, its copy that is adopted, and the mask of both."""
    torch.manual_seed(0)
    plain: Any = build()
    mask = torch.rand(plain.weight.shape) >= sparsity
    with torch.no_grad():
        plain.weight.mul_(mask)
    model = nn.Sequential(copy.deepcopy(plain))
    adopt_sparse(model, {"0.weight": mask}, Choices())
    return plain, model[0], mask


def passes(layer, x):
    """Output and gradients of a pass; the weights' own are left in place."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    return (y.detach(), x.grad, *(p.grad for p in layer.parameters()))  # type: ignore[return-value]


@pytest.fixture(params=LAYERS.values(), ids=LAYERS)
def both(request):
    """A layer, its copy that is adopted, the mask of both, and inputs."""
    build, shape = request.param
    return *twins(build), torch.randn(shape)


def test_it_computes_what_pytorch_does_and_gradients_are_zero_outside(both, error):
    plain, mine, mask, x = both
    assert isinstance(mine, (AdoptedConv2d, AdoptedLinear))
    expected, found = passes(plain, x), passes(mine, x)
    plain.weight.grad *= mask
    for mine_is, theirs_is in zip(found, expected, strict=True):
        assert error(mine_is, theirs_is) < 1e-5
    assert (mine.weight.grad[~mask] == 0).all()
    assert mine.weight.grad.shape == mine.weight.shape


def test_only_active_weights_are_computed_with(both, noted):
    passes(both[1], both[3])
    assert {"ft_take", "ft_put"} <= {function for function, _ in noted}


@pytest.mark.parametrize("how", ["init", "data", "nan"])
def test_numbers_outside_the_topology_count_as_in_pytorch(both, how):
    plain, mine, mask, x = both
    for layer in (plain, mine):
        torch.manual_seed(5)
        place = tuple((~mask).nonzero()[3].tolist())
        if how == "init":
            nn.init.normal_(layer.weight)
        else:  # behind the back of PyTorch's version counter
            layer.weight.data[place] = 0.5 if how == "data" else torch.nan
    for mine_is, theirs_is in zip(passes(mine, x), passes(plain, x), strict=True):
        torch.testing.assert_close(mine_is, theirs_is, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_watched_layer_has_the_gradient_of_its_whole_weight(both, error):
    plain, mine, mask, x = both
    mine.is_watched = True
    for mine_is, theirs_is in zip(passes(mine, x), passes(plain, x), strict=True):
        assert error(mine_is, theirs_is) < 1e-5
    assert (mine.weight.grad[~mask] != 0).any()


def test_it_looks_like_pytorchs_own_and_is_that_again_when_abandoned(both):
    plain, mine, _, _ = both
    assert repr(mine) == repr(plain)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(mine.named_buffers()) == []
    assert mine.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(mine, type(plain))
    weight = mine.weight
    mine.abandon()
    assert type(mine) is type(plain)
    assert mine.weight is weight
    assert vars(mine).keys() == vars(plain).keys()


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_compute_alike_and_go_their_own_ways(both, way):
    _, mine, mask, x = both
    if way == "deepcopy":
        copied = copy.deepcopy(mine)
    else:
        file = io.BytesIO()
        torch.save(mine, file)
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    assert torch.equal(copied(x), mine(x))
    other = mask.flip(0)
    copied.take_topology(other)
    before = mine(x)
    with torch.no_grad():
        copied.weight.mul_(other)
    assert torch.equal(mine(x), before)


@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_second_derivatives_and_transforms_are_pytorchs(kind):
    build, shape = LAYERS[kind]
    plain, mine, mask = twins(build)
    x = torch.randn(2, *shape[1:])

    def penalty(layer):
        z = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(layer(z).square().sum(), z, create_graph=True)
        layer.zero_grad()
        slope.square().sum().backward()
        return layer.weight.grad * mask

    torch.testing.assert_close(penalty(mine), penalty(plain), rtol=1e-4, atol=1e-4)
    batched = torch.func.vmap(lambda z: mine(z[None])[0])(x)
    torch.testing.assert_close(batched, plain(x), rtol=1e-4, atol=1e-5)


def test_gradients_of_taking_agree_with_differences():
    mask = torch.rand(4, 5) > 0.5
    places = mask.flatten().nonzero().flatten().int()
    weight = (torch.randn(4, 5) * mask).requires_grad_()

    def take(weight):
        return adopted._Take.apply(weight, places)[0]

    options: Any = {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2, "nondet_tol": 0.0}
    for check in (gradcheck, gradgradcheck):
        with pytest.warns(UserWarning, match="double precision"):
            assert check(take, (weight,), **options)


def test_half_precision_around_it_is_pytorchs(error):
    plain, mine, _ = twins(LAYERS["conv"][0])
    x = torch.randn(LAYERS["conv"][1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = mine(x), plain(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert error(found, expected) < 0.02
    assert mine.double()(x.double()).dtype == torch.float64


def test_channels_last_weights_keep_their_places():
    plain, mine, mask = twins(LAYERS["conv"][0])
    mine.to(memory_format=torch.channels_last)
    x = torch.randn(LAYERS["conv"][1])
    torch.testing.assert_close(mine(x), plain(x), rtol=1e-4, atol=1e-5)
    mine(x).sum().backward()
    assert (mine.weight.grad[~mask] == 0).all()


def test_a_compiled_network_computes_with_its_whole_weight():
    plain, mine, mask = twins(LAYERS["conv"][0])
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    x = torch.randn(LAYERS["conv"][1])
    torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        mine.weight[~mask] = 0.1
    torch.testing.assert_close(compiled(x), F.conv2d(x, mine.weight, mine.bias, padding=1))


# ---- the two functions of the library


def take(weight, places):
    values, others = torch.empty(places.numel()), torch.zeros(1, dtype=torch.int64)
    arguments = (weight, weight.numel(), places, places.numel(), values, others, 2)
    library.call("ft_take", *arguments)
    return values, int(others)


@pytest.mark.parametrize("size", [1, 37, 100_000])
def test_what_is_taken_and_counted_is_what_pytorch_finds(size):
    torch.manual_seed(size)
    weight = torch.randn(size) * (torch.rand(size) < 0.4)
    weight[::7] *= -0.0  # zeros as well
    mask = torch.rand(size) < 0.3
    places = mask.nonzero().flatten().int()
    values, others = take(weight, places)
    assert torch.equal(values, weight[mask])
    assert others == int(weight[~mask].count_nonzero())
    back = torch.full((size,), torch.nan)
    library.call("ft_put", values, places, places.numel(), back, size, 2)
    assert torch.equal(back, weight * mask)


@pytest.mark.parametrize("place", [-1, 5, 2**31 - 1])
def test_places_outside_of_the_weight_are_refused(place):
    places = torch.tensor([0, place], dtype=torch.int32)
    with pytest.raises(FreeTicketsError, match="outside of the weight"):
        take(torch.ones(5), places)
    with pytest.raises(FreeTicketsError, match="outside of the weight"):
        library.call("ft_put", torch.ones(2), places, 2, torch.ones(5), 5, 1)
    with pytest.raises(FreeTicketsError, match="more places than numbers"):
        take(torch.ones(1), places)
