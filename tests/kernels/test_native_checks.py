"""What the compiled functions refuse: no number ends the process or leads beyond the memory.

Run as a program, this file makes all of the calls that must be refused. The tests do that first, in
a process of its own: a check that is missing ends that one, and is named.
"""

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, ops
from freetickets.kernels.library import Geometry, LayerStruct, MapsStruct, NormStruct

EXAMPLES = settings(max_examples=150, deadline=None)
GEOMETRY = Geometry((5, 4, 3, 2), (2, 1), (1, 0))
SIZE = (6, 7)
LINEAR = Geometry((5, 24, 1, 1))  # as many weights as the convolution
BATCH_LEFT = 3  # empty lanes

WITH_LAYER = ("ft_forward", "ft_prepare", "ft_forward_fused", "ft_input_gradient",
    "ft_weight_gradient")  # fmt: skip
WITH_SAMPLES = ("ft_linear", "ft_linear_backward")
WITH_VECTORS = ("ft_normalize", "ft_scale", "ft_normalize_backward")
WITH_NORM = (*WITH_VECTORS, "ft_to_groups", "ft_from_groups")

HUGE = (2**31, 2**32 + 1, 2**62, -(2**63))


class Case(NamedTuple):
    """A call that is right but for one thing."""

    function: str
    change: dict[str, Any]  # arguments, or numbers of structures ("maps.lanes")
    words: str  # of the refusal

    def __str__(self):
        told = (f"{k}={'other' if isinstance(v, Tensor) else v}" for k, v in self.change.items())
        return f"{self.function} {', '.join(told)}"


def vector():
    """The floats of a vector."""
    return {"baseline": 4, "avx2": 8, "avx512": 16}[library.instruction_set()]


def layer_arguments(geometry, maps, density=0.5):
    """All that the functions of a layer take, for maps of this size."""
    source = torch.Generator().manual_seed(1)
    mask = torch.rand(torch.Size(geometry.shape).numel(), generator=source) < density
    mask[-1] = True
    indices = mask.nonzero().flatten().int()
    groups, lanes, *size = (getattr(maps, name) for name, *_ in maps._fields_)
    outputs, inputs = geometry.shape[:2]
    x = torch.randn(groups, inputs, *size, lanes, generator=source)
    y = torch.empty(groups, outputs, *geometry.output_size(*size), lanes)
    given = {
        "layer": library.layer_struct(geometry),
        "maps": maps,
        "indices": indices,
        "values": torch.randn(indices.numel(), generator=source),
        "plan": ops.make_plan(indices, geometry),
        "nonzeros": indices.numel(),
        "size": library.native().ft_plan_size(library.layer_struct(geometry), indices.numel()),
        "entries": torch.empty(indices.numel(), dtype=torch.int64),
        "x": x,
        "y": y,
        "dy": torch.randn(y.shape, generator=source),
        "result": torch.randn(y.shape, generator=source),
        "dx": torch.empty_like(x),
        "dvalues": torch.empty(indices.numel()),
        "dbias": torch.empty(outputs),
        "samples": lanes * size[1],
        "bias": None,
        "factor": torch.ones(inputs),
        "shift": torch.zeros(inputs),
        "residual": None,
        "relu": 0,
        "threads": 2,
    }
    library.call("ft_prepare", *(given[name] for name in ARGUMENTS["ft_prepare"]))
    return given


def norm_arguments(norm):
    """All that the functions of a BatchNorm take, for maps of this size."""
    floats = norm.groups * norm.lanes * norm.channels * norm.positions
    statistics = ("weight", "bias", "mean", "variance", "dweight", "dbias")
    return {
        "norm": norm,
        **{name: torch.ones(floats) for name in ("x", "dy", "y", "dx")},
        **{name: torch.ones(norm.channels) for name in statistics},
        "eps": 1e-5,
        "relu": 1,
        "training": 1,
        "threads": 2,
    }


ARGUMENTS = {
    "ft_plan": "layer indices nonzeros plan size",
    "ft_forward": "layer maps x values plan nonzeros bias y threads",
    "ft_prepare": "layer maps values plan nonzeros entries threads",
    "ft_forward_fused": "layer maps x entries plan nonzeros factor shift relu bias residual relu y "
    "threads",
    "ft_input_gradient": "layer maps dy values plan nonzeros dx threads",
    "ft_weight_gradient": "layer maps x dy plan nonzeros dvalues threads",
    "ft_linear": "layer samples x values plan nonzeros bias relu y threads",
    "ft_linear_backward": "layer samples x result dy values plan nonzeros dx dvalues dbias threads",
    "ft_normalize": "norm x weight bias eps relu y mean variance threads",
    "ft_scale": "norm x weight bias mean variance eps relu y threads",
    "ft_normalize_backward": "norm x dy weight bias mean variance eps relu training dx dweight "
    "dbias threads",
    "ft_to_groups": "norm x y threads",
    "ft_from_groups": "norm x y threads",
}
ARGUMENTS = {name: words.split() for name, words in ARGUMENTS.items()}


def right(function):
    """The arguments of a call that works."""
    lanes = library.lanes()
    if function in WITH_NORM:
        return norm_arguments(NormStruct(2 * lanes - BATCH_LEFT, 2, lanes, 4, 42))
    if function in WITH_SAMPLES:
        return layer_arguments(LINEAR, MapsStruct(1, lanes, 1, 3))
    return layer_arguments(GEOMETRY, MapsStruct(2, lanes, *SIZE))


def changed(structure, **numbers):
    """A copy with other numbers."""
    copy = type(structure).from_buffer_copy(structure)
    for name, number in numbers.items():
        setattr(copy, name, number)
    return copy


def make(function, change):
    """Calls a function, with changed arguments."""
    arguments = right(function)
    for name, value in change.items():
        if "." in name:
            whole, part = name.split(".")
            arguments[whole] = changed(arguments[whole], **{part: value})
        else:
            arguments[name] = value
    library.call(function, *(arguments[name] for name in ARGUMENTS[function]))


# ---- the calls that must be refused


def cases():
    """All of them, for the instruction set that is selected."""
    for function in ("ft_plan", *WITH_LAYER, *WITH_SAMPLES):
        yield from _layers(function)
    for function in WITH_SAMPLES:
        yield from _samples(function)
    for function in WITH_LAYER:
        yield from _maps(function)
    for function in WITH_NORM:
        yield from _norms(function)
    for function in (*WITH_LAYER, *WITH_SAMPLES, *WITH_NORM):
        for number in (0, -1, -(2**31)):
            yield Case(function, {"threads": number}, "one thread at least")
    yield from _memory()
    yield from _indices()
    yield from _entries()


def _layers(function):
    for side in ("inputs", "outputs"):
        for number in (0, -1, 2**24 + 1, *HUGE):
            yield Case(function, {f"layer.{side}": number}, "channels must be from 1 to 2\\^24")
    for axis in "hw":
        for number in (0, -1, 65, *HUGE):
            yield Case(function, {f"layer.kernel_{axis}": number}, "kernel must be from 1 to 64")
        for number in (0, -1, 9, *HUGE):
            yield Case(function, {f"layer.stride_{axis}": number}, "strides must be from 1 to 8")
        for number in (-1, 2**30 + 1, *HUGE):
            yield Case(function, {f"layer.pad_{axis}": number}, "padding must be from 0 to 2\\^30")
    large = {"layer.inputs": 2**20, "layer.outputs": 2**20}
    yield Case(function, large, "not have more than 2\\^31 - 1 numbers")
    yield Case(function, {"layer": None}, "there is no layer")
    for number in (-1, 5 * 4 * 3 * 2 + 1, *HUGE):
        yield Case(function, {"nonzeros": number}, "0 non-zeros or more, and not more than weights")


def _maps(function):
    lanes, width = library.lanes(), vector()
    yield Case(function, {"maps": None}, "there are no maps")
    for number in (-1, *HUGE, *(() if function == "ft_prepare" else (0,))):
        yield Case(function, {"maps.groups": number}, "groups must be from 1 to 2\\^31 - 1")
    one = (1,) if "gradient" in function else ()
    for number in (0, -1, -lanes, 2, width - 1, width + 1, 13 * width, *one, *HUGE):
        yield Case(function, {"maps.lanes": number}, "lanes must be from 1 to 12 vectors")
    for side in ("height", "width"):
        for number in (0, -1, -(2**63)):
            yield Case(function, {f"maps.{side}": number}, "one position at least")
        for number in (2**30, 2**30 + 1, 2**62):
            yield Case(function, {f"maps.{side}": number}, "not have more than 2\\^30 floats")
    square = {"maps.height": 2**16, "maps.width": 2**16}  # 0 in 32 bits
    yield Case(function, square, "not have more than 2\\^30 floats")
    padded = {"layer.pad_h": 2**14, "layer.pad_w": 2**14, "plan": None}
    yield Case(function, padded, "not have more than 2\\^30 floats")
    for axis in "hw":
        small = {"maps.height": 1, "maps.width": 1, f"layer.kernel_{axis}": 64, "plan": None}
        yield Case(function, small, "not be smaller than the kernel")
    large = {"maps.groups": 2**31 - 1, "maps.height": 2**12, "maps.width": 2**12}
    yield Case(function, large, "larger than any memory")
    # Numbers that a layer may have, but not the one that the plan was made for.
    others = ("inputs", "outputs", "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w")
    for name in others:
        number = getattr(library.layer_struct(GEOMETRY), name) + 1
        yield Case(function, {f"layer.{name}": number}, "plan was made for another layer")
    for number in (0, 1):
        yield Case(function, {"nonzeros": number}, "another number of non-zeros")
    yield Case(function, {"plan": None}, "there is no plan")
    yield Case(function, {"plan": torch.zeros(16, dtype=torch.int32)}, "there is no plan")
    for other in (GEOMETRY._replace(shape=(4, 5, 3, 2)), GEOMETRY._replace(stride=(1, 2))):
        indices = torch.arange(right(function)["nonzeros"], dtype=torch.int32)
        plan = ops.make_plan(indices, other)
        yield Case(function, {"plan": plan}, "plan was made for another layer")


def _samples(function):
    lanes = library.lanes()
    for number in (0, -lanes, 1, lanes - 1, lanes + 1, *HUGE[1:2]):
        yield Case(function, {"samples": number}, "samples must fill whole groups of lanes")
    for number in (2**40, 2**62):
        yield Case(function, {"samples": number}, "maps")
    yield Case(function, {"layer.inputs": 25}, "plan was made for another layer")
    for other in (LINEAR._replace(stride=(1, 2)), LINEAR._replace(padding=(0, 1))):
        plan = ops.make_plan(right(function)["indices"], other)
        change = {"layer": library.layer_struct(other), "plan": plan}
        yield Case(function, change, "this is not a linear layer")


def _norms(function):
    lanes, width = library.lanes(), vector()
    yield Case(function, {"norm": None}, "there are no maps")
    for number in (0, -1, lanes - 1, lanes, 2 * lanes + 1, *HUGE):
        yield Case(function, {"norm.batch": number}, "the batch must fill its groups")
    for number in (-1, *HUGE):
        yield Case(function, {"norm.groups": number}, "groups must be from 0 to")
    for number in (0, 1, 3):
        yield Case(function, {"norm.groups": number}, "the batch must fill its groups")
    for number in (0, -1, *HUGE):
        yield Case(function, {"norm.lanes": number}, "lanes must be from 1 to")
    for name in ("channels", "positions"):
        for number in (-1, *HUGE):
            yield Case(function, {f"norm.{name}": number}, "channels and positions must be from 0")
    many = {"norm.groups": 2**20, "norm.lanes": 2**20, "norm.batch": 2**40}
    yield Case(function, many, "a batch must not have more than 2\\^31 - 1 samples")
    large = {"norm.channels": 2**30, "norm.positions": 2**30}
    yield Case(function, large, "larger than any memory")
    if function in WITH_VECTORS:
        for number in (1, 2, width - 1, width + 1, 17, 32, 64):
            numbers = {"norm.lanes": number, "norm.batch": 2 * number}
            yield Case(function, numbers, "lanes must be whole vectors")


# For layers, and for linear ones: gradients that have no memory are not computed.
_OPTIONAL = (("bias", "residual", "factor", "shift"), ("bias", "result", "dx", "dvalues", "dbias"))


def _memory():
    for function, arguments in ARGUMENTS.items():
        given = right(function)
        for name in arguments:
            optional = name in _OPTIONAL[function in WITH_SAMPLES]
            if isinstance(given[name], Tensor) and not (optional and function not in WITH_NORM):
                yield Case(function, {name: None}, "there is no (memory|plan)")
            if name in ("x", "y", "dx", "dy") and "groups" not in function:
                odd = torch.empty(20_000)[1:]
                yield Case(function, {name: odd}, "aligned to 64 bytes")
    for name in ("factor", "shift"):
        yield Case("ft_forward_fused", {name: None}, "a factor needs a shift, and a shift a factor")


def _indices():
    for wrong in ([-1, 0], [3, 2], [2, 2], [0, -(2**31)], [5, 4, 120]):
        change = {"indices": torch.tensor(wrong, dtype=torch.int32), "nonzeros": len(wrong)}
        yield Case("ft_plan", change, "must be ascending, from 0 on")
    for wrong in ([120], [0, 119, 2**31 - 1]):
        change = {"indices": torch.tensor(wrong, dtype=torch.int32), "nonzeros": len(wrong)}
        yield Case("ft_plan", change, "beyond the end of the weight")


def _entries():
    """Entries that were prepared for maps of another size, or in another layout."""
    mine = right("ft_forward_fused")["entries"]
    usual, most = library.lanes(), 12 * vector()
    for lanes, *size in ((usual, 1, 90), (usual, 90, 2), (1, *SIZE), (most, *SIZE)):
        entries = layer_arguments(GEOMETRY, MapsStruct(1, lanes, *size))["entries"]
        assert not entries.equal(mine), "these are cut into tiles of the same size"
        yield Case("ft_forward_fused", {"entries": entries}, "were prepared for other maps")


# ---- tests


@pytest.fixture(scope="module", autouse=True)
def _survived(instructions):
    """Has a process of its own make all of these calls."""
    command = [sys.executable, __file__, instructions]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    last = child.stdout.splitlines()[-1:]
    assert child.returncode == 0, f"{last} ended the process: {child.returncode} {child.stderr}"


def test_wrong_numbers_are_refused_and_the_words_say_why(instructions):
    for case in cases():
        with pytest.raises(FreeTicketsError, match=case.words) as caught:
            make(case.function, case.change)
        said = str(caught.value)
        assert said.startswith(f"{case.function}: "), case
        assert "\n" not in said


@pytest.mark.parametrize("function", ARGUMENTS)
def test_the_same_calls_with_right_numbers_work(instructions, function):
    make(function, {})
    optional = {"bias": None, "residual": None, "factor": None, "shift": None}
    if function == "ft_forward_fused":
        make(function, optional)


def test_a_refusal_names_the_numbers():
    with pytest.raises(FreeTicketsError) as caught:
        make("ft_forward", {"layer.stride_w": 9})
    assert str(caught.value) == (
        "ft_forward: strides must be from 1 to 8 (inputs 4, outputs 5, kernel_h 3, kernel_w 2, "
        "stride_h 2, stride_w 9, pad_h 1, pad_w 0; "
        f"groups 2, lanes {library.lanes()}, height 6, width 7)"
    )


def test_the_size_of_a_plan_that_can_not_be_is_nothing():
    size = library.native().ft_plan_size
    layer = library.layer_struct(GEOMETRY)
    assert size(layer, 120) > size(layer, 0) > 16
    assert size(layer, -1) == size(layer, 121) == size(None, 0) == 0
    assert size(changed(layer, stride_h=0), 1) == size(changed(layer, inputs=2**40), 1) == 0


def test_more_threads_than_a_machine_has_are_fine(instructions):
    for function in (*WITH_LAYER, *WITH_NORM):
        make(function, {"threads": 2**31 - 1})


def test_tensors_that_can_not_be_get_no_memory():
    new = library.native().ft_new_tensor
    for shape in ([0], [5, 0, 3], [-1], [-4, -4], [2**62], [2**32, 2**32], [2**63 - 1] * 8):
        assert new((ctypes.c_int64 * len(shape))(*shape), len(shape)) is None
    ones = (ctypes.c_int64 * 9)(*[1] * 9)
    assert new(ones, 9) is None
    assert new(ones, -1) is None
    assert new(None, 1) is None


def test_an_instruction_set_without_a_name_is_not_there():
    assert library.native().ft_select(None) == 0


def test_maps_without_samples_are_nothing_to_do(instructions):
    for function in WITH_NORM:
        make(function, {"norm.batch": 0, "norm.groups": 0, "x": None, "y": None, "dx": None,
            "dy": None})  # fmt: skip
        make(function, {"norm.positions": 0, "x": None, "y": None, "dx": None, "dy": None})
    make("ft_prepare", {"maps.groups": 0})  # entries suit any number of groups


def test_a_layer_without_weights_needs_no_memory_for_them(instructions):
    nothing = torch.empty(0, dtype=torch.int32)
    plan = ops.make_plan(nothing, GEOMETRY)
    change = {"plan": plan, "size": plan.numel(), "nonzeros": 0, "values": None, "dvalues": None,
        "entries": None, "indices": None}  # fmt: skip
    for function in (*WITH_LAYER, "ft_plan"):
        make(function, change)


def test_entries_of_another_instruction_set_are_refused(instructions):
    arguments = layer_arguments(GEOMETRY, MapsStruct(1, 16, 90, 90))
    call = [arguments[name] for name in ARGUMENTS["ft_forward_fused"]]
    library.call("ft_forward_fused", *call)
    sizes = {"baseline": 4, "avx2": 8, "avx512": 16}
    for other in sizes:
        try:
            library.select_instruction_set(other)
        except FreeTicketsError:
            continue
        if other != instructions:
            with pytest.raises(FreeTicketsError, match="or for another instruction set"):
                library.call("ft_forward_fused", *call)
    library.select_instruction_set(instructions)


# ---- every number of lanes that is not refused


def _grouped(x, lanes):
    """(N, C, H, W) in groups, by PyTorch."""
    n, c, h, w = x.shape
    return x.view(n // lanes, lanes, c, h, w).permute(0, 2, 3, 4, 1).contiguous()


@pytest.mark.parametrize("vectors", range(1, 13))
def test_all_lanes_that_are_not_refused_give_pytorchs_results(instructions, error, vectors):
    lanes = vectors * vector()
    arguments = layer_arguments(GEOMETRY, MapsStruct(2, lanes, 11, 9), density=0.3)
    weight = ops.scatter(arguments["values"], arguments["indices"], list(GEOMETRY.shape))
    x = torch.randn(2 * lanes, 4, 11, 9, dtype=torch.float64, requires_grad=True)
    weight = weight.double().requires_grad_()
    y = F.conv2d(x, weight, None, GEOMETRY.stride, GEOMETRY.padding)
    dy = torch.randn(y.shape, dtype=torch.float64)
    dx, dweight = torch.autograd.grad(y, (x, weight), dy)
    given = {"x": _grouped(x.detach().float(), lanes), "dy": _grouped(dy.float(), lanes)}
    arguments |= given
    for function in ("ft_forward", "ft_input_gradient", "ft_weight_gradient"):
        library.call(function, *(arguments[name] for name in ARGUMENTS[function]))
    assert error(arguments["y"], _grouped(y.detach(), lanes)) < 1e-4
    assert error(arguments["dx"], _grouped(dx, lanes)) < 1e-4
    assert error(arguments["dvalues"], dweight.flatten()[arguments["indices"].long()]) < 1e-4


@pytest.mark.parametrize(
    ("geometry", "size"),
    [
        (Geometry((4, 3, 64, 64), (8, 8), (40, 70)), (9, 11)),
        (Geometry((3, 2, 64, 64), (1, 1), (40, 33)), (1, 1)),
        (Geometry((2, 2, 1, 1), (8, 8), (8, 16)), (1, 1)),
        (Geometry((2, 2, 1, 1), (1, 1), (5000, 3)), (1, 1)),
        (Geometry((2, 1, 2, 2), (8, 7), (20_000, 0)), (1, 2)),
        (Geometry((1 << 17, 3, 1, 1)), (1, 1)),
        (Geometry((3, 1 << 17, 1, 1)), (1, 1)),
    ],
)
def test_the_oddest_layers_that_are_not_refused_are_pytorchs(instructions, error, geometry, size):
    lanes = vector()
    arguments = layer_arguments(geometry, MapsStruct(1, lanes, *size), density=0.3)
    for function in ("ft_forward", "ft_input_gradient", "ft_weight_gradient"):
        library.call(function, *(arguments[name] for name in ARGUMENTS[function]))
    weight = ops.scatter(arguments["values"], arguments["indices"], list(geometry.shape))
    x, dy = (arguments[name][0].permute(3, 0, 1, 2).double() for name in ("x", "dy"))
    y = F.conv2d(x, weight.double(), None, geometry.stride, geometry.padding)
    assert error(arguments["y"], _grouped(y, lanes)) < 1e-4
    # The gradients are those of a linear map.
    inner = float((y * dy).sum())
    scale = float(y.norm() * dy.norm())
    assert abs(float((x * _plain(arguments["dx"])).sum()) - inner) < 1e-5 * scale
    found = (arguments["values"].double() * arguments["dvalues"].double()).sum()
    assert abs(float(found) - inner) < 1e-5 * scale


def _plain(x):
    """Undoes `_grouped`, in double precision."""
    return x.permute(0, 4, 1, 2, 3).flatten(0, 1).double()


def test_the_largest_maps_layers_and_batches_are_not_refused():
    """They pass the checks up to the last one: the plan, or the memory, that is missing."""
    layer = LayerStruct(1, 1, 1, 1, 1, 1, 0, 0)
    lanes = library.lanes()
    change = {"layer": layer, "nonzeros": 0, "plan": None}
    for largest, beyond in (
        (MapsStruct(1, 1, 1 << 15, 1 << 15), MapsStruct(1, 1, 1 << 15, (1 << 15) + 1)),
        (MapsStruct(1, 1, 1, 1 << 30), MapsStruct(1, 1, 1, (1 << 30) + 1)),
        (MapsStruct(1, lanes, 1 << 13, (1 << 17) // lanes),
            MapsStruct(1, lanes, 1 << 13, (1 << 17) // lanes + 1)),
    ):  # fmt: skip
        with pytest.raises(FreeTicketsError, match="there is no plan"):
            make("ft_forward", change | {"maps": largest})
        with pytest.raises(FreeTicketsError, match="not have more than 2\\^30 floats"):
            make("ft_forward", change | {"maps": beyond})
    for numbers in ((1 << 24, 127, 1, 1, 1, 1, 0, 0), (1, 1, 64, 64, 8, 8, 1 << 30, 0)):
        with pytest.raises(FreeTicketsError, match="there is no memory for the plan"):
            make("ft_plan", {"layer": LayerStruct(*numbers), "nonzeros": 1, "plan": None})
    norm = NormStruct((1 << 31) - 1, 1, (1 << 31) - 1, 1 << 15, 1)
    with pytest.raises(FreeTicketsError, match="there is no memory for maps"):
        make("ft_to_groups", {"norm": norm, "x": None})


@pytest.mark.parametrize("lanes", [4, 8, 12, 16])
def test_all_lanes_of_a_norm_that_are_not_refused_give_pytorchs_results(instructions, error, lanes):
    if lanes % vector():
        pytest.skip("refused")
    x = torch.randn(2 * lanes, 3, 5, 7)
    norm = NormStruct(2 * lanes, 2, lanes, 3, 35)
    arguments = norm_arguments(norm) | {"x": _grouped(x, lanes), "relu": 0}
    arguments["y"] = torch.empty_like(arguments["x"])
    library.call("ft_normalize", *(arguments[name] for name in ARGUMENTS["ft_normalize"]))
    wanted = F.batch_norm(x.double(), None, None, torch.ones(3).double(), torch.ones(3).double(),
        training=True)  # fmt: skip
    assert error(arguments["y"], _grouped(wanted, lanes)) < 1e-4


# ---- the checks against their own rules, written down once more


def _numbers(*usual):
    odd = [0, -1, 2**24, 2**30, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)]
    return st.one_of(st.integers(usual[0], usual[1]), st.sampled_from(odd))


@st.composite
def _layers_and_maps(draw):
    """Mostly possible ones, with a number or two that is not."""
    usual = [(1, 6), (1, 6), (1, 5), (1, 5), (1, 3), (1, 3), (0, 3), (0, 3),
        (1, 3), (1, 1), (1, 12), (1, 12)]  # fmt: skip
    numbers = [draw(st.integers(*limits)) for limits in usual]
    numbers[9] = draw(st.sampled_from([1, vector(), 2 * vector(), vector() // 2, 13 * vector()]))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, 11))
        numbers[place] = draw(_numbers(*usual[place]))
    return LayerStruct(*numbers[:8]), MapsStruct(*numbers[8:])


def _is_possible(layer, maps, one_lane):
    sides = (layer.kernel_h, layer.kernel_w)
    strides, padding = (layer.stride_h, layer.stride_w), (layer.pad_h, layer.pad_w)
    channels = (layer.inputs, layer.outputs)
    if not all(1 <= n <= 2**24 for n in channels) or not all(1 <= n <= 64 for n in sides):
        return False
    if not all(1 <= n <= 8 for n in strides) or not all(0 <= n <= 2**30 for n in padding):
        return False
    if channels[0] * channels[1] * sides[0] * sides[1] >= 2**31:
        return False
    if not 1 <= maps.groups < 2**31 or min(maps.height, maps.width) < 1:
        return False
    whole = maps.lanes % vector() == 0 and 1 <= maps.lanes // vector() <= 12
    if not (whole or (one_lane and maps.lanes == 1)):
        return False
    padded = [n + 2 * p for n, p in zip((maps.height, maps.width), padding, strict=True)]
    out = [(n - k) // s + 1 for n, k, s in zip(padded, sides, strides, strict=True)]
    if min(n - k for n, k in zip(padded, sides, strict=True)) < 0 or max(padded) > 2**30:
        return False
    read, written = maps.height * maps.width * maps.lanes, out[0] * out[1] * maps.lanes
    total = maps.groups * max(read * layer.inputs, written * layer.outputs)
    return max(read, written) <= 2**30 and total <= 2**46


@given(_layers_and_maps(), st.sampled_from(WITH_LAYER), st.integers(1, 3))
@EXAMPLES
def test_a_call_is_refused_if_and_only_if_its_numbers_are_not_possible(
    instructions, numbers, function, threads
):
    layer, maps = numbers
    possible = _is_possible(layer, maps, one_lane="gradient" not in function)
    if not possible:
        assume(function != "ft_prepare" or maps.groups != 0)
        change = {"layer": layer, "maps": maps, "nonzeros": 0, "plan": None, "threads": threads}
        with pytest.raises(FreeTicketsError) as caught:
            make(function, change)
        assert "there is no plan" not in str(caught.value)
        return
    geometry = Geometry(
        (layer.outputs, layer.inputs, layer.kernel_h, layer.kernel_w),
        (layer.stride_h, layer.stride_w),
        (layer.pad_h, layer.pad_w),
    )
    out = geometry.output_size(maps.height, maps.width)
    floats = max(maps.height * maps.width * layer.inputs, out[0] * out[1] * layer.outputs)
    assume(floats * maps.groups * maps.lanes < 2**22)  # more than that is not tried
    assume(torch.Size(geometry.shape).numel() < 2**22)
    arguments = layer_arguments(geometry, maps) | {"threads": threads}
    library.call(function, *(arguments[name] for name in ARGUMENTS[function]))
    if function == "ft_prepare":
        # What the check of entries rests on.
        offsets = arguments["entries"].view(torch.int32)[0::2]
        farthest = int(arguments["plan"][10])
        assert offsets[farthest] == offsets.max()
        assert offsets.min() >= 0


@given(
    st.tuples(_numbers(1, 40), _numbers(0, 3), _numbers(1, 40), _numbers(0, 3), _numbers(0, 50)),
    st.sampled_from(WITH_NORM),
)
@EXAMPLES
def test_a_norm_is_refused_if_and_only_if_its_numbers_are_not_possible(
    instructions, numbers, function
):
    batch, groups, lanes, channels, positions = numbers
    possible = (
        (groups > 0 and groups * lanes - lanes < batch <= groups * lanes)
        or (batch == groups == 0)
    ) and min(channels, positions) >= 0 < lanes  # fmt: skip
    possible = possible and max(groups, lanes, channels, positions, groups * lanes) < 2**31
    possible = possible and groups * lanes * channels * positions <= 2**46
    if function in WITH_VECTORS:
        possible = possible and lanes % vector() == 0 and lanes <= 16
    norm = NormStruct(*numbers)
    if not possible:
        with pytest.raises(FreeTicketsError):
            make(function, {"norm": norm, "x": None})
        return
    assume(max(1, groups * lanes * positions) * max(channels, 1) < 2**22)
    arguments = norm_arguments(norm)
    library.call(function, *(arguments[name] for name in ARGUMENTS[function]))


if __name__ == "__main__":
    library.select_instruction_set(sys.argv[1])
    for each in cases():
        print(each, flush=True)
        try:
            make(each.function, each.change)
        except FreeTicketsError:
            continue
        sys.exit(f"{Path(__file__).name}: {each} was not refused")
