"""Max-pooling of groups against PyTorch's."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.library import PoolStruct, call, lanes
from freetickets.kernels.maps import Maps, leave
from freetickets.kernels.pool import max_pool, max_pool_backward, mean_pool_backward


def both(x, window, gradient=None):
    """What PyTorch makes of maps, and what ours does: results, and gradients."""
    for grouped in (False, True):
        leaf = x.clone().requires_grad_()
        if grouped:
            y = from_groups(max_pool(to_groups(leaf, lanes()), list(window))[0], len(x))
        else:
            y = F.max_pool2d(leaf, window)
        y.backward(torch.arange(y.numel()).view(y.shape).float() if gradient is None else gradient)
        yield y.detach(), leaf.grad


@given(
    st.integers(1, 40), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9),
    st.integers(1, 4), st.integers(1, 4), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_it_is_pytorchs_also_at_edges_and_of_equals(
    instructions, batch, channels, height, width, h, w, seed
):
    window = (min(h, height), min(w, width))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(3, (batch, channels, height, width), generator=generator).float()
    (theirs, their_gradient), (ours, our_gradient) = both(x, window)
    assert torch.equal(ours, theirs)
    assert torch.equal(our_gradient, their_gradient)


@pytest.mark.parametrize("window", [(2, 2), (3, 2)])
def test_every_bit_is_the_same_for_any_number_of_threads(window, same_bits):
    x = torch.randn(37, 6, 9, 8)
    same_bits(lambda: list(both(x, window))[1])


def test_nan_is_seen_and_what_does_not_fit_refused(refused):
    x = torch.zeros(1, 1, 2, 2)
    for place in range(4):
        broken = x.clone()
        broken.view(-1)[place] = float("nan")
        _, (y, gradient) = both(broken, (2, 2), torch.full((1, 1, 1, 1), 7.0))
        assert y.isnan().all()
        assert gradient.sum() == 7  # it is not lost
    x = to_groups(torch.randn(3, 2, 4, 4), lanes())
    y, places = max_pool(x, [2, 2])
    for window in ([5, 1], [0, 2], [2]):
        refused("have no windows", max_pool, x, window)
    for gradient, of in ((y[..., :1, :], places), (y, places[..., :1, :])):
        refused("pooled maps of", max_pool_backward, gradient, of, [2, 2], [4, 4])
    refused("more than 256", max_pool, to_groups(torch.randn(1, 1, 17, 16), lanes()), [17, 16])
    refused("5 dimensions", max_pool, x[0], [2, 2])
    refused("can't have a mean", mean_pool_backward, y, [4, 4])


@pytest.mark.parametrize(
    ("pool", "ours"),
    [
        (nn.MaxPool2d(2), True),
        (nn.MaxPool2d((3, 2)), True),
        (nn.MaxPool2d(2, stride=2, padding=0), True),
        (nn.MaxPool2d(3, stride=2), False),
        (nn.MaxPool2d(2, padding=1), False),
        (nn.MaxPool2d(2, dilation=2), False),
        (nn.MaxPool2d(2, ceil_mode=True), False),
        (nn.MaxPool2d((1, 1)), True),
    ],
    ids=str,
)
def test_networks_pool_in_this_way_where_it_is_the_same(pool, ours, noted):
    x = torch.randn(5, 3, 7, 7)
    y = leave(pool(Maps(to_groups(x, lanes()), 5)))
    assert torch.equal(y, pool(x))
    assert ("ft_max_pool" in [name for name, _ in noted]) is ours


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)], ids=str)
def test_it_is_pytorchs_and_can_be_differentiated_twice(pool):
    x = torch.randn(3, 2, 5, 4)
    found = []
    for in_groups in (False, True):
        leaf = x.clone().requires_grad_()
        y = leave(pool(Maps(to_groups(leaf, lanes()), 3))) if in_groups else pool(leaf)
        y.pow(3).sum().backward(retain_graph=True)
        (first,) = torch.autograd.grad(y.pow(3).sum(), leaf, create_graph=True)
        second = torch.autograd.grad(first.square().sum(), leaf)[0]
        found.append((y.detach(), leaf.grad, first.detach(), second))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("function", ["ft_max_pool", "ft_max_pool_backward"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": 0}, "groups"),
        ({"channels": 0}, "channels"),
        ({"lanes": 1}, "lanes"),
        ({"height": 2**40}, "floats in a channel"),
        ({"window_h": 5}, "window"),
        ({"window_w": 0}, "window"),
        ({"height": 300, "window_h": 257, "window_w": 1}, "256 positions"),
        ({"groups": 2**31 - 1, "channels": 2**24}, "any memory"),
    ],
    ids=str,
)
def test_the_kernels_refuse_numbers_that_they_can_not_work_with(refused, function, change, words):
    x = to_groups(torch.randn(3, 2, 4, 4), lanes())
    sizes = {"groups": 1, "lanes": lanes(), "channels": 2, "height": 4, "width": 4}
    pool = PoolStruct(**(sizes | {"window_h": 2, "window_w": 2} | change))
    places = torch.zeros(x.shape, dtype=torch.uint8)
    maps = [x, x, places] if function == "ft_max_pool" else [places, x, x]
    refused(words, call, function, pool, *maps, 1)
