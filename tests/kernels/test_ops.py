"""The kernels against PyTorch's own in double precision, over random layers, in all their ways."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, linear, ops, winograd
from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.library import Geometry

from .reference import assert_close, directions

SPARSE, DENSE, WINOGRAD = 0, ops.ALL, ops.ALL << ops.WINOGRAD
EXAMPLES = settings(max_examples=60, deadline=None)


class Case(NamedTuple):
    """A layer, a batch and the way; the numbers are drawn from the seed."""

    batch: int
    geometry: Geometry
    size: tuple[int, int] | None  # of maps; None: the layer is linear
    density: float
    bias: bool
    seed: int
    ways: int = SPARSE

    def theirs(self, x, weight, bias=None):
        """What PyTorch makes of this."""
        if self.size is None:
            return F.linear(x, weight.flatten(1), bias)
        return F.conv2d(x, weight, bias, *self.geometry[1:])


# Of each kind the least and the largest kernels, strides and paddings.
LIMITS = {
    "any": [(1, 5), (1, 3), (0, 3)],
    "Winograd": [(3, 3), (1, 1), (0, 2)],
    "1x1": [(1, 1), (1, 3), (0, 0)],
}


@st.composite
def convolutions(draw, kind="any"):
    winograd = kind != "any"
    kernel, stride, padding = (draw(st.tuples(*(st.integers(*each),) * 2)) for each in LIMITS[kind])
    # Large enough for one position of the result at least.
    least = [max(1, k - 2 * p) for k, p in zip(kernel, padding, strict=True)]
    size = draw(st.tuples(*(st.integers(smallest, 17) for smallest in least)))
    shape = (draw(st.integers(1, 50)), draw(st.integers(1, 50)), *kernel)
    one_direction = [direction << ops.WINOGRAD for direction in (1, 2, 4)]
    ways = st.sampled_from([WINOGRAD, *one_direction] if winograd else [SPARSE, *range(8)])
    density = 1.0 if winograd else draw(st.floats(0.02, 1))
    numbers = density, draw(st.booleans()), draw(st.integers(0, 2**20))
    geometry = Geometry(shape, stride, padding)
    return Case(draw(st.integers(1, 34)), geometry, size, *numbers, draw(ways))


@st.composite
def matrices(draw):
    geometry = Geometry((draw(st.integers(1, 80)), draw(st.integers(1, 80)), 1, 1))
    numbers = draw(st.floats(0.02, 1)), draw(st.booleans()), draw(st.integers(0, 2**20))
    # Several tiles of samples, the last one of any width; several blocks of inputs.
    return Case(draw(st.integers(1, 300)), geometry, None, *numbers, draw(st.integers(0, 7)))


class Layer:
    """The numbers of a case."""

    def __init__(self, case):
        self.case, self.geometry = case, case.geometry
        source = torch.Generator().manual_seed(case.seed)
        outputs, inputs = case.geometry.shape[:2]
        mask = torch.rand(torch.Size(case.geometry.shape).numel(), generator=source) < case.density
        mask[torch.randint(mask.numel(), (1,), generator=source)] = True
        self.indices = mask.nonzero().flatten().int()
        self.values = torch.randn(self.indices.numel(), generator=source)
        self.weight = ops.scatter(self.values, self.indices, list(case.geometry.shape))
        self.x = torch.randn(case.batch, inputs, *(case.size or ()), generator=source)
        self.bias = torch.randn(outputs, generator=source) if case.bias else None
        self.plan = ops.make_plan(self.indices, case.geometry)

    @property
    def leaves(self):
        return self.x, self.values, self.bias

    def run(self, x, values, bias, *, relu=False):
        """What the kernels make of the layer."""
        given = (values, self.indices, self.plan, bias)
        if self.case.size is None:
            shape = list(self.geometry.shape[:2])
            return linear.linear(x, *given, shape, library.lanes(), self.case.ways, relu)
        parts = [list(part) for part in self.geometry]
        y = ops.conv2d(to_groups(x, library.lanes()), *given, *parts, self.case.ways)
        assert not y.isnan().any()  # in the empty lanes neither
        return from_groups(y, len(x))

    def check(self, relu=False):
        """All directions are PyTorch's; of the weight's gradient, the active part."""

        def theirs(x, weight, bias):
            y = self.case.theirs(x, weight, bias)
            if not relu:
                return y
            # Where rounding decides on which side of zero a sum is, both sides are right.
            assume(not ((y != 0) & (y.abs() < 1e-5)).any())
            return F.relu(y)

        given = [None if t is None else t.double() for t in (self.x, self.weight, self.bias)]
        wanted, terms = (directions(theirs, *given, sizes=sizes) for sizes in (False, True))
        wanted[2] = wanted[2].flatten()[self.indices.long()]
        found = directions(partial(self.run, relu=relu), *self.leaves)
        assert_close(found, wanted, terms)


# ---- against PyTorch


@pytest.mark.parametrize("kind", ["any", "Winograd"])
@given(data=st.data())
@EXAMPLES
def test_a_convolution_and_its_gradients_are_pytorchs(instructions, memory_of_nan, kind, data):
    Layer(data.draw(convolutions(kind))).check()


@given(case=matrices(), relu=st.booleans())
@EXAMPLES
def test_a_linear_layer_and_its_gradients_are_pytorchs(instructions, memory_of_nan, case, relu):
    Layer(case).check(relu)


@pytest.mark.parametrize("kind", ["rows", "samples", "Winograd", "1x1"])
@given(
    data=st.data(), residual=st.booleans(), relu=st.booleans(), prepared=st.booleans(),
    scaled=st.sampled_from([None, "plain", "relu"]),
)  # fmt: skip
@EXAMPLES
def test_a_fused_convolution_is_pytorchs_in_any_layout(
    instructions, memory_of_nan, kind, data, residual, relu, prepared, scaled
):
    case = data.draw(convolutions(kind if kind in LIMITS else "any"))
    layer, lanes = Layer(case), 1 if kind == "rows" else library.lanes()
    generator = torch.Generator().manual_seed(case.seed)
    scaling, read = None, layer.x.double()
    if scaled:
        factor, shift = torch.randn(2, read.shape[1], generator=generator)
        scaling = ops.Scaling(factor, shift, scaled == "relu")
        read = read * factor.double().view(-1, 1, 1) + shift.double().view(-1, 1, 1)
        read = read.relu() if scaling.relu else read
    weight = layer.weight.double()
    terms = case.theirs(read.abs(), weight.abs())
    wanted = case.theirs(read, weight, None if layer.bias is None else layer.bias.double())
    skip = torch.randn(wanted.shape, generator=generator)
    wanted = wanted + skip if residual else wanted
    x, added = to_groups(layer.x, lanes), to_groups(skip, lanes) if residual else None
    if kind in LIMITS:
        weights = winograd.transform(layer.weight, case.geometry)
        y = winograd.convolve(x, weights, case.geometry, layer.bias, added, relu, scaling)
    else:
        given = (layer.values, layer.plan, case.geometry)
        entries = ops.prepare(x, *given) if prepared else None
        y = ops.fused_conv2d(x, *given, layer.bias, added, relu, entries, scaling)
    assert not y.isnan().any()
    found = from_groups(y, case.batch)
    assert_close([found], [wanted.relu() if relu else wanted], [terms])


@given(*(st.integers(1, most) for most in (40, 9, 9, 9, 20)))
@settings(max_examples=40, deadline=None)
def test_groups_lead_back_and_their_empty_lanes_are_zero(batch, channels, height, width, lanes):
    x = torch.randn(batch, channels, height, width)
    grouped = to_groups(x, lanes)
    assert torch.equal(from_groups(grouped, batch), x)
    padded = F.pad(x, (0, 0, 0, 0, 0, 0, 0, -batch % lanes))
    regrouped = padded.view(-1, lanes, channels, height, width).permute(0, 2, 3, 4, 1)
    assert torch.equal(grouped, regrouped)


def _large(batch, shape, stride, padding, size, density, ways=SPARSE):
    return Case(batch, Geometry(shape, stride, padding), size, density, density == 0.4, 1, ways)


LINEAR = Case(16, Geometry((12, 20, 1, 1)), None, 0.3, True, 7)
CONV = _large(5, (6, 4, 3, 2), (2, 1), (1, 0), (7, 6), 0.4)
BOTH = pytest.mark.parametrize("case", [CONV, LINEAR], ids=["conv", "linear"])
# Several blocks of sources, many tiles.
LARGE = {
    "wide": _large(3, (160, 600, 3, 3), (1, 1), (1, 1), (6, 6), 0.05),
    "large maps": _large(2, (5, 4, 3, 3), (2, 2), (1, 1), (65, 130), 0.4),
    "large kernel": _large(2, (3, 4, 11, 9), (4, 3), (5, 4), (40, 33), 0.5),
    "largest stride": _large(9, (3, 2, 8, 8), (8, 8), (0, 0), (24, 17), 0.5),
    "pointwise": _large(8, (200, 900, 1, 1), (1, 1), (0, 0), (5, 7), 0.02),
    "almost empty": _large(5, (64, 64, 3, 3), (1, 1), (1, 1), (9, 9), 1e-9),
    "Winograd, wide": _large(16, (160, 160, 3, 3), (1, 1), (1, 1), (16, 16), 1.0, WINOGRAD),
    "Winograd, deep": _large(33, (96, 320, 3, 3), (1, 1), (1, 1), (8, 8), 1.0, WINOGRAD),
    "Winograd, zeros": _large(9, (24, 20, 3, 3), (1, 1), (1, 1), (8, 8), 0.6, WINOGRAD),
    "Winograd, one tile": _large(4, (61, 130, 3, 3), (1, 1), (1, 1), (4, 3), 1.0, WINOGRAD),
    "Winograd, two tiles": _large(3, (53, 40, 3, 3), (1, 1), (1, 1), (7, 4), 1.0, WINOGRAD),
    "Winograd, odd": _large(5, (130, 61, 3, 3), (1, 1), (0, 2), (13, 7), 1.0, WINOGRAD),
}


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_layers_are_pytorchs_too(instructions, case):
    Layer(case).check()


@pytest.mark.parametrize("case", [CONV, LINEAR, *LARGE.values()])
def test_every_bit_is_the_same_for_any_number_of_threads(same_bits, case):
    layer = Layer(case)
    same_bits(lambda: directions(layer.run, *layer.leaves))


@pytest.mark.parametrize(
    ("batch", "outputs", "inputs", "stride", "size"),
    [(33, 130, 61, 1, (9, 7)), (3, 100, 300, 2, (5, 4)), (4, 61, 700, 1, (1, 1)),
     (2, 30, 8, 3, (4, 2))],
)  # fmt: skip
def test_1x1_has_pytorchs_products_and_the_same_bits_for_any_number_of_threads(
    instructions, same_bits, batch, outputs, inputs, stride, size
):
    shape, strides = (outputs, inputs, 1, 1), (stride, stride)
    layer = Layer(_large(batch, shape, strides, (0, 0), size, 1.0))
    x = to_groups(layer.x, library.lanes())
    weights = winograd.transform(layer.weight, layer.geometry)
    same_bits(lambda: [winograd.convolve(x, weights, layer.geometry)])
    found = from_groups(winograd.convolve(x, weights, layer.geometry), batch)
    read, weight = layer.x.double(), layer.weight.double()
    terms = F.conv2d(read.abs(), weight.abs(), stride=strides)
    assert_close([found], [F.conv2d(read, weight, stride=strides)], [terms])
    turned = winograd.transform(layer.weight, layer.geometry, transposed=True)
    gradient = torch.randn(batch, outputs, 3, 2)
    back = Geometry((inputs, outputs, 1, 1))
    found = from_groups(
        winograd.convolve(to_groups(gradient, library.lanes()), turned, back), batch
    )
    wanted, terms = (
        F.conv2d(f(gradient.double()), f(weight.transpose(0, 1))) for f in (torch.clone, torch.abs)
    )
    assert_close([found], [wanted], [terms])


# ---- what is not finite


def test_relu_of_a_linear_layer_passes_on_what_is_no_number(instructions):
    layer = Layer(LINEAR)
    x = torch.full((library.lanes(), 20), torch.nan, requires_grad=True)
    y = layer.run(x, layer.values, layer.bias, relu=True)
    used = layer.weight.view(12, 20).any(1)
    assert y.isnan().equal(used.expand_as(y)), "as PyTorch's does"
    y.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("lanes", [1, None], ids=["rows", "samples"])
def test_a_nan_is_not_lost_in_relu(instructions, lanes):
    layer = Layer(_large(5, (3, 2, 1, 1), (1, 1), (0, 0), (3, 7), 1.0))
    layer.x[2, 1, 0, 6] = torch.nan
    x = to_groups(layer.x, lanes or library.lanes())
    scaling = ops.Scaling(torch.ones(2), torch.ones(2), True)
    for arguments in ({"relu": True}, {"scaling": scaling}):
        y = ops.fused_conv2d(x, layer.values, layer.plan, layer.geometry, **arguments)
        found = from_groups(y, 5).isnan().nonzero().tolist()
        assert found == [[2, channel, 0, 6] for channel in range(3)]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_within_its_tile_and_is_never_hidden(instructions, wrong):
    """In Winograd's way."""
    layer = Layer(_large(5, (4, 3, 3, 3), (1, 1), (1, 1), (9, 10), 1.0))
    layer.x[2, 1, 4, 5] = wrong
    weights = winograd.transform(layer.weight, layer.geometry)
    y = winograd.convolve(to_groups(layer.x, library.lanes()), weights, layer.geometry)
    broken = from_groups(y, 5).isfinite().logical_not()
    direct = F.conv2d(layer.x, layer.weight, padding=1).isfinite().logical_not()
    assert (broken | ~direct).all()  # none is hidden
    assert not broken[[0, 1, 3, 4]].any()  # other samples don't notice
    assert not broken[2, :, 8:].any()  # only the tiles that read it do


# ---- tensors in all kinds of memory


def test_a_part_of_a_batch_that_lies_sample_by_sample_is_not_taken_for_the_whole(error):
    """Between two sparse layers samples are neighbours: a slice has the strides of the whole."""
    layer, lanes = Layer(LINEAR), library.lanes()
    shape, part = [12, 20], lanes - 3
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


@BOTH
@pytest.mark.parametrize("batch", [1, 5, 8, 16, 17])
def test_strides_and_alignment_of_the_input_do_not_matter(case, batch):
    layer = Layer(case._replace(batch=batch))
    x, *others = layer.leaves
    plain = layer.run(*layer.leaves)
    odd = [
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.transpose(1, -1).contiguous().transpose(1, -1),
        torch.cat([x, x], 1)[:, : x.shape[1]],
        torch.cat([x, x])[:batch],
        torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape),
        torch.stack([x, x], -1)[..., 0],
    ]
    for other in odd:
        assert torch.equal(layer.run(other, *others), plain)


@BOTH
def test_a_gradient_that_was_expanded_is_read_as_it_stands(case):
    layer = Layer(case)
    leaves = [each.requires_grad_() for each in layer.leaves]
    y = layer.run(*leaves)
    wanted = torch.autograd.grad(y, leaves, torch.ones_like(y).contiguous())
    found = torch.autograd.grad(layer.run(*leaves).sum(), leaves)
    assert all(map(torch.equal, found, wanted))


def test_columns_are_the_same_numbers_in_another_order():
    for batch, features in ((8, 1), (16, 37), (40, 130)):
        x = torch.randn(batch, features, requires_grad=True)
        assert not linear.lies_in_columns(x, 8) or features == 1
        y = linear.columns(x, 8)
        assert torch.equal(y, x)
        assert linear.lies_in_columns(y, 8)
        weights = torch.randn(batch, features)
        y.backward(weights)
        assert isinstance(x.grad, Tensor)
        assert torch.equal(x.grad, weights)
    assert linear.lies_in_columns(torch.randn(5, 3), 8), "lanes would be empty"
    assert linear.lies_in_columns(torch.randn(0, 3), 8), "there is nothing"


# ---- what would lead beyond the memory, and who else takes part


@pytest.mark.parametrize("ways", [SPARSE, DENSE])
def test_maps_that_do_not_fit_the_layer_are_refused(refused, ways):
    for case, shape, words in (
        (CONV, (5, 3, 7, 6), "of 4 channels can't take maps of 3"),
        (CONV, (5, 4, 7, 1), r"by 3x2 can't take maps of 7x1: they are too small"),
        (LINEAR, (3, 19), "of 20 inputs can't take 19"),
    ):
        layer = Layer(case._replace(ways=ways))
        refused(words, layer.run, torch.zeros(shape), layer.values, layer.bias)
    layer = Layer(CONV)
    with pytest.raises(FreeTicketsError, match="of 4 channels can't take maps of 5"):
        ops.fused_conv2d(torch.zeros(1, 5, 7, 6, 1), layer.values, layer.plan, CONV.geometry)


def test_winograds_weights_for_another_layer_are_refused():
    layer = Layer(LARGE["Winograd, odd"])
    weights = winograd.transform(layer.weight, layer.geometry)
    turned = Geometry((61, 130, 3, 3), (1, 1), (1, 1))
    with pytest.raises(FreeTicketsError, match="no transformed weights of this layer"):
        winograd.convolve(torch.zeros(1, 130, 13, 7, library.lanes()), weights, turned)
    pointwise = layer.geometry._replace(shape=(130, 61, 1, 1))
    with pytest.raises(FreeTicketsError, match="no transformed weights of this layer"):
        winograd.convolve(
            torch.zeros(1, 61, 13, 7, library.lanes()), weights, pointwise._replace(padding=(0, 0))
        )
    for geometry in (
        pointwise,
        Geometry((8, 8, 3, 3), (2, 1), (1, 1)),
        Geometry((8, 8, 3, 1), (1, 1), (1, 1)),
        Geometry((8, 8, 3, 3), (1, 1), (3, 1)),
    ):
        assert not winograd.suits(geometry)
        with pytest.raises(FreeTicketsError, match=r"for 3x3, stride 1 and a padding of 2"):
            winograd.transform(torch.zeros(geometry.shape), geometry)
    maps = torch.zeros(1, 8, 5, 5, library.lanes())
    with pytest.raises(FreeTicketsError, match="is that of 3x3 weights"):
        winograd.weight_gradient(maps, maps, Geometry((8, 8, 1, 1)))


@BOTH
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("ways", [SPARSE, DENSE])
def test_no_samples_give_no_samples(threads, count, ways, case):
    threads(count)
    layer = Layer(case._replace(batch=0, ways=ways))
    y, dx, dvalues, dbias = directions(layer.run, *layer.leaves)
    assert (y.numel(), dx.shape) == (0, layer.x.shape)
    assert not dvalues.any()
    assert not dbias.any()
    if case is CONV:
        none = torch.zeros(0, 4, 7, 6, 1)
        assert ops.fused_conv2d(none, layer.values, layer.plan, case.geometry).shape[0] == 0


@BOTH
@pytest.mark.parametrize("ways", [SPARSE, DENSE])
def test_autocast_does_not_reach_into_an_operator(ways, case):
    layer = Layer(case._replace(ways=ways))
    plain = directions(layer.run, *layer.leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = directions(layer.run, *layer.leaves)
    assert {each.dtype for each in found} == {torch.float32}
    assert all(map(torch.equal, found, plain))


def test_the_kernels_run_on_as_many_threads_as_pytorch_has(threads, noted):
    for count in (1, 2):
        threads(count)
        for layer in map(Layer, (CONV, LINEAR)):
            directions(layer.run, *layer.leaves)
    names = ("forward", "input_gradient", "weight_gradient", "to_groups", "from_groups")
    names += ("linear", "linear_backward")
    found = {(function, arguments[-1]) for function, arguments in noted if "plan" not in function}
    assert found == {(f"ft_{name}", count) for name in names for count in (1, 2)}
