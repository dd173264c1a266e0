"""What the compiled functions refuse: no number ends the process or leads beyond the memory.

Run as a program, this file makes all of the calls that must be refused. The tests do that first, in
a process of its own: a check that is missing ends that one, and is named.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, ops
from freetickets.kernels.library import Geometry, HaloStruct, LayerStruct, MapsStruct, NormStruct

from .native_calls import (
    ARGUMENTS,
    WITH_LAYER,
    WITH_NORM,
    WITH_SAMPLES,
    WITH_VECTORS,
    call,
    computed,
    halo_arguments,
    in_own_process,
    layer_arguments,
    norm_arguments,
)

GEOMETRY = Geometry((5, 4, 3, 2), (2, 1), (1, 0))
SIZE = (6, 7)
LINEAR = Geometry((5, 24, 1, 1))  # as many weights as the convolution
BATCH_LEFT = 3  # empty lanes
VECTORS = {"baseline": 4, "avx2": 8, "avx512": 16}  # floats
DIRECTIONS = ("ft_forward", "ft_input_gradient", "ft_weight_gradient")

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
    return VECTORS[library.instruction_set()]


def right(function):
    """The arguments of a call that works."""
    lanes = library.lanes()
    if function in WITH_NORM:
        return norm_arguments(NormStruct(2 * lanes - BATCH_LEFT, 2, lanes, 4, 42))
    if function == "ft_halo":
        return halo_arguments(HaloStruct(2, lanes, 3, 4, 5, 2, 2, 1, 2, 3, 0))
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
    call(function, arguments)


# ---- the calls that must be refused


def each(names, *numbers):
    """Each of these arguments with each of these numbers."""
    return [{name: number} for name in names.split() for number in numbers]


def cases():
    """All of them, for the instruction set that is selected."""
    for functions, changes, words in (
        *_numbers_of_layers(), *_numbers_of_norms(), *_numbers_of_halos(), *_plans()
    ):  # fmt: skip
        for function in (functions,) if isinstance(functions, str) else functions:
            for change in changes:
                yield Case(function, change, words)
    yield from _memory()


def _numbers_of_layers():
    lanes, width = library.lanes(), vector()
    layers, one = ("ft_plan", *WITH_LAYER, *WITH_SAMPLES), each("maps.groups", 0)
    whole = (0, -1, -lanes, 2, width - 1, width + 1, 13 * width, *HUGE)
    square = {"maps.height": 2**16, "maps.width": 2**16}  # 0 in 32 bits
    padded = {"layer.pad_h": 2**14, "layer.pad_w": 2**14, "plan": None}
    point = {"maps.height": 1, "maps.width": 1, "plan": None}
    huge = {"maps.groups": 2**31 - 1, "maps.height": 2**12, "maps.width": 2**12}
    yield from (
        (layers, each("layer.inputs layer.outputs", 0, -1, 2**24 + 1, *HUGE),
         "channels must be from 1 to 2\\^24"),
        (layers, each("layer.kernel_h layer.kernel_w", 0, -1, 65, *HUGE),
         "kernel must be from 1 to 64"),
        (layers, each("layer.stride_h layer.stride_w", 0, -1, 9, *HUGE),
         "strides must be from 1 to 8"),
        (layers, each("layer.pad_h layer.pad_w", -1, 2**30 + 1, *HUGE),
         "padding must be from 0 to 2\\^30"),
        (layers, [{"layer.inputs": 2**20, "layer.outputs": 2**20}],
         "not have more than 2\\^31 - 1 numbers"),
        (layers, [{"layer": None}], "there is no layer"),
        (layers, each("nonzeros", -1, 5 * 4 * 3 * 2 + 1, *HUGE),
         "0 non-zeros or more, and not more than weights"),
        (WITH_LAYER, [{"maps": None}], "there are no maps"),
        (WITH_LAYER, each("maps.groups", -1, *HUGE), "groups must be from 1 to 2\\^31 - 1"),
        ([name for name in WITH_LAYER if name != "ft_prepare"], one, "groups must be from 1"),
        (WITH_LAYER, each("maps.lanes", *whole), "lanes must be from 1 to 12 vectors"),
        (DIRECTIONS[1:], each("maps.lanes", 1), "lanes must be from 1 to 12 vectors"),
        (WITH_LAYER, each("maps.height maps.width", 0, -1, -(2**63)), "one position at least"),
        (WITH_LAYER, [*each("maps.height maps.width", 2**30, 2**30 + 1, 2**62), square, padded],
         "not have more than 2\\^30 floats"),
        (WITH_LAYER, [{**point, f"layer.kernel_{axis}": 64} for axis in "hw"],
         "not be smaller than the kernel"),
        (WITH_LAYER, [huge], "larger than any memory"),
        (WITH_SAMPLES, each("samples", 0, -lanes, 1, lanes - 1, lanes + 1, HUGE[1]),
         "samples must fill whole groups of lanes"),
        (WITH_SAMPLES, each("samples", 2**40, 2**62), "maps"),
        ((*WITH_LAYER, *WITH_SAMPLES, *WITH_NORM), each("threads", 0, -1, -(2**31)),
         "one thread at least"),
    )  # fmt: skip


def _numbers_of_norms():
    lanes, width = library.lanes(), vector()
    batches = each("norm.batch", 0, -1, lanes - 1, lanes, 2 * lanes + 1, *HUGE)
    many = {"norm.groups": 2**20, "norm.lanes": 2**20, "norm.batch": 2**40}
    odd = (1, 2, width - 1, width + 1, 17, 32, 64)
    yield from (
        (WITH_NORM, [{"norm": None}], "there are no maps"),
        (WITH_NORM, [*batches, *each("norm.groups", 0, 1, 3)], "the batch must fill its groups"),
        (WITH_NORM, each("norm.groups", -1, *HUGE), "groups must be from 0 to"),
        (WITH_NORM, each("norm.lanes", 0, -1, *HUGE), "lanes must be from 1 to"),
        (WITH_NORM, each("norm.channels norm.positions", -1, *HUGE),
         "channels and positions must be from 0"),
        (WITH_NORM, [many], "a batch must not have more than 2\\^31 - 1 samples"),
        (WITH_NORM, [{"norm.channels": 2**30, "norm.positions": 2**30}], "larger than any memory"),
        (WITH_VECTORS, [{"norm.lanes": number, "norm.batch": 2 * number} for number in odd],
         "lanes must be whole vectors"),
    )  # fmt: skip


def _numbers_of_halos():
    lanes, square = library.lanes(), {"halo.height": 2**16, "halo.width": 2**16}
    sizes = each("halo.height halo.width", 0, -1, 2**30, *HUGE)
    borders = each("halo.top halo.bottom halo.left halo.right", 2**30)
    many = {"halo.groups": 2**31 - 1, "halo.channels": 2**24}
    yield from (
        ("ft_halo", [{"halo": None}], "there are no maps"),
        ("ft_halo", each("halo.groups halo.channels", 0, -1, *HUGE), "groups, and from 1 to 2"),
        ("ft_halo", each("halo.lanes", 0, -4, 2, 17, 20, *HUGE), "lanes must be 4, 8, 12 or 16"),
        ("ft_halo", each("halo.grid_h halo.grid_w", 0, -1, 3, lanes, *HUGE), "fill the lanes"),
        ("ft_halo", [*sizes, *borders, square], "from 1 to 2\\^30 floats"),
        ("ft_halo", each("halo.top halo.bottom halo.left halo.right", -1, 2**30 + 1, *HUGE),
         "borders must be from 0 to 2\\^30"),
        ("ft_halo", [many], "larger than any memory"),
        ("ft_halo", each("threads", 0, -1, -(2**31)), "one thread at least"),
    )  # fmt: skip


def _plans():
    """What was made for another layer, for maps of another size, or in another layout."""
    layer, count = library.layer_struct(GEOMETRY), right("ft_forward")["nonzeros"]
    # Numbers that a layer may have, but not the one that the plan was made for.
    others = [{f"layer.{name}": getattr(layer, name) + 1} for name, *_ in layer._fields_]
    for other in (GEOMETRY._replace(shape=(4, 5, 3, 2)), GEOMETRY._replace(stride=(1, 2))):
        others.append({"plan": ops.make_plan(torch.arange(count, dtype=torch.int32), other)})
    yield WITH_LAYER, others, "plan was made for another layer"
    yield WITH_LAYER, each("nonzeros", 0, 1), "another number of non-zeros"
    yield WITH_LAYER, each("plan", None, torch.zeros(16, dtype=torch.int32)), "there is no plan"
    yield WITH_SAMPLES, [{"layer.inputs": 25}], "plan was made for another layer"
    indices = right("ft_linear")["indices"]
    changes = [
        {"layer": library.layer_struct(other), "plan": ops.make_plan(indices, other)}
        for other in (LINEAR._replace(stride=(1, 2)), LINEAR._replace(padding=(0, 1)))
    ]
    yield WITH_SAMPLES, changes, "this is not a linear layer"
    for words, lists in (
        ("must be ascending, from 0 on", ([-1, 0], [3, 2], [2, 2], [0, -(2**31)], [5, 4, 120])),
        ("beyond the end of the weight", ([120], [0, 119, 2**31 - 1])),
    ):
        made = [torch.tensor(numbers, dtype=torch.int32) for numbers in lists]
        yield "ft_plan", [{"indices": t, "nonzeros": t.numel()} for t in made], words
    mine = right("ft_forward_fused")["entries"]
    usual, most = library.lanes(), 12 * vector()
    for lanes, *size in ((usual, 1, 90), (usual, 90, 2), (1, *SIZE), (most, *SIZE)):
        entries = layer_arguments(GEOMETRY, MapsStruct(1, lanes, *size))["entries"]
        assert not entries.equal(mine), "these are cut into tiles of the same size"
        yield "ft_forward_fused", [{"entries": entries}], "were prepared for other maps"


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
        for function in ("ft_forward_fused", "ft_halo"):
            yield Case(function, {name: None}, "a factor needs a shift, and a shift a factor")


# ---- tests


@pytest.fixture(scope="module", autouse=True)
def _survived(instructions):
    """Has a process of its own make all of these calls."""
    in_own_process(__name__, instructions)


def test_wrong_numbers_are_refused_and_the_words_say_why(instructions):
    for case in cases():
        with pytest.raises(FreeTicketsError, match=case.words) as caught:
            make(case.function, case.change)
        said = str(caught.value)
        assert said.startswith(f"{case.function}: "), case
        assert "\n" not in said


@pytest.mark.parametrize("function", ARGUMENTS)
def test_the_same_calls_with_right_numbers_work(instructions, function):
    """Also with more threads than a machine has, and without what need not be given."""
    make(function, {"threads": 2**31 - 1} if function in (*WITH_LAYER, *WITH_NORM) else {})
    if function == "ft_forward_fused":
        make(function, dict.fromkeys(_OPTIONAL[0]))


def test_a_refusal_names_the_numbers_and_the_impossible_has_no_size():
    with pytest.raises(FreeTicketsError) as caught:
        make("ft_forward", {"layer.stride_w": 9})
    assert str(caught.value) == (
        "ft_forward: strides must be from 1 to 8 (inputs 4, outputs 5, kernel_h 3, kernel_w 2, "
        "stride_h 2, stride_w 9, pad_h 1, pad_w 0; "
        f"groups 2, lanes {library.lanes()}, height 6, width 7)"
    )
    size, new = library.native().ft_plan_size, library.native().ft_new_tensor
    layer = library.layer_struct(GEOMETRY)
    assert size(layer, 120) > size(layer, 0) > 16
    assert size(layer, -1) == size(layer, 121) == size(None, 0) == 0
    assert size(changed(layer, stride_h=0), 1) == size(changed(layer, inputs=2**40), 1) == 0
    for shape in ([0], [5, 0, 3], [-1], [-4, -4], [2**62], [2**32, 2**32], [2**63 - 1] * 8):
        assert new((ctypes.c_int64 * len(shape))(*shape), len(shape)) is None
    ones = (ctypes.c_int64 * 9)(*[1] * 9)
    assert new(ones, 9) is new(ones, -1) is new(None, 1) is None
    assert library.native().ft_select(None) == 0


def test_where_there_is_nothing_to_do_no_memory_is_needed(instructions):
    nothing = dict.fromkeys(("x", "y", "dx", "dy"))
    for function in WITH_NORM:
        make(function, {"norm.batch": 0, "norm.groups": 0, **nothing})
        make(function, {"norm.positions": 0, **nothing})
    make("ft_prepare", {"maps.groups": 0})  # entries suit any number of groups
    plan = ops.make_plan(torch.empty(0, dtype=torch.int32), GEOMETRY)
    none = dict.fromkeys(("values", "dvalues", "entries", "indices"))
    for function in (*WITH_LAYER, "ft_plan"):
        make(function, {"plan": plan, "size": plan.numel(), "nonzeros": 0, **none})


def test_entries_of_another_instruction_set_are_refused(refused, instructions):
    arguments = layer_arguments(GEOMETRY, MapsStruct(1, 16, 90, 90))
    call("ft_forward_fused", arguments)
    for other in VECTORS:
        try:
            library.select_instruction_set(other)
        except FreeTicketsError:
            continue
        if other != instructions:
            refused("or for another instruction set", call, "ft_forward_fused", arguments)
    library.select_instruction_set(instructions)


# ---- every number that is not refused gives PyTorch's results


def _grouped(x, lanes):
    """(N, C, H, W) in groups, by PyTorch."""
    return x.unflatten(0, (-1, lanes)).permute(0, 2, 3, 4, 1).contiguous()


def _plain(x):
    """Undoes `_grouped`, in double precision."""
    return x.permute(0, 4, 1, 2, 3).flatten(0, 1).double()


def _check_layer(error, geometry, maps):
    given = layer_arguments(geometry, maps, density=0.3)
    # What the check of entries rests on.
    offsets = given["entries"].view(torch.int32)[0::2]
    assert offsets[int(given["plan"][10])] == offsets.max()
    assert offsets.min() >= 0
    (y,), (dx,), (dvalues,) = (computed(function, given) for function in DIRECTIONS)
    weight = ops.scatter(given["values"], given["indices"], list(geometry.shape)).double()
    x, dy = _plain(given["x"]), _plain(given["dy"])
    wanted = F.conv2d(x, weight, None, geometry.stride, geometry.padding)
    assert error(_plain(y), wanted) < 1e-4
    # The gradients are those of a linear map.
    inner, scale = float((wanted * dy).sum()), float(wanted.norm() * dy.norm())
    assert abs(float((x * _plain(dx)).sum()) - inner) < 1e-5 * scale
    assert abs(float((given["values"].double() * dvalues.double()).sum()) - inner) < 1e-5 * scale


@pytest.mark.parametrize("vectors", range(1, 13))
def test_all_lanes_that_are_not_refused_give_pytorchs_results(instructions, error, vectors):
    lanes = vectors * vector()
    _check_layer(error, GEOMETRY, MapsStruct(2, lanes, 11, 9))
    if lanes > 16:
        return
    given = norm_arguments(NormStruct(2 * lanes, 2, lanes, 3, 35), seed=vectors) | {"relu": 0}
    y, *_ = computed("ft_normalize", given)
    x, y = (_plain(each.view(2, 3, 5, 7, lanes)) for each in (given["x"], y))
    parameters = given["weight"].double(), given["bias"].double()
    assert error(y, F.batch_norm(x, None, None, *parameters, training=True)) < 1e-4


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
    _check_layer(error, geometry, MapsStruct(1, vector(), *size))


def test_the_largest_maps_layers_and_batches_are_not_refused(refused):
    """They pass the checks up to the last one: the plan, or the memory, that is missing."""
    lanes = library.lanes()
    change = {"layer": LayerStruct(1, 1, 1, 1, 1, 1, 0, 0), "nonzeros": 0, "plan": None}
    for lane, height, width in (
        (1, 1 << 15, 1 << 15), (1, 1, 1 << 30), (lanes, 1 << 13, (1 << 17) // lanes)
    ):  # fmt: skip
        for more, words in ((0, "there is no plan"), (1, "not have more than 2\\^30 floats")):
            maps = MapsStruct(1, lane, height, width + more)
            refused(words, make, "ft_forward", change | {"maps": maps})
    for numbers in ((1 << 24, 127, 1, 1, 1, 1, 0, 0), (1, 1, 64, 64, 8, 8, 1 << 30, 0)):
        with pytest.raises(FreeTicketsError, match="there is no memory for the plan"):
            make("ft_plan", {"layer": LayerStruct(*numbers), "nonzeros": 1, "plan": None})
    norm = NormStruct((1 << 31) - 1, 1, (1 << 31) - 1, 1 << 15, 1)
    refused("there is no memory for maps", make, "ft_to_groups", {"norm": norm, "x": None})


if __name__ == "__main__":
    library.select_instruction_set(sys.argv[1])
    for case in cases():
        print(case, flush=True)
        try:
            make(case.function, case.change)
        except FreeTicketsError:
            continue
        sys.exit(f"{Path(__file__).name}: {case} was not refused")
