"""Convolutions as PyTorch operators: with shapes known to the compiler, and with gradients.

Maps come and go in groups (groups, channels, height, width, lanes): see `groups`.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from ..errors import FreeTicketsError
from . import winograd
from .groups import as_groups, as_samples, check, check_groups, check_lanes, from_groups, to_groups
from .library import Geometry, call, compute, empty, layer_struct, native, ready
from .operator import again, differentiate, form, operator

# Which directions run dense, by PyTorch's kernels: bits of the operators' argument `ways`.
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, ALL = 1, 2, 4, 7
# By so much the bit of a direction is shifted if that runs in Winograd's way.
WINOGRAD = 3

_Ints = list[int]


def make_plan(indices: Tensor, geometry: Geometry) -> Tensor:
    """Sorts a layer's non-zeros into the orders in which the kernels visit them.

    Args:
        indices: Their places in the flattened weight, ascending, as 32-bit integers.
        geometry: The layer.
    """
    layer, count = layer_struct(geometry), indices.numel()
    plan = torch.empty(native().ft_plan_size(layer, count), dtype=torch.int32)
    call("ft_plan", layer, ready(indices), count, plan, plan.numel())
    return plan


# ---- convolution


@operator
def conv2d(
    x: Tensor, values: Tensor, indices: Tensor, plan: Tensor, bias: Tensor | None, shape: _Ints,
    stride: _Ints, padding: _Ints, ways: int,
) -> Tensor:  # fmt: skip
    """A convolution whose weight of `shape` is `values` at `indices` and zero elsewhere."""
    geometry = _geometry(shape, stride, padding)
    result_shape = _result_shape(x, geometry)
    check_weights(values, indices, bias, shape)
    if by_winograd(ways, FORWARD, x):
        weight = winograd.transform(put(values, indices, shape), geometry)
        return winograd.convolve(x, weight, geometry, bias)
    if is_dense(ways, FORWARD, x):
        with full_precision():
            weight = put(values, indices, shape)
            return _grouped(F.conv2d(_plain(x), weight, bias, geometry.stride, geometry.padding), x)
    x = ready(x)
    y = empty(*result_shape)
    compute("ft_forward", geometry, x, x, ready(values), plan, values.numel(), bias, y)
    return y


class Scaling(NamedTuple):
    """relu?(x * factor + shift), channel by channel: what a BatchNorm does to its input."""

    factor: Tensor
    shift: Tensor
    relu: bool


def fused_conv2d(
    x: Tensor, values: Tensor, plan: Tensor, geometry: Geometry, bias: Tensor | None = None,
    residual: Tensor | None = None, relu: bool = False, entries: Tensor | None = None,
    scaling: Scaling | None = None,
) -> Tensor:  # fmt: skip
    """The sparse forward pass: relu?(convolution + bias + residual).

    Args:
        x: Maps (groups, channels, height, width, lanes).
        values: The active weights.
        plan: Their plan.
        geometry: The layer.
        bias: One for each output.
        residual: Maps like the result.
        relu: Whether ReLU follows.
        entries: What `prepare` made of the values for maps of this size.
        scaling: What is done to x first.
    """
    x = ready(x)
    y = empty(*_result_shape(x, geometry))
    if residual is not None and residual.shape != y.shape:
        raise FreeTicketsError(
            f"maps of {tuple(residual.shape)} can't be added to maps of {tuple(y.shape)}"
        )
    if y.numel() == 0:
        return y
    if entries is None:
        entries = prepare(x, values, plan, geometry)
    compute(
        "ft_forward_fused", geometry, x, x, entries, plan, entries.numel(),
        *(scaling or (None, None, False)), bias, None if residual is None else ready(residual),
        relu, y,
    )  # fmt: skip
    return y


def prepare(x: Tensor, values: Tensor, plan: Tensor, geometry: Geometry) -> Tensor:
    """Weights that no longer change, in the form that the forward pass streams through."""
    entries = torch.empty(values.numel(), dtype=torch.int64)
    compute("ft_prepare", geometry, x, ready(values), plan, values.numel(), entries)
    return entries


@operator
def conv2d_input_gradient(
    gradient: Tensor, values: Tensor, indices: Tensor, plan: Tensor, size: _Ints, shape: _Ints,
    stride: _Ints, padding: _Ints, ways: int,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` for maps of this size (height, width)."""
    geometry = _geometry(shape, stride, padding)
    result_shape = _source_shape(gradient, geometry, size)
    check_weights(values, indices, None, shape)
    if by_winograd(ways, INPUT_GRADIENT, gradient):
        return winograd.input_gradient(gradient, put(values, indices, shape), geometry)
    if is_dense(ways, INPUT_GRADIENT, gradient):
        with full_precision():
            weight = put(values, indices, shape)
            wanted = [gradient.shape[0] * gradient.shape[4], shape[1], *size]
            plain = conv2d_input(  # type: ignore[no-untyped-call]
                wanted, weight, _plain(gradient), stride, padding
            )
            return _grouped(plain, gradient)
    gradient = ready(gradient)
    result = empty(*result_shape)
    compute(
        "ft_input_gradient", geometry, result, gradient, ready(values), plan, values.numel(), result
    )
    return result


@operator
def conv2d_weight_gradient(
    x: Tensor, gradient: Tensor, indices: Tensor, plan: Tensor, shape: _Ints, stride: _Ints,
    padding: _Ints, ways: int,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` for its values: nothing is computed where the weight is zero."""
    geometry = _geometry(shape, stride, padding)
    _check_gradient(x, gradient, geometry)
    if by_winograd(ways, WEIGHT_GRADIENT, x) or is_dense(ways, WEIGHT_GRADIENT, x):
        full = dense_weight_gradient(x, gradient, shape, stride, padding, ways)
        return full.flatten() if full.numel() == indices.numel() else gather(full, indices)
    x, gradient = ready(x), ready(gradient)
    result = x.new_empty(indices.numel())
    compute("ft_weight_gradient", geometry, x, x, gradient, plan, indices.numel(), result)
    return result


def dense_weight_gradient(
    x: Tensor, gradient: Tensor, shape: _Ints, stride: _Ints, padding: _Ints, ways: int = 0
) -> Tensor:
    """The gradient for the whole weight, zeros and all: what growth looks at."""
    if by_winograd(ways, WEIGHT_GRADIENT, x):
        return winograd.weight_gradient(x, gradient, _geometry(shape, stride, padding))
    with full_precision():
        return conv2d_weight(  # type: ignore[no-untyped-call]
            _plain(x), shape, _plain(gradient), stride, padding
        )


@conv2d.register_fake
def _(
    x: Tensor, values: Tensor, indices: Tensor, plan: Tensor, bias: Tensor | None, *settings: Any
) -> Tensor:
    check_weights(values, indices, bias, settings[0])
    return x.new_empty(_result_shape(x, _geometry(*settings[:3])))


@conv2d_input_gradient.register_fake
def _(
    gradient: Tensor, values: Tensor, indices: Tensor, plan: Tensor, size: _Ints, *settings: Any
) -> Tensor:
    check_weights(values, indices, None, settings[0])
    return gradient.new_empty(_source_shape(gradient, _geometry(*settings[:3]), size))


@conv2d_weight_gradient.register_fake
def _(x: Tensor, gradient: Tensor, indices: Tensor, plan: Tensor, *settings: Any) -> Tensor:
    _check_gradient(x, gradient, _geometry(*settings[:3]))
    return x.new_empty(indices.numel())


def keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keeps what the gradients of a sparse layer need; also its settings."""
    x, values, indices, plan, _, *ctx.settings = inputs
    ctx.save_for_backward(x, values, indices, plan)


def _conv2d_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, values, indices, plan = ctx.saved_tensors
    for_x, for_values, _, _, for_bias = ctx.needs_input_grad[:5]
    gradient = gradient.contiguous()
    dx = dvalues = dbias = None
    if torch.is_grad_enabled():
        reference = partial(_conv2d_reference, indices, *ctx.settings[:3])
        dx, dvalues = again(reference, (x, values), (for_x, for_values), gradient)
        for_x = for_values = False
    if for_x:
        dx = form(ctx, conv2d_input_gradient)(
            gradient, values, indices, plan, list(x.shape[2:4]), *ctx.settings
        )
    if for_values:
        dvalues = form(ctx, conv2d_weight_gradient)(x, gradient, indices, plan, *ctx.settings)
    if for_bias:
        dbias = gradient.sum((0, 2, 3, 4))
    return dx, dvalues, None, None, dbias, None, None, None, None


def _conv2d_reference(
    indices: Tensor, shape: _Ints, stride: _Ints, padding: _Ints, x: Tensor, values: Tensor
) -> Tensor:
    """The convolution, without its bias, by PyTorch's own operations."""
    y = F.conv2d(as_samples(x), scatter(values, indices, shape), None, stride, padding)
    return as_groups(y, x.shape[4])


differentiate(conv2d, keep_inputs, _conv2d_backward)


# ---- forms of a tensor


def scatter(values: Tensor, indices: Tensor, shape: _Ints) -> Tensor:
    """The dense weight: `values` at `indices`, zero elsewhere."""
    if values.numel() == torch.Size(shape).numel():
        return values.view(shape)
    flat = values.new_zeros(torch.Size(shape).numel())
    return flat.index_copy(0, indices.long(), values).view(shape)


def put(values: Tensor, indices: Tensor, shape: Sequence[int]) -> Tensor:
    """The same, sooner and without a gradient."""
    if values.numel() == math.prod(shape):
        return values.detach().view(shape)
    weight = values.new_empty(shape)
    given = (ready(values), ready(indices), indices.numel(), weight, weight.numel())
    call("ft_put", *given, torch.get_num_threads())
    return weight


def gather(weight: Tensor, indices: Tensor) -> Tensor:
    """What `scatter` scattered."""
    return weight.flatten().index_select(0, indices)


def is_dense(ways: int, direction: int, x: Tensor) -> bool:
    """Whether a direction runs dense; without any samples it must: the kernels expect some."""
    return bool(ways & direction) or x.numel() == 0


def by_winograd(ways: int, direction: int, x: Tensor) -> bool:
    """Whether a direction runs in Winograd's way."""
    return bool(ways & direction << WINOGRAD) and x.numel() > 0


def full_precision() -> torch.autocast:
    """Autocast would round what the kernels, and the rest of an operator, take for float32."""
    return torch.autocast("cpu", enabled=False)


def check_weights(values: Tensor, indices: Tensor, bias: Tensor | None, shape: _Ints) -> None:
    """Refuses weights that are not those of a layer of this shape."""
    check(values, 1, "a sparse layer's values")
    if values.shape != indices.shape or indices.dtype != torch.int32:
        raise FreeTicketsError(
            f"a sparse layer has a place for each value, not {tuple(indices.shape)} "
            f"({indices.dtype}) for {tuple(values.shape)}"
        )
    if bias is not None:
        check(bias, 1, "a bias")
        if bias.shape[0] != shape[0]:
            raise FreeTicketsError(f"a layer of {shape[0]} outputs can't add {bias.shape[0]}")


def _result_shape(x: Tensor, geometry: Geometry) -> tuple[int, ...]:
    """The shape of what a convolution makes of groups; refuses those that it can't take."""
    check_groups(x, geometry.shape[1], "a convolution")
    if x.shape[4] != 1:  # then vectors lie along rows
        check_lanes(x, "a convolution")
    size = geometry.output_size(x.shape[2], x.shape[3])
    if min(size) < 1:
        raise FreeTicketsError(
            f"a convolution by {geometry.shape[2]}x{geometry.shape[3]} can't take maps of "
            f"{x.shape[2]}x{x.shape[3]}: they are too small"
        )
    return x.shape[0], geometry.shape[0], *size, x.shape[4]


def _source_shape(gradient: Tensor, geometry: Geometry, size: _Ints) -> tuple[int, ...]:
    """The shape of what a convolution has made this of; refuses gradients that can't be that."""
    check_groups(gradient, geometry.shape[0], "the gradient of a convolution")
    check_lanes(gradient, "the gradient of a convolution")
    if len(size) != 2 or geometry.output_size(size[0], size[1]) != tuple(gradient.shape[2:4]):
        raise FreeTicketsError(
            f"a convolution can't make maps of {tuple(gradient.shape[2:4])} from maps of {size}"
        )
    return gradient.shape[0], geometry.shape[1], *size, gradient.shape[4]


def _check_gradient(x: Tensor, gradient: Tensor, geometry: Geometry) -> None:
    check(gradient, 5, "the gradient of a convolution")
    check_lanes(gradient, "the gradient of a convolution")
    if tuple(gradient.shape) != _result_shape(x, geometry):
        raise FreeTicketsError(
            f"maps of {tuple(x.shape)} can't have a gradient of {tuple(gradient.shape)}"
        )


def _geometry(shape: _Ints, stride: _Ints, padding: _Ints) -> Geometry:
    if [len(shape), len(stride), len(padding)] != [4, 2, 2]:
        raise FreeTicketsError(f"this is not a convolution: {shape}, {stride}, {padding}")
    return Geometry(*map(tuple, (shape, stride, padding)))  # type: ignore[arg-type]


def _plain(x: Tensor) -> Tensor:
    """Groups as PyTorch's own convolutions take them, with the empty lanes."""
    return from_groups(x, x.shape[0] * x.shape[4])


def _grouped(y: Tensor, like: Tensor) -> Tensor:
    return to_groups(y.contiguous(), like.shape[4])
