"""Linear layers as PyTorch operators.

The samples are the columns of one long map, side by side in memory. `columns` leads there; the
results of a layer lie so already.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import FreeTicketsError
from . import ops
from .groups import check
from .library import Geometry, NormStruct, call, empty, lanes, layer_struct, ready
from .operator import again, differentiate, form, operator, run

_Ints = list[int]


# ---- layout


def lies_in_columns(x: Tensor, lanes: int) -> bool:
    """Whether `columns` has nothing to do, or can do nothing: lanes must not be empty."""
    batch = x.shape[0]
    return batch % lanes != 0 or batch == 0 or (x.stride() == (1, batch) and _is_aligned(x))


def _is_aligned(x: Tensor) -> bool:
    return torch.compiler.is_compiling() or x.data_ptr() % 64 == 0


@operator
def columns(x: Tensor, lanes: int) -> Tensor:
    """The same (samples, features), feature by feature in memory."""
    check(x, 2, "samples")
    batch, features = x.shape
    y = x.new_empty_strided((batch, features), (1, batch))
    whole = NormStruct(batch, 1, batch, features, 1)
    call("ft_to_groups", whole, ready(x), y, torch.get_num_threads())
    return y


@columns.register_fake
def _(x: Tensor, lanes: int) -> Tensor:
    check(x, 2, "samples")
    return x.new_empty_strided(tuple(x.shape), (1, x.shape[0]))


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    pass


def _columns_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return gradient, None  # the same numbers, wherever they lie


differentiate(columns, _keep_nothing, _columns_backward)


# ---- the layer


def linear_layer(
    x: Tensor, weights: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, geometry: Geometry,
    choose: Callable[[Tensor], int], relu: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What a layer makes of any samples (..., inputs), and these as it has read them: (N, inputs).

    Args:
        x: The samples.
        weights: The active weights, their places and their plan.
        bias: One for each output.
        geometry: The layer.
        choose: Says which directions run dense, for samples (N, inputs).
        relu: Whether ReLU follows.
    """
    outputs, inputs = geometry.shape[:2]
    flat = x.float() if x.dim() == 2 else x.float().reshape(-1, inputs)
    ways = choose(flat)
    if ways != ops.ALL and not lies_in_columns(flat, lanes()):
        flat = run(columns, flat, lanes())  # once, for the forward pass and the gradient
    y: Tensor = run(linear, flat, *weights, bias, [outputs, inputs], lanes(), ways, relu)
    y = y if x.dim() == 2 else y.reshape(*x.shape[:-1], outputs)
    return y, flat


@operator
def linear(
    x: Tensor, values: Tensor, indices: Tensor, plan: Tensor, bias: Tensor | None, shape: _Ints,
    lanes: int, ways: int, relu: bool,
) -> Tensor:  # fmt: skip
    """A linear layer, and ReLU if it follows, whose weight is `values` at `indices`, else zero.

    The result lies in memory feature by feature, which is how the next sparse layer wants it.
    """
    _check(x, shape[1], lanes, "inputs")
    ops.check_weights(values, indices, bias, shape)
    if ops.is_dense(ways, ops.FORWARD, x):
        with ops.full_precision():
            y = F.linear(x, ops.put(values, indices, shape), bias)
            return y.relu_() if relu else y
    read = _rows(x, lanes)
    y, target = _new_columns(x, read, shape[0])
    given = (read, ready(values), plan, values.numel(), bias, relu, target)
    _compute("ft_linear", shape, read, given)
    return _filled(y, target)


@operator
def linear_backward(
    x: Tensor, y: Tensor | None, gradient: Tensor, values: Tensor, indices: Tensor, plan: Tensor,
    wanted: list[bool], shape: _Ints, lanes: int, ways: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `linear` for x, values and bias; those that are not wanted are empty.

    It takes the result y if ReLU was a part of it.
    """
    _check_backward(x, y, gradient, shape, lanes)
    ops.check_weights(values, indices, None, shape)
    directions = (ops.INPUT_GRADIENT, ops.WEIGHT_GRADIENT)
    ours = [w and not ops.is_dense(ways, d, x) for w, d in zip(wanted[:2], directions, strict=True)]
    ours.append(wanted[2] and any(ours))
    theirs = [w and not our for w, our in zip(wanted, ours, strict=True)]
    dx, dvalues, dbias = (x.new_empty(0) for _ in wanted)
    if any(theirs):
        if y is not None:
            gradient, y = gradient.masked_fill(y <= 0, 0), None
        with ops.full_precision():
            if theirs[0]:
                dx = gradient @ ops.put(values, indices, shape)
            if theirs[1]:
                dvalues = (gradient.t() @ x).flatten().index_select(0, indices)
            if theirs[2]:
                dbias = gradient.sum(0)
    if any(ours):
        inputs = _rows(x, lanes) if ours[1] else None
        result, read = None if y is None else _rows(y, lanes), _rows(gradient, lanes)
        memory: list[Tensor | None] = [None] * 3
        if ours[0]:
            dx, memory[0] = _new_columns(gradient, read, shape[1])
        if ours[1]:
            dvalues = memory[1] = values.new_empty(values.shape)
        if ours[2]:
            dbias = memory[2] = values.new_empty(shape[0])
        given = (inputs, result, read, ready(values), plan, values.numel(), *memory)
        _compute("ft_linear_backward", shape, read, given)
        dx = dx if memory[0] is None else _filled(dx, memory[0])
    return dx, dvalues, dbias


@linear.register_fake
def _(
    x: Tensor, values: Tensor, indices: Tensor, plan: Tensor, bias: Tensor | None, *settings: Any
) -> Tensor:
    shape, lanes, ways, _ = settings
    _check(x, shape[1], lanes, "inputs")
    ops.check_weights(values, indices, bias, shape)
    return _fake_rows(x, shape[0], lanes, bool(ways & ops.FORWARD))


@linear_backward.register_fake
def _(
    x: Tensor, y: Tensor | None, gradient: Tensor, values: Tensor, indices: Tensor, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, wanted, shape, lanes, ways = settings
    _check_backward(x, y, gradient, shape, lanes)
    ops.check_weights(values, indices, None, shape)
    dx = _fake_rows(gradient, shape[1], lanes, bool(ways & ops.INPUT_GRADIENT))
    found = (dx, values.new_empty(values.shape), values.new_empty(shape[0]))
    return tuple(t if w else x.new_empty(0) for t, w in zip(found, wanted, strict=True))  # type: ignore[return-value]


def _keep_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, values, indices, plan, bias, *ctx.settings = inputs
    ctx.save_for_backward(x, values, indices, plan, bias, output if inputs[-1] else None)


def _linear_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, values, indices, plan, bias, y = ctx.saved_tensors
    for_x, for_values, _, _, for_bias = ctx.needs_input_grad[:5]
    *settings, relu = ctx.settings
    wanted = [for_x, for_values, for_bias]
    if torch.is_grad_enabled():
        reference = partial(_linear_reference, indices, settings[0], relu)
        given = (x, values) if bias is None else (x, values, bias)
        found = again(reference, given, wanted[: len(given)], gradient)
        dx, dvalues, dbias = (*found, None) if bias is None else found
    else:
        backward = form(ctx, linear_backward)
        found = backward(x, y, gradient, values, indices, plan, wanted, *settings)
        dx, dvalues, dbias = (g if w else None for g, w in zip(found, wanted, strict=True))
    return dx, dvalues, None, None, dbias, None, None, None, None


def _linear_reference(
    indices: Tensor, shape: _Ints, relu: bool, x: Tensor, values: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The layer by PyTorch's own operations."""
    y = F.linear(x, ops.scatter(values, indices, shape), bias)
    return F.relu(y) if relu else y


differentiate(linear, _keep_linear, _linear_backward)


# ---- what is refused


def _check(x: Tensor, features: int, lanes: int, what: str) -> None:
    check(x, 2, "a linear layer")
    if x.shape[1] != features:
        raise FreeTicketsError(f"a linear layer of {features} {what} can't take {x.shape[1]}")
    if lanes < 1:
        raise FreeTicketsError(f"groups have at least one lane, not {lanes}")


def _check_backward(
    x: Tensor, y: Tensor | None, gradient: Tensor, shape: _Ints, lanes: int
) -> None:
    _check(x, shape[1], lanes, "inputs")
    for of_outputs in (gradient, gradient if y is None else y):
        _check(of_outputs, shape[0], lanes, "outputs")
        if x.shape[0] != (count := of_outputs.shape[0]):
            raise FreeTicketsError(f"{x.shape[0]} samples can't have gradients of {count}")


# ---- forms of a tensor


def _compute(function: str, shape: _Ints, rows: Tensor, arguments: tuple[object, ...]) -> None:
    """Calls a kernel for samples that lie in `rows`."""
    layer = layer_struct(Geometry((shape[0], shape[1], 1, 1)))
    call(function, layer, rows.shape[1], *arguments, torch.get_num_threads())


def _rows(x: Tensor, lanes: int) -> Tensor:
    """(N, features) as (features, N), N rounded up to lanes; no copy if it lies so already."""
    batch, features = x.shape
    samples = -(-batch // lanes) * lanes
    # A part of a larger batch may lie so too, but with other samples where empty lanes must be.
    if batch == samples and x.stride() == (1, batch) and _is_aligned(x):
        return x.t()
    result = empty(features, samples)
    whole = NormStruct(batch, 1, samples, features, 1)
    call("ft_to_groups", whole, ready(x), result, torch.get_num_threads())
    return result


def _new_columns(x: Tensor, rows: Tensor, features: int) -> tuple[Tensor, Tensor]:
    """New (N, features) for the samples x, side by side in memory, and the memory to write it to.

    It is the same memory if no lane is empty. (Not a view of it: autograd would not let the next
    module work in place.)
    """
    batch, samples = x.shape[0], rows.shape[1]
    if batch == samples:
        result = x.new_empty_strided((batch, features), (1, samples))
        return result, result
    return x.new_empty((batch, features)), x.new_empty((features, samples))


def _filled(result: Tensor, memory: Tensor) -> Tensor:
    return result if memory is result else result.copy_(memory[:, : result.shape[0]].t())


def _fake_rows(x: Tensor, features: int, lanes: int, dense: bool) -> Tensor:
    batch = x.shape[0]
    if dense or batch % lanes:
        return x.new_empty((batch, features))
    return x.new_empty_strided((batch, features), (1, batch))
