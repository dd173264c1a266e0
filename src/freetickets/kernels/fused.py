"""The parts of a compiled network. Maps come and go in groups; a part suits inputs of one shape."""

from __future__ import annotations

import functools
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FreeTicketsError
from . import ops
from .choice import dense_is_faster, noise
from .groups import from_groups, pooled, to_groups
from .layers import geometry_of
from .layout import BatchNormReLU
from .library import lanes
from .linear import linear
from .norm import scale
from .operator import run


class ShapeError(FreeTicketsError):
    """Maps are of another shape than the network was compiled for."""


class Enter(nn.Module):
    """Ordinary maps to groups."""

    def __init__(self, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        self._shape, self._width = shape, width

    def forward(self, x: Tensor) -> Tensor:
        """Returns the groups."""
        # All that follows was decided for this shape, and the kernels believe what they are told.
        if x.shape != self._shape or x.dtype != torch.float32:
            raise ShapeError(f"maps of {tuple(x.shape)} where {self._shape} were expected")
        if self._width == 1:
            return x.contiguous().unsqueeze(-1)
        return cast(Tensor, run(to_groups, x, self._width))


class Leave(nn.Module):
    """Groups to ordinary maps of so many samples."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self._samples = samples

    def forward(self, x: Tensor) -> Tensor:
        """Returns the maps."""
        return (
            x.squeeze(-1) if x.shape[4] == 1 else cast(Tensor, run(from_groups, x, self._samples))
        )


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
        indices = mask.flatten().nonzero().flatten().int()
        self.values = self.weight.flatten()[indices.long()]
        self.plan = ops.make_plan(indices, self.geometry)
        self._entries: dict[tuple[int, ...], Tensor | None] = {}

    def entries(self, shape: tuple[int, ...], *, scaled: bool) -> Tensor | None:
        """The weights, prepared for groups of this shape, or None if dense is faster for them.

        Args:
            shape: The shape of the groups.
            scaled: Whether a BatchNorm comes before the convolution.
        """
        size = (*shape[2:], scaled)
        if size not in self._entries:
            x = noise(min(shape[0], 4), *shape[1:])  # groups enough to tell
            prepared = ops.prepare(x, self.values, self.plan, self.geometry)
            scaling = None
            if scaled:
                scaling = ops.Scaling(torch.ones(shape[1]), torch.zeros(shape[1]), True)
            dense = dense_is_faster(
                f"fused {self.geometry} {self.values.numel()} {tuple(x.shape)} {scaled} "
                f"x{torch.get_num_threads()}",
                lambda: self.sparse(x, None, False, prepared, scaling),
                lambda: self.dense(x, None, False),
            )
            self._entries[size] = None if dense else prepared
        return self._entries[size]

    def sparse(
        self,
        x: Tensor,
        residual: Tensor | None,
        relu: bool,
        entries: Tensor,
        scaling: ops.Scaling | None,
    ) -> Tensor:
        """relu?(convolution + bias + residual), skipping zeros."""
        return ops.fused_conv2d(
            x, self.values, self.plan, self.geometry, self.bias, residual, relu, entries, scaling
        )

    def dense(self, x: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
        """The same by PyTorch's convolution."""
        groups, width = x.shape[0], x.shape[4]
        plain = x.squeeze(-1) if width == 1 else run(from_groups, x, groups * width)
        y = F.conv2d(plain, self.weight, self.bias, self.geometry.stride, self.geometry.padding)
        grouped = y.contiguous().unsqueeze(-1) if width == 1 else run(to_groups, y, width)
        if residual is not None:
            grouped += residual
        return cast(Tensor, grouped.relu_() if relu else grouped)


class FusedConv2d(nn.Module):
    """relu?(convolution + bias + residual), where a BatchNorm may come before the convolution.

    Attributes:
        scale: That BatchNorm.
    """

    def __init__(self, folded: FoldedConv2d, relu: bool) -> None:
        super().__init__()
        self._folded, self._relu = folded, relu
        self._entries: Tensor | None = None
        self.scale: Scale | None = None

    def choose(self, shape: tuple[int, ...]) -> None:
        """Decides between sparse and dense, for groups of this shape."""
        self._entries = self._folded.entries(shape, scaled=self.scale is not None)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Returns the groups that the convolution makes."""
        if self._entries is not None:
            scaling = None if self.scale is None else self.scale.scaling
            return self._folded.sparse(x, residual, self._relu, self._entries, scaling)
        if self.scale is not None:
            x = self.scale(x)
        return self._folded.dense(x, residual, self._relu)


class Scale(nn.Module):
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
            return cast(
                Tensor, run(scale, x, weight, bias, mean, variance, batch, bn.eps, self.relu)
            )
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

    def forward(self, x: Tensor) -> Tensor:
        """Returns the groups of what the pool makes."""
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

    def choose(self, samples: int) -> None:
        """Decides between sparse and dense, for so many samples."""
        if samples not in self._dense:
            x = noise(samples, self._shape[1])
            self._dense[samples] = dense_is_faster(
                f"linear {self._shape} {self._values.numel()} {samples} x{torch.get_num_threads()}",
                lambda: self._sparse(x),
                lambda: self._layer(x),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Returns (N, outputs)."""
        if x.dim() != 2 or self._dense.get(x.shape[0], True):
            return cast(Tensor, self._layer(x))
        return self._sparse(x)

    def _sparse(self, x: Tensor) -> Tensor:
        given = (self._values, self._indices, self._plan, self._layer.bias)
        return cast(Tensor, run(linear, x, *given, self._shape, lanes(), 0))
