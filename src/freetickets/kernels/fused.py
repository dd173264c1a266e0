"""The parts of a compiled network. Maps come and go in groups; a part suits inputs of one shape."""

import functools
import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FreeTicketsError
from . import ops, winograd
from .blocks import Cut, with_border
from .choice import Work, halo_time, linear_times, plain_time, predicting_way
from .groups import from_groups, pooled, to_groups
from .layers import geometry_of
from .layout import BatchNormReLU
from .library import Geometry, lanes
from .linear import linear
from .norm import scale
from .operator import run
from .pool import max_pool, window_of

WHOLE = Cut()  # of images that are not cut

# What `window_of` is told of a pool.
_WINDOW = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


class ShapeError(FreeTicketsError):
    """Maps are of another shape than the network was compiled for."""


class Enter(nn.Module):
    """Ordinary maps to groups: of samples, or of their blocks."""

    def __init__(self, shape: tuple[int, ...], width: int, grid: Cut = WHOLE) -> None:
        super().__init__()
        self._shape, self._width, self._grid = shape, width, grid

    def forward(self, x: Tensor) -> Tensor:
        """Returns the groups."""
        # All that follows was decided for this shape, and the kernels believe what they are told.
        if x.shape != self._shape or x.dtype != torch.float32:
            raise ShapeError(f"maps of {tuple(x.shape)} where {self._shape} were expected")
        if self._width == 1:
            return x.contiguous().unsqueeze(-1)
        return run(to_groups, self._grid.cut(x), self._width)


class Leave(nn.Module):
    """Groups to ordinary maps of this many samples."""

    def __init__(self, samples: int, grid: Cut = WHOLE) -> None:
        super().__init__()
        self._parts, self._grid = samples * grid.blocks, grid

    def forward(self, x: Tensor) -> Tensor:
        """Returns the maps."""
        if x.shape[4] == 1:
            return x.squeeze(-1)
        return self._grid.join(run(from_groups, x, self._parts))


class FoldedConv2d:
    """A convolution with the BatchNorm that follows it; all compiled forms of a network share it.

    Args:
        conv: The convolution.
        bn: The BatchNorm.
        mask: The active weights; None: all are.
    """

    def __init__(self, conv: nn.Conv2d, bn: nn.BatchNorm2d | None, mask: Tensor | None) -> None:
        self.geometry = geometry_of(conv)
        self.weight = conv.weight.detach()
        self.bias = torch.zeros(conv.out_channels) if conv.bias is None else conv.bias.detach()
        if bn is not None:
            factor, shift = _factor_and_shift(bn)
            self.weight = self.weight * factor[:, None, None, None]
            self.bias = self.bias * factor + shift
        mask = torch.ones_like(self.weight, dtype=torch.bool) if mask is None else mask
        self._indices = mask.flatten().nonzero().flatten().int()
        self._plans: dict[Geometry, Tensor] = {}
        self._entries: dict[tuple[Geometry, tuple[int, ...]], Tensor] = {}

    @functools.cached_property
    def values(self) -> Tensor:
        """The active weights."""
        return ops.gather(self.weight, self._indices)

    def plan(self, geometry: Geometry) -> Tensor:
        """The order in which they are visited, where the convolution has this padding."""
        if geometry not in self._plans:
            self._plans[geometry] = ops.make_plan(self._indices, geometry)
        return self._plans[geometry]

    @functools.cached_property
    def transformed(self) -> Tensor:
        """The weights for Winograd's way."""
        return winograd.transform(self.weight, self.geometry)

    def work(self, shape: tuple[int, ...], geometry: Geometry) -> Work:
        """What is to be done for groups of this shape."""
        groups, _, height, width, lanes = shape
        return Work(geometry, self._indices.numel(), groups * lanes, height, width)

    def entries(self, shape: tuple[int, ...], geometry: Geometry) -> Tensor:
        """The active weights, prepared for groups of this shape."""
        key = geometry, shape[2:]
        if key not in self._entries:
            x = torch.empty(0, *shape[1:])
            self._entries[key] = ops.prepare(x, self.values, self.plan(geometry), geometry)
        return self._entries[key]

    def dense(self, x: Tensor, residual: Tensor | None, relu: bool, grid: Cut) -> Tensor:
        """relu?(convolution + bias + residual), by PyTorch's convolution of whole images."""
        groups, width = x.shape[0], x.shape[4]
        plain = x.squeeze(-1) if width == 1 else grid.join(run(from_groups, x, groups * width))
        y = F.conv2d(plain, self.weight, self.bias, self.geometry.stride, self.geometry.padding)
        grouped = y.contiguous().unsqueeze(-1) if width == 1 else run(to_groups, grid.cut(y), width)
        if residual is not None:
            grouped += residual
        return grouped.relu_() if relu else grouped


class FusedConv2d(nn.Module):
    """relu?(convolution + bias + residual), where a BatchNorm may come before the convolution.

    Args:
        folded: The convolution.
        relu: Whether ReLU follows.
        grid: The blocks of an image, if those lie in the lanes.

    Attributes:
        scale: That BatchNorm.
    """

    def __init__(self, folded: FoldedConv2d, relu: bool, grid: Cut = WHOLE) -> None:
        super().__init__()
        self._folded, self._relu, self._grid = folded, relu, grid
        self._border, self._geometry = grid.border(folded.geometry), folded.geometry
        if self._border is not None:
            self._geometry = folded.geometry._replace(padding=(0, 0))
        self._plan: Tensor | None = None
        self._entries: Tensor | None = None
        self._transformed: Tensor | None = None
        self.scale: ScaledNorm | None = None

    def choose(self, shape: tuple[int, ...]) -> tuple[float, float]:
        """Chooses the way for groups of this shape; tells what it and PyTorch take, in ns."""
        border_time = 0.0
        if self._border is not None:
            groups, channels, height, width, lanes = shape
            top, bottom, left, right = self._border
            shape = (groups, channels, height + top + bottom, width + left + right, lanes)
            border_time = halo_time(math.prod(shape))
        work = self._folded.work(shape, self._geometry)
        way, time = predicting_way(work, shape[4] == 1)
        if way == ops.FORWARD << ops.WINOGRAD:
            self._transformed = self._folded.transformed
        elif way == 0:
            self._plan = self._folded.plan(self._geometry)
            self._entries = self._folded.entries(shape, self._geometry)
        return time + border_time, plain_time(work)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Returns the groups that the convolution makes."""
        folded, relu, geometry = self._folded, self._relu, self._geometry
        if self._transformed is None and self._entries is None:
            return folded.dense(
                x if self.scale is None else self.scale(x), residual, relu, self._grid
            )
        scaling = None if self.scale is None else self.scale.scaling
        if self._border is not None:  # whose zeros must not be scaled
            x, scaling = with_border(x, self._grid, self._border, scaling), None
        if self._transformed is not None:
            return winograd.convolve(
                x, self._transformed, geometry, folded.bias, residual, relu, scaling
            )
        given = (geometry, folded.bias, residual, relu, self._entries, scaling)
        return ops.fused_conv2d(x, folded.values, cast(Tensor, self._plan), *given)


class ScaledNorm(nn.Module):
    """A BatchNorm that the convolution before it could not take in.

    Attributes:
        relu: Whether ReLU follows.
    """

    def __init__(self, bn: nn.BatchNorm2d) -> None:
        super().__init__()
        self._bn = bn
        self.relu = isinstance(bn, BatchNormReLU)

    @functools.cached_property
    def scaling(self) -> ops.Scaling:
        """What it does, in the form that a convolution can do it to its input."""
        return ops.Scaling(*_factor_and_shift(self._bn), self.relu)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the groups, normalized."""
        bn = self._bn
        weight, bias = cast(Tensor, bn.weight), cast(Tensor, bn.bias)
        mean, variance = cast(Tensor, bn.running_mean), cast(Tensor, bn.running_var)
        if x.shape[4] > 1:
            batch = x.shape[0] * x.shape[4]
            return run(scale, x, weight, bias, mean, variance, batch, bn.eps, self.relu)
        y = F.batch_norm(x.squeeze(-1), mean, variance, weight, bias, eps=bn.eps)
        return (y.relu_() if self.relu else y).unsqueeze(-1)


def _factor_and_shift(bn: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """What a BatchNorm multiplies by and adds, when it predicts."""
    factor = bn.weight.detach() / torch.sqrt(cast(Tensor, bn.running_var) + bn.eps)
    return factor, bn.bias.detach() - cast(Tensor, bn.running_mean) * factor


class Pool(nn.Module):
    """A pool of groups."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self._pool = pool
        is_max = isinstance(pool, nn.MaxPool2d)
        self._window = window_of(*(getattr(pool, a) for a in _WINDOW)) if is_max else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns the groups of what the pool makes."""
        if self._window is not None and x.shape[4] > 1:
            return run(max_pool, x, self._window)[0]
        return pooled(self._pool, x)


class FusedLinear(nn.Module):
    """A linear layer for samples (N, features), sparse or dense: whichever is faster.

    Args:
        layer: The layer.
        mask: Its active weights.
    """

    def __init__(self, layer: nn.Linear, mask: Tensor) -> None:
        super().__init__()
        self._layer = layer
        self._shape = [layer.out_features, layer.in_features]
        self._indices = mask.flatten().nonzero().flatten().int()
        self._values = layer.weight.detach().flatten()[self._indices.long()]
        self._plan = ops.make_plan(self._indices, geometry_of(layer))
        self._dense: dict[int, bool] = {}

    def choose(self, samples: int) -> tuple[float, float]:
        """Decides between sparse and dense; tells what it and PyTorch take, in ns."""
        outputs, inputs = self._shape
        sparse, dense, _ = linear_times(inputs, outputs, self._values.numel(), samples)
        self._dense[samples] = dense < sparse
        return min(sparse, dense), dense

    def forward(self, x: Tensor) -> Tensor:
        """Returns (N, outputs)."""
        if x.dim() != 2 or self._dense.get(x.shape[0], True):
            return self._layer(x)
        given = (self._values, self._indices, self._plan, self._layer.bias)
        return run(linear, x, *given, self._shape, lanes(), 0, False)
