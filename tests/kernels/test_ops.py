"""The kernels against PyTorch's own in double precision, over random layers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, linear, ops
from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.library import Geometry

Error = Callable[[Tensor, Tensor], float]

SPARSE, DENSE = 0, ops.FORWARD | ops.INPUT_GRADIENT | ops.WEIGHT_GRADIENT
EXAMPLES = settings(max_examples=60, deadline=None)


class Case(NamedTuple):
    """A layer and a batch; the numbers are drawn from the seed."""

    batch: int
    geometry: Geometry
    size: tuple[int, int]
    density: float
    bias: bool
    seed: int


NUMBERS = st.floats(0.02, 1), st.booleans(), st.integers(0, 2**20)  # density, bias, seed


class Layer(NamedTuple):
    """The numbers of a case."""

    x: Tensor
    values: Tensor
    indices: Tensor
    plan: Tensor
    bias: Tensor | None
    settings: list[Any]  # as the operators take them

    @property
    def weight(self):
        return ops.scatter(self.values, self.indices, self.settings[0])


@st.composite
def convolutions(draw):
    kernel, stride, padding = (
        draw(st.tuples(*(st.integers(*limits),) * 2)) for limits in [(1, 5), (1, 3), (0, 3)]
    )
    # Large enough for one position of the result at least.
    least = [max(1, k - 2 * p) for k, p in zip(kernel, padding, strict=True)]
    size = draw(st.tuples(*(st.integers(smallest, 13) for smallest in least)))
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 40)), *kernel)
    return Case(
        draw(st.integers(1, 20)), Geometry(shape, stride, padding), size, *map(draw, NUMBERS)
    )


@st.composite
def matrices(draw):
    shape = (draw(st.integers(1, 80)), draw(st.integers(1, 80)), 1, 1)
    # Several tiles of samples, the last one of any width; several blocks of inputs.
    return Case(draw(st.integers(1, 300)), Geometry(shape), (1, 1), *map(draw, NUMBERS))


def make(case):
    source = torch.Generator().manual_seed(case.seed)
    geometry = case.geometry
    mask = torch.rand(torch.Size(geometry.shape).numel(), generator=source) < case.density
    mask[torch.randint(mask.numel(), (1,), generator=source)] = True
    indices = mask.nonzero().flatten().int()
    values = torch.randn(indices.numel(), generator=source)
    x = torch.randn(case.batch, geometry.shape[1], *case.size, generator=source)
    bias = torch.randn(geometry.shape[0], generator=source) if case.bias else None
    parts = [list(part) for part in geometry]
    return Layer(x, values, indices, ops.make_plan(indices, geometry), bias, parts)


def directions(function, *leaves):
    """The result of a function and its gradients, for a gradient that is always the same."""
    leaves = tuple(None if t is None else t.detach().clone().requires_grad_() for t in leaves)
    y = function(*leaves)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(-7)).to(y.dtype)
    found = torch.autograd.grad(y, [t for t in leaves if t is not None], gradient)
    return [y.detach(), *found]


def sparse_conv2d(layer, dense=SPARSE):
    def run(x, values, bias):
        grouped = to_groups(x, library.lanes())
        y = ops.conv2d(grouped, values, layer.indices, layer.plan, bias, *layer.settings, dense)
        assert not y.isnan().any()  # in the empty lanes neither
        return from_groups(y, len(x))

    return run


def sparse_linear(layer, dense=SPARSE, relu=False):
    shape = layer.settings[0][:2]

    def run(x, values, bias):
        given = (values, layer.indices, layer.plan, bias, shape, library.lanes(), dense, relu)
        return linear.linear(x.flatten(1), *given)

    return run


def expected(layer, function, x):
    """The same in double precision, by PyTorch; of the weight's gradient, the active part."""
    bias = None if layer.bias is None else layer.bias.double()
    y, dx, dweight, *rest = directions(function, x.double(), layer.weight.double(), bias)
    return [y, dx, dweight.flatten()[layer.indices.long()], *rest]


def assert_close(error, found, wanted):
    for mine, theirs in zip(found, wanted, strict=True):
        assert error(mine, theirs) < 1e-4


# ---- against PyTorch


@given(case=convolutions())
@EXAMPLES
def test_a_convolution_and_its_gradients_are_pytorchs(instructions, memory_of_nan, error, case):
    layer = make(case)
    found = directions(sparse_conv2d(layer), layer.x, layer.values, layer.bias)
    _, stride, padding = case.geometry
    wanted = expected(layer, lambda x, w, b: F.conv2d(x, w, b, stride, padding), layer.x)
    assert_close(error, found, wanted)


@given(case=matrices(), relu=st.booleans(), dense=st.integers(0, 7))
@EXAMPLES
def test_a_linear_layer_and_its_gradients_are_pytorchs(
    instructions, memory_of_nan, error, case, relu, dense
):
    layer = make(case)
    shape, x = layer.settings[0][:2], layer.x.flatten(1)

    def theirs(x, weight, bias):
        y = F.linear(x, weight.view(shape), bias)
        # Where rounding decides on which side of zero a sum is, both sides are right.
        assume(not relu or not ((y != 0) & (y.abs() < 1e-5)).any())
        return F.relu(y) if relu else y

    wanted = expected(layer, theirs, x)
    found = directions(sparse_linear(layer, dense, relu), x, layer.values, layer.bias)
    assert_close(error, found, wanted)


def test_relu_of_a_linear_layer_passes_on_what_is_no_number(instructions):
    layer = make(LINEAR)
    x = torch.full((library.lanes(), 20), torch.nan, requires_grad=True)
    y = sparse_linear(layer, relu=True)(x, layer.values, layer.bias)
    used = layer.weight.view(12, 20).any(1)
    assert y.isnan().equal(used.expand_as(y)), "as PyTorch's does"
    y.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("one_lane", [True, False], ids=["rows", "samples"])
@given(
    case=convolutions(), residual=st.booleans(), relu=st.booleans(), prepared=st.booleans(),
    scaled=st.sampled_from([None, "plain", "relu"]),
)  # fmt: skip
@EXAMPLES
def test_a_fused_convolution_is_pytorchs_in_either_layout(
    instructions, memory_of_nan, error, one_lane, case, residual, relu, prepared, scaled
):
    layer = make(case)
    lanes = 1 if one_lane else library.lanes()
    _, stride, padding = case.geometry
    bias = None if layer.bias is None else layer.bias.double()
    generator = torch.Generator().manual_seed(case.seed)
    scaling, read = None, layer.x.double()
    if scaled:
        factor, shift = torch.randn(2, read.shape[1], generator=generator)
        scaling = ops.Scaling(factor, shift, scaled == "relu")
        read = read * factor.double().view(-1, 1, 1) + shift.double().view(-1, 1, 1)
        read = read.relu() if scaling.relu else read
    wanted = F.conv2d(read, layer.weight.double(), bias, stride, padding)
    skip = torch.randn(wanted.shape, generator=generator)
    if residual:
        wanted = wanted + skip
    x = to_groups(layer.x, lanes)
    y = ops.fused_conv2d(
        x, layer.values, layer.plan, case.geometry, layer.bias,
        to_groups(skip, lanes) if residual else None, relu,
        ops.prepare(x, layer.values, layer.plan, case.geometry) if prepared else None, scaling,
    )  # fmt: skip
    assert not y.isnan().any()
    found = from_groups(y, case.batch)
    assert error(found, wanted.relu() if relu else wanted) < 1e-4


@pytest.mark.parametrize("lanes", [1, None], ids=["rows", "samples"])
def test_a_nan_is_not_lost_in_relu(instructions, lanes):
    layer = make(Case(5, Geometry((3, 2, 1, 1)), (3, 7), 1.0, False, 1))
    layer.x[2, 1, 0, 6] = torch.nan
    x = to_groups(layer.x, lanes or library.lanes())
    scaling = ops.Scaling(torch.ones(2), torch.ones(2), True)
    for arguments in ({"relu": True}, {"scaling": scaling}):
        y = ops.fused_conv2d(x, layer.values, layer.plan, Geometry((3, 2, 1, 1)), **arguments)
        found = from_groups(y, 5).isnan().nonzero().tolist()
        assert found == [[2, channel, 0, 6] for channel in range(3)]


@pytest.mark.parametrize("dense", range(8))
@given(case=convolutions())
@settings(max_examples=5, deadline=None)
def test_any_direction_may_run_dense(error, dense, case):
    layer = make(case)
    ways = [
        directions(sparse_conv2d(layer, way), layer.x, layer.values, layer.bias)
        for way in (dense, SPARSE)
    ]
    assert_close(error, *ways)
    flat = make(case._replace(geometry=Geometry((*case.geometry.shape[:2], 1, 1)), size=(1, 1)))
    ways = [
        directions(sparse_linear(flat, way), flat.x, flat.values, flat.bias)
        for way in (dense, SPARSE)
    ]
    assert_close(error, *ways)


@given(
    st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 20)
)
@settings(max_examples=40, deadline=None)
def test_groups_lead_back_and_their_empty_lanes_are_zero(batch, channels, height, width, lanes):
    x = torch.randn(batch, channels, height, width)
    grouped = to_groups(x, lanes)
    assert grouped.shape == (-(-batch // lanes), channels, height, width, lanes)
    assert torch.equal(from_groups(grouped, batch), x)
    padded = F.pad(x, (0, 0, 0, 0, 0, 0, 0, grouped.shape[0] * lanes - batch))
    regrouped = padded.view(-1, lanes, channels, height, width).permute(0, 2, 3, 4, 1)
    assert torch.equal(grouped, regrouped)


# ---- large layers: several blocks of sources, many tiles


LARGE = {
    "wide": Case(3, Geometry((160, 600, 3, 3), (1, 1), (1, 1)), (6, 6), 0.05, False, 1),
    "large maps": Case(2, Geometry((5, 4, 3, 3), (2, 2), (1, 1)), (65, 130), 0.4, True, 2),
    "large kernel": Case(2, Geometry((3, 4, 11, 9), (4, 3), (5, 4)), (40, 33), 0.5, False, 3),
    "largest stride": Case(9, Geometry((3, 2, 8, 8), (8, 8)), (24, 17), 0.5, False, 4),
    "pointwise": Case(8, Geometry((200, 900, 1, 1)), (5, 7), 0.02, True, 5),
    "almost empty": Case(5, Geometry((64, 64, 3, 3), (1, 1), (1, 1)), (9, 9), 1e-9, False, 6),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_layers_are_pytorchs_too(instructions, error, case):
    layer = make(case)
    found = directions(sparse_conv2d(layer), layer.x, layer.values, layer.bias)
    _, stride, padding = case.geometry
    wanted = expected(layer, lambda x, w, b: F.conv2d(x, w, b, stride, padding), layer.x)
    assert_close(error, found, wanted)


# ---- tensors in all kinds of memory

LINEAR = Case(16, Geometry((12, 20, 1, 1)), (1, 1), 0.3, True, 7)
CONV = Case(5, Geometry((6, 4, 3, 2), (2, 1), (1, 0)), (7, 6), 0.4, True, 8)


def test_a_part_of_a_batch_that_lies_sample_by_sample_is_not_taken_for_the_whole(error):
    """Between two sparse layers samples are neighbours: a slice has the strides of the whole."""
    layer, lanes = make(LINEAR), library.lanes()
    shape = layer.settings[0][:2]
    part = lanes - 3
    x = torch.randn(20, lanes).t()[:part]
    gradient = torch.randn(12, lanes).t()[:part]
    assert x.stride() == (1, lanes)
    given = (layer.values, layer.indices, layer.plan)
    wanted = ([False, True, False], shape, lanes, SPARSE)
    _, dvalues, _ = linear.linear_backward(x, None, gradient, *given, *wanted)
    wanted = (gradient.double().t() @ x.double()).flatten()[layer.indices.long()]
    assert error(dvalues, wanted) < 1e-4
    edge = torch.empty_strided((part, 20), (1, lanes)).fill_(1)  # the memory ends with the slice
    y = linear.linear(edge, *given, None, shape, lanes, SPARSE, False)
    assert error(y, edge @ layer.weight.view(shape).t()) < 1e-4


@pytest.mark.parametrize("batch", [1, 5, 8, 16, 17])
def test_strides_and_alignment_of_the_input_do_not_matter(error, batch):
    layer = make(LINEAR._replace(batch=batch))
    x = layer.x.flatten(1)
    plain = sparse_linear(layer)(x, layer.values, layer.bias)
    odd = [
        x.t().contiguous().t(),
        torch.cat([x, x], 1)[:, :20],
        torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape),
        torch.stack([x, x], 2)[..., 0],
    ]
    for other in odd:
        assert torch.equal(sparse_linear(layer)(other, layer.values, layer.bias), plain)
    layer = make(CONV._replace(batch=batch))
    plain = sparse_conv2d(layer)(layer.x, layer.values, layer.bias)
    for other in (
        layer.x.contiguous(memory_format=torch.channels_last),
        layer.x.transpose(2, 3).contiguous().transpose(2, 3),
        torch.cat([layer.x, layer.x])[:batch],
    ):
        assert torch.equal(sparse_conv2d(layer)(other, layer.values, layer.bias), plain)


def test_a_gradient_that_was_expanded_is_read_as_it_stands(error):
    for case, run in ((CONV, sparse_conv2d), (LINEAR, sparse_linear)):
        layer = make(case)
        x, values = layer.x.requires_grad_(), layer.values.requires_grad_()
        found = torch.autograd.grad(run(layer)(x, values, None).sum(), [x, values])
        y = run(layer)(x, values, None)
        wanted = torch.autograd.grad(y, [x, values], torch.ones_like(y).contiguous())
        for mine, theirs in zip(found, wanted, strict=True):
            assert torch.equal(mine, theirs)


# ---- what would lead beyond the memory


@pytest.mark.parametrize("dense", [SPARSE, DENSE])
def test_maps_that_do_not_fit_the_layer_are_refused(dense):
    layer = make(CONV)

    def run(*shape):
        x = torch.zeros(*shape)
        return sparse_conv2d(layer, dense)(x, layer.values, layer.bias)

    with pytest.raises(FreeTicketsError, match="of 4 channels can't take maps of 3"):
        run(5, 3, 7, 6)
    with pytest.raises(FreeTicketsError, match=r"by 3x2 can't take maps of 7x1: they are too smal"):
        run(5, 4, 7, 1)
    with pytest.raises(FreeTicketsError, match="of 4 channels can't take maps of 5"):
        ops.fused_conv2d(torch.zeros(1, 5, 7, 6, 1), layer.values, layer.plan, CONV.geometry)
    layer = make(LINEAR)
    with pytest.raises(FreeTicketsError, match="of 20 inputs can't take 19"):
        sparse_linear(layer, dense)(torch.zeros(3, 19), layer.values, layer.bias)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dense", [SPARSE, DENSE])
def test_no_samples_give_no_samples(threads, count, dense):
    threads(count)
    for case, run in ((CONV, sparse_conv2d), (LINEAR, sparse_linear)):
        layer = make(case._replace(batch=0))
        y, dx, dvalues, dbias = directions(run(layer, dense), layer.x, layer.values, layer.bias)
        assert (y.numel(), dx.shape) == (0, layer.x.shape)
        assert not dvalues.any()
        assert not dbias.any()
    layer = make(CONV)
    none = torch.zeros(0, 4, 7, 6, 1)
    assert ops.fused_conv2d(none, layer.values, layer.plan, CONV.geometry).shape[0] == 0


@pytest.mark.parametrize("dense", [SPARSE, DENSE])
def test_autocast_does_not_reach_into_an_operator(error, dense):
    for case, run in ((CONV, sparse_conv2d), (LINEAR, sparse_linear)):
        layer = make(case)
        plain = directions(run(layer, dense), layer.x, layer.values, layer.bias)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = directions(run(layer, dense), layer.x, layer.values, layer.bias)
        for mine, theirs in zip(found, plain, strict=True):
            assert mine.dtype == torch.float32
            assert torch.equal(mine, theirs)


# ---- threads


@pytest.mark.parametrize("case", [CONV, LINEAR, *LARGE.values()])
def test_every_bit_is_the_same_for_any_number_of_threads(same_bits, case):
    layer = make(case)
    run = sparse_linear if case is LINEAR else sparse_conv2d
    same_bits(lambda: directions(run(layer), layer.x, layer.values, layer.bias))


def test_the_kernels_run_on_as_many_threads_as_pytorch_has(threads, noted):
    for count in (1, 2):
        threads(count)
        for case, run in ((CONV, sparse_conv2d), (LINEAR, sparse_linear)):
            layer = make(case)
            directions(run(layer), layer.x, layer.values, layer.bias)
    names = ("forward", "input_gradient", "weight_gradient", "to_groups", "from_groups")
    names += ("linear", "linear_backward")
    found = {(function, arguments[-1]) for function, arguments in noted if "plan" not in function}
    assert found == {(f"ft_{name}", count) for name in names for count in (1, 2)}


def test_columns_are_the_same_numbers_in_another_order():
    for batch, features in ((8, 1), (16, 37), (40, 130)):
        x = torch.randn(batch, features, requires_grad=True)
        assert not linear.lies_in_columns(x, 8) or features == 1
        y = linear.columns(x, 8)
        assert torch.equal(y, x)
        assert linear.lies_in_columns(y, 8)
        weights = torch.randn(batch, features)
        y.backward(weights)
        assert x.grad is not None
        assert torch.equal(x.grad, weights)
    assert linear.lies_in_columns(torch.randn(5, 3), 8), "lanes would be empty"
    assert linear.lies_in_columns(torch.randn(0, 3), 8), "there is nothing"


@pytest.mark.parametrize("width", [1, 3, 7, 8, 9, 16])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_rows_of_any_width_are_convolved(width, stride, kernel):
    # With one lane vectors lie along rows; narrow ones may run on kernels with shorter vectors.
    padding = kernel // 2
    geometry = Geometry((6, 5, kernel, kernel), (stride, stride), (padding, padding))
    weight = torch.randn(geometry.shape) * (torch.rand(geometry.shape) < 0.3)
    indices = weight.flatten().nonzero().flatten().int()
    values, plan = weight.flatten()[indices.long()], ops.make_plan(indices, geometry)
    x = torch.randn(2, 5, width, width, 1)
    wanted = F.conv2d(x[..., 0], weight, stride=stride, padding=padding)
    torch.testing.assert_close(
        ops.fused_conv2d(x, values, plan, geometry)[..., 0], wanted, atol=1e-5, rtol=1e-5
    )
