"""Winograd's way computes what a direct convolution does, within its bounds."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, ops, winograd
from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.library import Geometry

Error = Callable[[Tensor, Tensor], float]

BOUND = 1e-5  # of the largest result, in each layer


class Case(NamedTuple):
    """A layer and a batch; the numbers are drawn from the seed."""

    batch: int
    inputs: int
    outputs: int
    padding: tuple[int, int]
    size: tuple[int, int]
    seed: int

    @property
    def geometry(self):
        return Geometry((self.outputs, self.inputs, 3, 3), (1, 1), self.padding)


@st.composite
def cases(draw):
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    size = draw(st.tuples(*(st.integers(max(1, 3 - 2 * p), 14) for p in padding)))
    channels = draw(st.tuples(st.integers(1, 50), st.integers(1, 50)))
    return Case(draw(st.integers(1, 34)), *channels, padding, size, draw(st.integers(0, 2**20)))


class Layer(NamedTuple):
    x: Tensor
    weight: Tensor
    gradient: Tensor


def make(case):
    source = torch.Generator().manual_seed(case.seed)
    x = torch.randn(case.batch, case.inputs, *case.size, generator=source)
    weight = torch.randn(case.geometry.shape, generator=source)
    size = case.geometry.output_size(*case.size)
    return Layer(x, weight, torch.randn(case.batch, case.outputs, *size, generator=source))


LARGE = {
    "wide": Case(16, 160, 160, (1, 1), (16, 16), 0),
    "deep": Case(33, 320, 96, (1, 1), (8, 8), 1),
    "odd": Case(5, 61, 130, (0, 2), (13, 7), 2),
}


def assert_close(found, expected, largest):
    """Within the bound of the largest result, or of a tenth of what its terms add up to.

    A few numbers may cancel by chance: then any way of adding them up has a large error.
    """
    assert found.shape == expected.shape
    limit = BOUND * max(float(expected.abs().max()), 0.1 * float(largest.max()))
    assert float((found.double() - expected).abs().max()) < limit


def check(case):
    x, weight, gradient = make(case)
    geometry, lanes = case.geometry, library.lanes()
    settings = {"padding": case.padding}
    y = winograd.convolve(to_groups(x, lanes), winograd.transform(weight, geometry), geometry)
    assert not y.isnan().any()  # in the empty lanes neither
    expected = F.conv2d(x.double(), weight.double(), **settings)
    largest = F.conv2d(x.abs(), weight.abs(), **settings)
    assert_close(from_groups(y, case.batch), expected, largest)
    dx = winograd.input_gradient(to_groups(gradient, lanes), weight, geometry)
    expected = conv2d_input(x.shape, weight.double(), gradient.double(), **settings)
    largest = conv2d_input(x.shape, weight.abs(), gradient.abs(), **settings)
    assert_close(from_groups(dx, case.batch), expected, largest)
    dw = winograd.weight_gradient(to_groups(x, lanes), to_groups(gradient, lanes), geometry)
    expected = conv2d_weight(x.double(), weight.shape, gradient.double(), **settings)
    largest = conv2d_weight(x.abs(), weight.shape, gradient.abs(), **settings)
    assert_close(dw, expected, largest)


@pytest.mark.usefixtures("memory_of_nan")
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_all_directions_are_pytorchs(instructions, case):
    check(case)


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_layers_are_pytorchs_too(instructions, error, case):
    check(case)
    x, weight, _ = make(case)
    weights = winograd.transform(weight, case.geometry)
    y = winograd.convolve(to_groups(x, library.lanes()), weights, case.geometry)
    expected = F.conv2d(x.double(), weight.double(), padding=case.padding)
    assert error(from_groups(y, case.batch), expected) < BOUND


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_what_is_fused_is_what_pytorch_does_step_by_step(
    instructions, scaled, residual, relu, case
):
    x, weight, skip = make(case)
    geometry, lanes = case.geometry, library.lanes()
    source = torch.Generator().manual_seed(case.seed)
    bias, factor, shift = (
        torch.randn(n, generator=source) for n in (case.outputs, case.inputs, case.inputs)
    )
    y = winograd.convolve(
        to_groups(x, lanes),
        winograd.transform(weight, geometry),
        geometry,
        bias,
        to_groups(skip, lanes) if residual else None,
        relu,
        ops.Scaling(factor, shift, relu) if scaled else None,
    )
    if scaled:
        x = x * factor.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)
        x = F.relu(x) if relu else x
    expected = F.conv2d(x.double(), weight.double(), bias.double(), padding=case.padding)
    expected = expected + skip if residual else expected
    largest = F.conv2d(x.abs(), weight.abs(), padding=case.padding)
    found = from_groups(y, case.batch)
    assert_close(found, F.relu(expected) if relu else expected, largest)


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_every_bit_is_the_same_for_any_number_of_threads(same_bits, case):
    def work():
        x, weight, gradient = make(case)
        grouped, dy = to_groups(x, library.lanes()), to_groups(gradient, library.lanes())
        return [
            winograd.convolve(grouped, winograd.transform(weight, case.geometry), case.geometry),
            winograd.input_gradient(dy, weight, case.geometry),
            winograd.weight_gradient(grouped, dy, case.geometry),
        ]

    same_bits(work)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_within_its_tile_and_is_never_hidden(instructions, wrong):
    case = Case(5, 3, 4, (1, 1), (9, 10), 3)
    x, weight, _ = make(case)
    x[2, 1, 4, 5] = wrong
    y = winograd.convolve(
        to_groups(x, library.lanes()), winograd.transform(weight, case.geometry), case.geometry
    )
    found = from_groups(y, 5)
    direct = F.conv2d(x, weight, padding=1).isfinite().logical_not()
    broken = found.isfinite().logical_not()
    assert (broken | ~direct).all()  # none is hidden
    assert not broken[[0, 1, 3, 4]].any()  # other samples don't notice
    rows, columns = broken[2].any(0).nonzero().unbind(1)
    assert rows.min() >= 0
    assert rows.max() < 8  # the tiles that read it
    assert columns.min() >= 4 - 4
    assert not broken[2, :, 8].any()


def test_weights_for_another_layer_are_refused():
    case = LARGE["odd"]
    _, weight, gradient = make(case)
    weights = winograd.transform(weight, case.geometry)
    turned = Geometry((61, 130, 3, 3), (1, 1), (1, 1))
    with pytest.raises(FreeTicketsError, match="no transformed weights of this layer"):
        winograd.convolve(to_groups(gradient, library.lanes()), weights, turned)
    for geometry in (
        Geometry((8, 8, 3, 3), (2, 1), (1, 1)),
        Geometry((8, 8, 3, 1), (1, 1), (1, 1)),
        Geometry((8, 8, 3, 3), (1, 1), (3, 1)),
    ):
        assert not winograd.suits(geometry)
        with pytest.raises(FreeTicketsError, match=r"for 3x3, stride 1 and a padding of 2"):
            winograd.transform(torch.zeros(geometry.shape), geometry)


WAYS = [(1 << bit) << ops.WINOGRAD for bit in range(3)] + [ops.ALL << ops.WINOGRAD]


@pytest.mark.parametrize("ways", WAYS)
def test_sparse_layers_keep_their_zeros(error, ways):
    """The operator in Winograd's way: the same gradients, at the active places only."""
    case = Case(9, 20, 24, (1, 1), (8, 8), 4)
    x, weight, gradient = make(case)
    mask = torch.rand(weight.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    indices = mask.flatten().nonzero().flatten().int()
    plan = ops.make_plan(indices, case.geometry)
    parts = [list(part) for part in case.geometry]
    found = []
    for way in (0, ways):
        values = weight.flatten()[indices.long()].requires_grad_()
        leaf = x.clone().requires_grad_()
        grouped = to_groups(leaf, library.lanes())
        y = from_groups(ops.conv2d(grouped, values, indices, plan, None, *parts, way), 9)
        y.backward(gradient)
        found.append((y.detach(), leaf.grad, values.grad))
    for direct, mine in zip(*found, strict=True):
        assert error(mine, direct) < BOUND
