"""BatchNorm with ReLU, in the layout of the sparse convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FreeTicketsError
from .library import NormStruct, call, empty, ready
from .operator import differentiate, form, operator


class BatchNormReLU(nn.BatchNorm2d):
    """BatchNorm and ReLU in one module, so that they can be computed in one pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes maps and sets what is negative to zero."""
        return F.relu(super().forward(x), inplace=True)


def _norm(x: Tensor, bias: Tensor, batch: int) -> NormStruct:
    groups, channels, height, width, lanes = x.shape
    if channels != bias.numel():
        raise FreeTicketsError(f"BatchNorm of {bias.numel()} channels can't take {channels}")
    return NormStruct(batch, groups, lanes, channels, height * width)


@operator
def batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor, batch: int, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalizes each channel by its own mean and variance, which are returned too.

    Args:
        x: Maps (groups, channels, height, width, lanes).
        weight: The scale of each channel.
        bias: The shift of each channel.
        batch: How many samples the lanes hold; the others do not count, and become zero.
        eps: Added to the variance.
        relu: Whether ReLU follows.
    """
    x = ready(x)
    y, mean, variance = empty(*x.shape), torch.empty_like(bias), torch.empty_like(bias)
    call("ft_normalize", _norm(x, bias, batch), x, weight, bias, eps, relu, y,
        mean, variance, torch.get_num_threads(),
    )  # fmt: skip
    return y, mean, variance


@batch_norm.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, batch: int, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(bias), torch.empty_like(bias)


@operator
def scale(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool,
) -> Tensor:  # fmt: skip
    """Normalizes each channel by a mean and a variance that are given."""
    x = ready(x)
    y = empty(*x.shape)
    call("ft_scale", _norm(x, bias, batch), x, weight, bias, mean,
        variance, eps, relu, y, torch.get_num_threads(),
    )  # fmt: skip
    return y


@scale.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool,
) -> Tensor:  # fmt: skip
    return x.new_empty(x.shape)


@operator
def batch_norm_backward(
    x: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool, training: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients for x, weight and bias; `training`: mean and variance are those of x."""
    x, gradient = ready(x), ready(gradient)
    dx, dweight, dbias = empty(*x.shape), torch.empty_like(bias), torch.empty_like(bias)
    call("ft_normalize_backward", _norm(x, bias, batch), x, gradient, weight, bias,
        mean, variance, eps, relu, training, dx, dweight,
        dbias, torch.get_num_threads(),
    )  # fmt: skip
    return dx, dweight, dbias


@batch_norm_backward.register_fake
def _(
    x: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool, training: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return x.new_empty(x.shape), torch.empty_like(bias), torch.empty_like(bias)


def _keep_batch_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, *ctx.settings = inputs
    ctx.save_for_backward(x, weight, bias, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _batch_norm_backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, *rest = ctx.saved_tensors
    found = form(ctx, batch_norm_backward)(x, gradient, *rest, *ctx.settings, True)
    return *found, None, None, None


def _keep_scale(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5:]


def _scale_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, *rest = ctx.saved_tensors
    found = form(ctx, batch_norm_backward)(x, gradient, *rest, *ctx.settings, False)
    return *found, None, None, None, None, None


differentiate(batch_norm, _keep_batch_norm, _batch_norm_backward)
differentiate(scale, _keep_scale, _scale_backward)
