"""BatchNorm with ReLU, in the layout of the sparse convolutions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import FreeTicketsError
from .groups import as_groups, as_samples, check, check_groups, check_lanes, norm_struct
from .library import call, empty, ready
from .operator import again, differentiate, form, operator


def _check(x: Tensor, batch: int, *parameters: Tensor) -> None:
    """Refuses groups that a BatchNorm with these parameters can't take."""
    channels = parameters[0].numel()
    check_groups(x, channels, "BatchNorm", batch)
    check_lanes(x, "BatchNorm")
    for parameter in parameters:
        check(parameter, 1, "BatchNorm")
        if parameter.numel() != channels:
            raise FreeTicketsError(
                f"BatchNorm of {channels} channels can't use {parameter.numel()}"
            )


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
    _check(x, batch, weight, bias)
    x = ready(x)
    y, mean, variance = empty(*x.shape), torch.empty_like(bias), torch.empty_like(bias)
    call("ft_normalize", norm_struct(x, batch), x, weight, bias, eps, relu, y,
        mean, variance, torch.get_num_threads(),
    )  # fmt: skip
    return y, mean, variance


@batch_norm.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, batch: int, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _check(x, batch, weight, bias)
    return x.new_empty(x.shape), torch.empty_like(bias), torch.empty_like(bias)


@operator
def scale(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool,
) -> Tensor:  # fmt: skip
    """Normalizes each channel by a mean and a variance that are given."""
    _check(x, batch, weight, bias, mean, variance)
    x = ready(x)
    y = empty(*x.shape)
    call("ft_scale", norm_struct(x, batch), x, weight, bias, mean,
        variance, eps, relu, y, torch.get_num_threads(),
    )  # fmt: skip
    return y


@scale.register_fake
def _(x: Tensor, *settings: Any) -> Tensor:
    _check(x, settings[4], *settings[:4])
    return x.new_empty(x.shape)


@operator
def batch_norm_backward(
    x: Tensor, gradient: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    batch: int, eps: float, relu: bool, training: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients for x, weight and bias; `training`: mean and variance are those of x."""
    _check(x, batch, weight, bias, mean, variance)
    _check_gradient(x, gradient)
    x, gradient = ready(x), ready(gradient)
    dx, dweight, dbias = empty(*x.shape), torch.empty_like(bias), torch.empty_like(bias)
    call("ft_normalize_backward", norm_struct(x, batch), x, gradient, weight, bias,
        mean, variance, eps, relu, training, dx, dweight,
        dbias, torch.get_num_threads(),
    )  # fmt: skip
    return dx, dweight, dbias


@batch_norm_backward.register_fake
def _(x: Tensor, gradient: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    _check(x, settings[4], *settings[:4])
    _check_gradient(x, gradient)
    return x.new_empty(x.shape), torch.empty_like(settings[1]), torch.empty_like(settings[1])


def _check_gradient(x: Tensor, gradient: Tensor) -> None:
    check(gradient, 5, "the gradient of BatchNorm")
    if gradient.shape != x.shape:
        raise FreeTicketsError(
            f"maps of {tuple(x.shape)} can't have a gradient of {tuple(gradient.shape)}"
        )


# ---- gradients


def _keep_batch_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, *ctx.settings = inputs
    ctx.save_for_backward(x, weight, bias, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])


def _batch_norm_backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, *statistics = ctx.saved_tensors
    return *_gradients(ctx, gradient, (x, weight, bias), statistics, True), None, None, None


def _keep_scale(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.settings = inputs[5:]


def _scale_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, *statistics = ctx.saved_tensors
    return *_gradients(ctx, gradient, (x, weight, bias), statistics, False), *[None] * 5


def _gradients(
    ctx: Any, gradient: Tensor, inputs: tuple[Tensor, Tensor, Tensor], statistics: list[Tensor],
    training: bool,
) -> list[Tensor | None]:  # fmt: skip
    """The gradients for x, weight and bias."""
    if not torch.is_grad_enabled():
        operator = form(ctx, batch_norm_backward)
        return list(
            operator(inputs[0], gradient, *inputs[1:], *statistics, *ctx.settings, training)
        )

    def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        batch, eps, relu = ctx.settings
        mean, variance = (None, None) if training else statistics
        y = F.batch_norm(as_samples(x)[:batch], mean, variance, weight, bias, training, 0.0, eps)
        return as_groups(F.relu(y) if relu else y, x.shape[4])

    return again(reference, inputs, ctx.needs_input_grad[:3], gradient)


differentiate(batch_norm, _keep_batch_norm, _batch_norm_backward)
differentiate(scale, _keep_scale, _scale_backward)
