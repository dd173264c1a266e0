"""Few images as blocks that lie side by side: against PyTorch, which knows of no blocks."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.kernels.blocks import Border, Cut, with_border
from freetickets.kernels.groups import as_samples, to_groups
from freetickets.kernels.inference import compile_network
from freetickets.kernels.library import Geometry, lanes
from freetickets.models import create_model

from .zoo.checks import compiled_for_good, make_sparse
from .zoo.entry import conv, lived_in


def bordered(x, grid, border, scaling=None):
    """The blocks of maps, as samples, with their borders."""
    y = with_border(to_groups(grid.cut(x), lanes()), grid, Border(*border), scaling)
    return as_samples(y)[: len(x) * grid.blocks]


def wanted(x, grid, border, scaling=None):
    """The same by PyTorch: windows of padded maps."""
    if scaling is not None:
        factor, shift, relu = scaling
        x = x * factor[:, None, None] + shift[:, None, None]
        x = F.relu(x) if relu else x
    top, bottom, left, right = border
    height, width = x.shape[2] // grid.rows, x.shape[3] // grid.columns
    windows = F.pad(x, (left, right, top, bottom))
    windows = windows.unfold(2, height + top + bottom, height)
    windows = windows.unfold(3, width + left + right, width)
    return windows.permute(0, 2, 3, 1, 4, 5).flatten(0, 2)


_borders = st.tuples(*[st.integers(0, 7)] * 4)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5), _borders, st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_a_block_gets_its_neighbours_and_zeros_beyond_the_image(
    instructions, memory_of_nan, samples, height, width, border, scaled
):
    grid = Cut.of(samples)
    x = torch.randn(samples, 3, height * grid.rows, width * grid.columns)
    assert torch.equal(grid.join(grid.cut(x)), x)
    scaling = (torch.randn(3), torch.randn(3), scaled == 2) if scaled else None
    found = bordered(x, grid, border, scaling)
    torch.testing.assert_close(found, wanted(x, grid, border, scaling), rtol=1e-6, atol=1e-6)


def test_blocks_fill_the_lanes_and_no_image_sees_another(instructions):
    for samples in range(1, 2 * lanes()):
        count = Cut.of(samples).blocks
        assert count == 1 or samples * count <= lanes() < 2 * samples * count
    x = torch.zeros(2, 1, 8, 8)
    x[0] = float("nan")
    assert not bordered(x, Cut.of(2), (3, 3, 3, 3))[Cut.of(2).blocks :].any()


def test_every_convolution_that_fits_is_that_of_its_blocks(instructions, error):
    """By brute force: of kernels, strides, paddings and sizes, whatever is said to fit."""
    fitting = 0
    for samples, kernel, step, pad in itertools.product((1, 3), range(1, 6), range(1, 4), range(4)):
        grid, geometry = Cut.of(samples), Geometry((2, 1, kernel, 3), (step, 1), (pad, 1))
        for height in range(max(1, kernel - 2 * pad), 17):
            x, weight = torch.randn(samples, 1, height, 8), torch.randn(geometry.shape)
            if not grid.fits(geometry, height, 8):
                continue
            fitting += 1
            y = F.conv2d(x, weight, None, geometry.stride, geometry.padding)
            found = bordered(x, grid, grid.border(geometry))
            found = F.conv2d(found, weight, None, geometry.stride)
            assert error(grid.join(found), y) < 1e-5
    assert fitting > 50
    same = Geometry((2, 1, 3, 3), (1, 1), (1, 1))
    assert Cut(4, 4).fits(same, 8, 12)
    for odd in ((6, 8), (8, 6)):
        assert not Cut(4, 4).fits(same, *odd)
    assert not Cut(4, 4).fits(same._replace(stride=(2, 2)), 4, 8)
    assert not Cut(4, 4).fits(same._replace(padding=(0, 1)), 8, 8)
    assert Cut(4, 4).border(Geometry((2, 1, 1, 1), (2, 2))) is None


def test_what_is_no_group_of_blocks_is_refused(refused):
    x, border = torch.zeros(1, 3, 2, 2, lanes()), Border(1, 1, 1, 1)
    refused("5 dimensions", with_border, x[0], Cut(2, 2), border)
    refused("float32", with_border, x.double(), Cut(2, 2), border)
    refused("can't have -1", with_border, x, Cut(2, 2), border._replace(left=-1))
    refused("fill the lanes", with_border, x, Cut(3, 1), border)
    scaling = (torch.ones(2), torch.ones(3), False)
    refused("others' factors", with_border, x, Cut(2, 2), border, scaling)


# ---- compiled networks


class Strided(nn.Module):
    """Strides, residuals, a pool, and BatchNorms that convolutions can't take in."""

    def __init__(self):
        super().__init__()
        self.stem, self.left = conv(3, 8), nn.Conv2d(8, 8, 3, 2, 1)
        self.right, self.last = nn.Conv2d(8, 8, 1, 2, bias=False), nn.Conv2d(8, 8, 5, padding=2)
        self.first, self.second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x):
        y = F.relu(self.first(self.stem(x)))
        x = self.left(y) + self.right(y)
        x = F.relu(self.second(x) + self.last(x))
        return F.max_pool2d(x, 3, 1, 1).mean((2, 3))


def made(network, shape):
    torch.manual_seed(0)
    lived_in(network, lambda samples: (3 * torch.randn(samples, *shape) + 1,))
    return network.eval(), compile_network(network.eval(), make_sparse(network, 0.3))


@pytest.mark.parametrize("way", ["sparse", "dense", "winograd"])
@torch.no_grad()
def test_networks_predict_the_same_in_blocks(instructions, way, noted, error):
    for network, shape in (
        (Strided(), (3, 16, 24)),
        (create_model("wrn-10-1", (3, 32, 32), 10), (3, 32, 32)),
    ):
        with compiled_for_good(lambda key: way):
            plain, found = made(network, shape)
            for samples in range(1, 18):
                noted.clear()
                x = torch.randn(samples, *shape)
                assert error(found(x), plain(x)) < 1e-5
                is_cut = "ft_halo" in [function for function, _ in noted]
                assert is_cut == (way != "dense" and 2 * samples <= lanes())
        assert found.fallbacks == {}


@pytest.mark.parametrize("size", [(15, 16), (20, 16), (7, 7)])
@torch.no_grad()
def test_where_blocks_do_not_fit_nothing_is_cut(size, noted, error):
    with compiled_for_good(lambda key: "sparse"):
        plain, found = made(Strided(), (3, *size))
        x = torch.randn(1, 3, *size)
        assert error(found(x), plain(x)) < 1e-5
    assert "ft_halo" not in [function for function, _ in noted]
    assert "ft_forward_fused" in [function for function, _ in noted]


@pytest.mark.parametrize("way", ["sparse", "winograd"])
@torch.no_grad()
def test_every_bit_is_the_same_for_any_number_of_threads(instructions, way, same_bits):
    x = torch.randn(1, 3, 32, 32)
    with compiled_for_good(lambda key: way):
        _, found = made(create_model("wrn-10-1", (3, 32, 32), 10), (3, 32, 32))
        found(x)
        same_bits(lambda: [found(x)])
