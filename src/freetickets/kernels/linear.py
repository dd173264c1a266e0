"""Linear layers as PyTorch operators.

The samples are the columns of one long map, side by side in memory. `columns` leads there; the
results of a layer lie so already.
"""

from __future__ import annotations

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

GRADIENTS = ops.INPUT_GRADIENT | ops.WEIGHT_GRADIENT


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
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    geometry: Geometry,
    choose: Callable[[Tensor], int],
) -> tuple[Tensor, Tensor]:
    """What a layer makes of any samples (..., inputs), and these as it has read them: (N, inputs).

    Args:
        x: The samples.
        weights: The active weights, their places and their plan.
        bias: One for each output.
        geometry: The layer.
        choose: Says which directions run dense, for samples (N, inputs).
    """
    outputs, inputs = geometry.shape[:2]
    flat = x.float() if x.dim() == 2 else x.float().reshape(-1, inputs)
    ways = choose(flat)
    if ways != ops.ALL and not lies_in_columns(flat, lanes()):
        flat = run(columns, flat, lanes())  # once, for the forward pass and the gradient
    y: Tensor = run(linear, flat, *weights, bias, [outputs, inputs], lanes(), ways)
    y = y if x.dim() == 2 else y.reshape(*x.shape[:-1], outputs)
    return y, flat


@operator
def linear(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    plan: Tensor,
    bias: Tensor | None,
    shape: _Ints,
    lanes: int,
    ways: int,
) -> Tensor:
    """A linear layer whose weight of `shape` is `values` at `indices` and zero elsewhere.

    The result lies in memory feature by feature, which is how the next sparse layer wants it.
    """
    _check(x, shape[1], lanes, "inputs")
    ops.check_weights(values, indices, bias, shape)
    if ops.is_dense(ways, ops.FORWARD, x):
        with ops.full_precision():
            return F.linear(x, ops.scatter(values, indices, shape), bias)
    read = _rows(x, lanes)
    y, target = _new_columns(x, read, shape[0])
    _compute("ft_linear", shape, read, (read, ready(values), plan, values.numel(), bias, target))
    return _filled(y, target)


@operator
def linear_input_gradient(
    gradient: Tensor,
    values: Tensor,
    indices: Tensor,
    plan: Tensor,
    shape: _Ints,
    lanes: int,
    ways: int,
) -> Tensor:
    """The gradient of `linear` for its inputs."""
    _check(gradient, shape[0], lanes, "outputs")
    ops.check_weights(values, indices, None, shape)
    if ops.is_dense(ways, ops.INPUT_GRADIENT, gradient):
        with ops.full_precision():
            return gradient @ ops.scatter(values, indices, shape)
    read = _rows(gradient, lanes)
    result, target = _new_columns(gradient, read, shape[1])
    given = (None, read, ready(values), plan, values.numel(), target, None, None)
    _compute("ft_linear_backward", shape, read, given)
    return _filled(result, target)


@operator
def linear_weight_gradient(
    x: Tensor,
    gradient: Tensor,
    indices: Tensor,
    plan: Tensor,
    shape: _Ints,
    lanes: int,
    ways: int,
) -> Tensor:
    """The gradient of `linear` for its values."""
    _check_gradient(x, gradient, shape, lanes)
    if ops.is_dense(ways, ops.WEIGHT_GRADIENT, x):
        with ops.full_precision():
            return (gradient.t() @ x).flatten().index_select(0, indices)
    inputs, outputs = _rows(x, lanes), _rows(gradient, lanes)
    result = x.new_empty(indices.numel())
    given = (inputs, outputs, None, plan, indices.numel(), None, result, None)
    _compute("ft_linear_backward", shape, inputs, given)
    return result


@linear.register_fake
def _(
    x: Tensor, values: Tensor, indices: Tensor, plan: Tensor, bias: Tensor | None, *settings: Any
) -> Tensor:
    shape, lanes, ways = settings
    _check(x, shape[1], lanes, "inputs")
    ops.check_weights(values, indices, bias, shape)
    return _fake_rows(x, shape[0], lanes, bool(ways & ops.FORWARD))


@linear_input_gradient.register_fake
def _(gradient: Tensor, values: Tensor, indices: Tensor, plan: Tensor, *settings: Any) -> Tensor:
    shape, lanes, ways = settings
    _check(gradient, shape[0], lanes, "outputs")
    ops.check_weights(values, indices, None, shape)
    return _fake_rows(gradient, shape[1], lanes, bool(ways & ops.INPUT_GRADIENT))


@linear_weight_gradient.register_fake
def _(x: Tensor, gradient: Tensor, indices: Tensor, plan: Tensor, *settings: Any) -> Tensor:
    _check_gradient(x, gradient, *settings[:2])
    return x.new_empty(indices.numel())


def _linear_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, values, indices, plan = ctx.saved_tensors
    for_x, for_values, _, _, for_bias = ctx.needs_input_grad[:5]
    _, lanes, ways = ctx.settings
    dx = dvalues = dbias = None
    if torch.is_grad_enabled():
        reference = partial(_linear_reference, indices, ctx.settings[0])
        dx, dvalues = again(reference, (x, values), (for_x, for_values), gradient)
        for_x = for_values = False
    elif ways & GRADIENTS != GRADIENTS and not lies_in_columns(gradient, lanes):
        gradient = form(ctx, columns)(gradient, lanes)
    if for_x:
        dx = form(ctx, linear_input_gradient)(gradient, values, indices, plan, *ctx.settings)
    if for_values:
        dvalues = form(ctx, linear_weight_gradient)(x, gradient, indices, plan, *ctx.settings)
    if for_bias:
        dbias = gradient.sum(0)
    return dx, dvalues, None, None, dbias, None, None, None


def _linear_reference(indices: Tensor, shape: _Ints, x: Tensor, values: Tensor) -> Tensor:
    """The layer, without its bias, by PyTorch's own operations."""
    return F.linear(x, ops.scatter(values, indices, shape))


differentiate(linear, ops.keep_inputs, _linear_backward)


# ---- what is refused


def _check(x: Tensor, features: int, lanes: int, what: str) -> None:
    check(x, 2, "a linear layer")
    if x.shape[1] != features:
        raise FreeTicketsError(f"a linear layer of {features} {what} can't take {x.shape[1]}")
    if lanes < 1:
        raise FreeTicketsError(f"groups have at least one lane, not {lanes}")


def _check_gradient(x: Tensor, gradient: Tensor, shape: _Ints, lanes: int) -> None:
    _check(x, shape[1], lanes, "inputs")
    _check(gradient, shape[0], lanes, "outputs")
    if x.shape[0] != gradient.shape[0]:
        raise FreeTicketsError(f"{x.shape[0]} samples can't have gradients of {gradient.shape[0]}")


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
