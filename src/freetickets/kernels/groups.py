"""The layout of maps that the convolutions work in, and the ways into it and out of it.

Maps are five-dimensional here: (groups, channels, height, width, lanes), `lanes` samples side by
side, the last group filled up with zeros.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import FreeTicketsError
from .library import NormStruct, call, empty, lanes, ready
from .operator import differentiate, form, operator


def check(x: Tensor, dimensions: int, what: str) -> None:
    """Refuses a tensor that is none of single precision with this many dimensions."""
    if x.dim() != dimensions:
        raise FreeTicketsError(f"{what}: {dimensions} dimensions are needed, not {tuple(x.shape)}")
    if x.dtype != torch.float32:
        raise FreeTicketsError(f"{what}: torch.float32 is needed, not {x.dtype}")


def check_groups(x: Tensor, channels: int, what: str, batch: int | None = None) -> None:
    """Refuses what is no group of maps with this many channels, or has no room for the samples."""
    check(x, 5, what)
    if x.shape[1] != channels:
        raise FreeTicketsError(f"{what} of {channels} channels can't take maps of {x.shape[1]}")
    if batch is not None and -(-batch // x.shape[4]) != x.shape[0]:
        raise FreeTicketsError(
            f"{what}: {batch} samples don't lie in {x.shape[0]} groups of {x.shape[4]}"
        )


def check_lanes(x: Tensor, what: str) -> None:
    """Refuses groups that are not made of whole vectors."""
    if x.shape[4] % lanes():
        raise FreeTicketsError(f"{what}: groups have {lanes()} lanes here, not {x.shape[4]}")


def norm_struct(x: Tensor, batch: int) -> NormStruct:
    """Groups that hold this many samples, as the kernels take them."""
    groups, channels, height, width, width_of_group = x.shape
    return NormStruct(batch, groups, width_of_group, channels, height * width)


# ---- the ways in and out


@operator
def to_groups(x: Tensor, lanes: int) -> Tensor:
    """(N, C, H, W) to (N / lanes, C, H, W, lanes); empty lanes are zero."""
    y = empty(*_grouped_shape(x, lanes))
    if y.numel():
        call("ft_to_groups", norm_struct(y, x.shape[0]), ready(x), y, torch.get_num_threads())
    return y


@to_groups.register_fake
def _(x: Tensor, lanes: int) -> Tensor:
    return x.new_empty(_grouped_shape(x, lanes))


@operator
def from_groups(x: Tensor, batch: int) -> Tensor:
    """Undoes `to_groups` for a batch of this many samples."""
    y = empty(*_plain_shape(x, batch))
    if y.numel():
        call("ft_from_groups", norm_struct(x, batch), ready(x), y, torch.get_num_threads())
    return y


@from_groups.register_fake
def _(x: Tensor, batch: int) -> Tensor:
    return x.new_empty(_plain_shape(x, batch))


def _grouped_shape(x: Tensor, lanes: int) -> tuple[int, ...]:
    check(x, 4, "maps")
    if lanes < 1:
        raise FreeTicketsError(f"groups have at least one lane, not {lanes}")
    return -(-x.shape[0] // lanes), *x.shape[1:], lanes


def _plain_shape(x: Tensor, batch: int) -> tuple[int, ...]:
    check(x, 5, "groups of maps")
    check_groups(x, x.shape[1], "groups of maps", batch)
    return batch, *x.shape[1:4]


def _keep_batch(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.batch = inputs[0].shape[0]


def _keep_lanes(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.lanes = inputs[0].shape[4]


def _to_groups_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return form(ctx, from_groups)(gradient, ctx.batch), None


def _from_groups_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return form(ctx, to_groups)(gradient, ctx.lanes), None


differentiate(to_groups, _keep_batch, _to_groups_backward)
differentiate(from_groups, _keep_lanes, _from_groups_backward)


def pooled(pool: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A pool of groups. It takes no notice of what a channel is: lanes may stand for channels."""
    groups, channels, height, width, width_of_group = x.shape
    maps = x.reshape(groups * channels, height, width, width_of_group).permute(0, 3, 1, 2)
    y = pool(maps).permute(0, 2, 3, 1).contiguous()
    return y.view(groups, channels, *y.shape[1:3], width_of_group)


# ---- the same by PyTorch's own operations, which can be differentiated as often as one likes


def as_samples(x: Tensor) -> Tensor:
    """All lanes of groups as samples (groups * lanes, C, H, W), those without a sample too."""
    return x.permute(0, 4, 1, 2, 3).flatten(0, 1)


def as_groups(x: Tensor, lanes: int) -> Tensor:
    """Samples as groups; empty lanes are zero."""
    missing = -x.shape[0] % lanes
    return F.pad(x, (0, 0) * 3 + (0, missing)).view(-1, lanes, *x.shape[1:]).permute(0, 2, 3, 4, 1)
