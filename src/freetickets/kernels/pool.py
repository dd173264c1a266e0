"""Max-pooling of groups, by windows that lie side by side."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import FreeTicketsError
from .groups import check, check_lanes, pooled
from .library import PoolStruct, call, empty, ready
from .operator import again, differentiate, form, operator

_Ints = list[int]


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
    is_plain = is_plain and not return_indices
    return window if is_plain and step == window else None


@operator
def max_pool(x: Tensor, window: _Ints) -> Tensor:
    """The largest number of each window (height, width); what is left at the edges is left out."""
    y = empty(*_pooled_shape(x, window))
    if y.numel():
        call("ft_max_pool", _struct(x, window), ready(x), y, torch.get_num_threads())
    return y


@max_pool.register_fake
def _(x: Tensor, window: _Ints) -> Tensor:
    return x.new_empty(_pooled_shape(x, window))


@operator
def max_pool_backward(x: Tensor, y: Tensor, gradient: Tensor, window: _Ints) -> Tensor:
    """The gradient of `max_pool`, whose result was y: all of it where the largest stands first."""
    _check_gradient(x, y, gradient, window)
    dx = empty(*x.shape)
    if dx.numel():
        given = (ready(x), ready(y), ready(gradient), dx, torch.get_num_threads())
        call("ft_max_pool_backward", _struct(x, window), *given)
    return dx


@max_pool_backward.register_fake
def _(x: Tensor, y: Tensor, gradient: Tensor, window: _Ints) -> Tensor:
    _check_gradient(x, y, gradient, window)
    return x.new_empty(x.shape)


def _struct(x: Tensor, window: _Ints) -> PoolStruct:
    groups, channels, height, width, lanes = x.shape
    return PoolStruct(groups, lanes, channels, height, width, *window)


def _pooled_shape(x: Tensor, window: _Ints) -> tuple[int, ...]:
    check(x, 5, "max-pooling")
    check_lanes(x, "max-pooling")
    height, width = x.shape[2:4]
    if len(window) != 2 or not (1 <= window[0] <= height and 1 <= window[1] <= width):
        raise FreeTicketsError(f"maps of {height}x{width} have no windows of {window}")
    return *x.shape[:2], height // window[0], width // window[1], x.shape[4]


def _check_gradient(x: Tensor, y: Tensor, gradient: Tensor, window: _Ints) -> None:
    shape = _pooled_shape(x, window)
    for given in (y, gradient):
        check(given, 5, "the gradient of max-pooling")
        if given.shape != shape:
            raise FreeTicketsError(f"pooled maps of {shape} can't have others of {given.shape}")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.window = inputs
    ctx.save_for_backward(x, output)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None]:
    x, y = ctx.saved_tensors
    if torch.is_grad_enabled():
        pool = partial(F.max_pool2d, kernel_size=ctx.window)
        (dx,) = again(partial(pooled, pool), (x,), [True], gradient)
        return dx, None
    return form(ctx, max_pool_backward)(x, y, gradient, ctx.window), None


differentiate(max_pool, _keep, _backward)
