"""Pooling of groups: the largest of windows that lie side by side, and the mean of whole maps."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import FreeTicketsError
from .groups import check, check_lanes
from .library import PoolStruct, call, empty, ready
from .operator import differentiate, form, operator

_Ints = list[int]
_MOST = 256  # places of a window: a byte tells them apart


def window_of(
    kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> _Ints | None:  # fmt: skip
    """The window of `F.max_pool2d` with these arguments, if `max_pool` does what it does."""

    def pair(value: Any) -> _Ints:
        return [value, value] if isinstance(value, int) else list(value)

    window = pair(kernel_size)
    step = window if stride in (None, []) else pair(stride)
    is_plain = pair(padding) == [0, 0] and pair(dilation) == [1, 1] and not ceil_mode
    is_plain = is_plain and not return_indices and math.prod(window) <= _MOST
    return window if is_plain and step == window else None


@operator
def max_pool(x: Tensor, window: _Ints) -> tuple[Tensor, Tensor]:
    """The largest number of each window (height, width), and its place in the window, as a byte.

    Of equals the first counts. What is left at the edges is left out.
    """
    shape = _pooled_shape(x, window)
    y, places = empty(*shape), torch.empty(shape, dtype=torch.uint8)
    if y.numel():
        given = (ready(x), y, places, torch.get_num_threads())
        call("ft_max_pool", _struct(x, window), *given)
    return y, places


@max_pool.register_fake
def _(x: Tensor, window: _Ints) -> tuple[Tensor, Tensor]:
    shape = _pooled_shape(x, window)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.uint8)


@operator
def max_pool_backward(gradient: Tensor, places: Tensor, window: _Ints, size: _Ints) -> Tensor:
    """The gradient of `max_pool` for maps of this size: that of the result, in its places."""
    dx = empty(*_source_shape(gradient, places, window, size))
    if dx.numel():
        given = (ready(places), ready(gradient), dx, torch.get_num_threads())
        call("ft_max_pool_backward", _struct(dx, window), *given)
    return dx


@max_pool_backward.register_fake
def _(gradient: Tensor, places: Tensor, window: _Ints, size: _Ints) -> Tensor:
    return gradient.new_empty(_source_shape(gradient, places, window, size))


def _struct(x: Tensor, window: _Ints) -> PoolStruct:
    groups, channels, height, width, lanes = x.shape
    return PoolStruct(groups, lanes, channels, height, width, *window)


def _pooled_shape(x: Tensor, window: _Ints) -> tuple[int, ...]:
    _check(x, "max-pooling")
    return _shape(tuple(x.shape), window)


def _shape(shape: tuple[int, ...], window: _Ints) -> tuple[int, ...]:
    """What becomes of maps of this shape; refuses windows that these don't have."""
    height, width = shape[2:4]
    if len(window) != 2 or not (1 <= window[0] <= height and 1 <= window[1] <= width):
        raise FreeTicketsError(f"maps of {height}x{width} have no windows of {window}")
    if math.prod(window) > _MOST:
        raise FreeTicketsError(f"windows of {window} have more than {_MOST} numbers")
    return *shape[:2], height // window[0], width // window[1], shape[4]


def _source_shape(gradient: Tensor, places: Tensor, window: _Ints, size: _Ints) -> tuple[int, ...]:
    _check(gradient, "the gradient of max-pooling")
    shape = (*gradient.shape[:2], *size, gradient.shape[4])
    for name, given in (("a gradient", gradient), ("places", places)):
        if given.shape != (pooled := _shape(shape, window)):
            raise FreeTicketsError(f"pooled maps of {pooled} can't have {name} of {given.shape}")
    return shape


def _check(x: Tensor, what: str) -> None:
    check(x, 5, what)
    check_lanes(x, what)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.window = inputs
    ctx.size = list(x.shape[2:4])
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
    (places,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        return _spread(gradient, places, ctx.window, ctx.size), None
    return form(ctx, max_pool_backward)(gradient, places, ctx.window, ctx.size), None


def _spread(gradient: Tensor, places: Tensor, window: _Ints, size: _Ints) -> Tensor:
    """What `max_pool_backward` does, by PyTorch's own operations."""
    each = [torch.where(places == n, gradient, 0.0) for n in range(math.prod(window))]
    whole = torch.stack(each).view(*window, *gradient.shape).permute(2, 3, 4, 0, 5, 1, 6)
    whole = whole.flatten(4, 5).flatten(2, 3)
    edges = [n - m for n, m in zip(size, whole.shape[2:4], strict=True)]
    return F.pad(whole, (0, 0, 0, edges[1], 0, edges[0]))


differentiate(max_pool, _keep, _backward)


# ---- the mean of whole maps


@operator
def mean_pool(x: Tensor) -> Tensor:
    """The mean of each map, as a map of 1x1."""
    _check(x, "mean-pooling")
    return x.mean((2, 3), keepdim=True)


@mean_pool.register_fake
def _(x: Tensor) -> Tensor:
    _check(x, "mean-pooling")
    return x.new_empty((*x.shape[:2], 1, 1, x.shape[4]))


@operator
def mean_pool_backward(gradient: Tensor, size: _Ints) -> Tensor:
    """The gradient of `mean_pool` for maps of this size, in memory that is taken again."""
    shape = _mean_source_shape(gradient, size)
    return torch.div(gradient.expand(shape), math.prod(size), out=empty(*shape))


@mean_pool_backward.register_fake
def _(gradient: Tensor, size: _Ints) -> Tensor:
    return gradient.new_empty(_mean_source_shape(gradient, size))


def _mean_source_shape(gradient: Tensor, size: _Ints) -> tuple[int, ...]:
    _check(gradient, "the gradient of mean-pooling")
    if len(size) != 2 or min(size) < 1 or gradient.shape[2:4] != (1, 1):
        raise FreeTicketsError(f"maps of {size} can't have a mean of {tuple(gradient.shape)}")
    return (*gradient.shape[:2], *size, gradient.shape[4])


def _keep_size(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.size = list(inputs[0].shape[2:4])


def _mean_backward(ctx: Any, gradient: Tensor) -> Tensor:
    if torch.is_grad_enabled():
        return gradient.expand(_mean_source_shape(gradient, ctx.size)) / math.prod(ctx.size)
    found: Tensor = form(ctx, mean_pool_backward)(gradient, ctx.size)
    return found


differentiate(mean_pool, _keep_size, _mean_backward)
