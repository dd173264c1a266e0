"""Sparse or dense: for each layer, direction and batch size, whichever is faster here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import ops
from .library import lanes
from .linear import linear, linear_input_gradient, linear_weight_gradient

if TYPE_CHECKING:
    from .layers import SparseLayer

_DIRECTIONS = (ops.FORWARD, ops.INPUT_GRADIENT, ops.WEIGHT_GRADIENT)
# More samples than these change the times, but hardly which one is shorter.
_MOST_SAMPLES = {"conv2d": 32, "linear": 512}
_REPEATS = 3
# A dense direction must win clearly: between equals the sparse one stays, which needs no copies.
_MARGIN = 0.95

# Layers that look alike share a measurement, within a process.
_measured: dict[str, float] = {}


class Choices:
    """Which directions of a network's layers run dense; made once, then kept.

    Args:
        measure: Whether to measure; if not, everything runs sparse.
    """

    def __init__(self, measure: bool) -> None:
        self._measure = measure
        self._made: dict[str, int] = {}

    def conv2d(self, layer: SparseLayer, x: Tensor) -> int:
        """Returns the bits of `ops.conv2d`'s argument `dense`."""
        samples = x.shape[0] * x.shape[4]
        return self._choose("conv2d", layer, (samples, *x.shape[2:4]), _conv2d_trials)

    def linear(self, layer: SparseLayer, x: Tensor) -> int:
        """Returns the bits of `linear`'s argument `dense`."""
        return self._choose("linear", layer, (x.shape[0], 1, 1), _linear_trials)

    def state_dict(self) -> dict[str, int]:
        """Returns what was chosen."""
        return dict(self._made)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Uses these choices, as far as they go."""
        self._made = {name: int(dense) for name, dense in state.items()}

    def _choose(
        self, kind: str, layer: SparseLayer, size: tuple[int, int, int], trials: _Trials
    ) -> int:
        if not self._measure:
            return 0
        wanted = _DIRECTIONS if torch.is_grad_enabled() else _DIRECTIONS[:1]
        key = f"{kind} {layer.geometry} {layer.values.numel()} {size} x{torch.get_num_threads()}"
        key += "" if len(wanted) > 1 else " forward"
        if key not in self._made:
            samples = min(size[0], _MOST_SAMPLES[kind])
            with torch.no_grad():
                pairs = trials(layer, (samples, *size[1:]))
                self._made[key] = sum(
                    bit for bit in wanted if dense_is_faster(f"{key} {bit}", *pairs[bit])
                )
        return self._made[key]


_Way = Callable[[], Any]
_Trials = Callable[..., dict[int, tuple[_Way, _Way]]]


def dense_is_faster(key: str | None, sparse: _Way, dense: _Way) -> bool:
    """Whether the dense way takes clearly less time: the best of some runs, in turns.

    Args:
        key: What is measured, in words: what has the same key is measured once in a process. None
            stands for something that there is only once.
        sparse: Does it the sparse way.
        dense: Does it the dense way.
    """
    ratio = None if key is None else _measured.get(key)
    if ratio is None:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(_REPEATS):
            for way, found in zip((sparse, dense), times, strict=True):
                start = time.perf_counter()
                way()
                found.append(time.perf_counter() - start)
        ratio = min(times[1]) / min(times[0])
        if key is not None:
            _measured[key] = ratio
    return ratio < _MARGIN


def _conv2d_trials(layer: SparseLayer, size: tuple[int, int, int]) -> dict[int, tuple[_Way, _Way]]:
    samples, height, width = size
    geometry, width_of_group = layer.geometry, lanes()
    groups = -(-samples // width_of_group)
    x = noise(groups, geometry.shape[1], height, width, width_of_group)
    gradient = noise(
        groups, geometry.shape[0], *geometry.output_size(height, width), width_of_group
    )
    values, indices, plan = layer.values.detach(), layer.indices, layer.plan
    settings: Any = [list(part) for part in geometry]
    return _both_ways(
        lambda way: ops.conv2d(x, values, indices, plan, None, *settings, way),
        lambda way: ops.conv2d_input_gradient(
            gradient, values, indices, plan, [height, width], *settings, way
        ),
        lambda way: ops.conv2d_weight_gradient(x, gradient, indices, plan, *settings, way),
    )


def _linear_trials(layer: SparseLayer, size: tuple[int, int, int]) -> dict[int, tuple[_Way, _Way]]:
    outputs, inputs = layer.geometry.shape[:2]
    x, gradient = noise(size[0], inputs), noise(size[0], outputs)
    values, indices, plan = layer.values.detach(), layer.indices, layer.plan
    settings: Any = ([outputs, inputs], lanes())
    return _both_ways(
        lambda way: linear(x, values, indices, plan, None, *settings, way),
        lambda way: linear_input_gradient(gradient, values, indices, plan, *settings, way),
        lambda way: linear_weight_gradient(x, gradient, indices, plan, *settings, way),
    )


def noise(*shape: int) -> Tensor:
    """Something to compute with; the global generator belongs to the training."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _both_ways(*directions: Callable[[int], Any]) -> dict[int, tuple[_Way, _Way]]:
    return {
        bit: (partial(direction, 0), partial(direction, bit))
        for bit, direction in zip(_DIRECTIONS, directions, strict=True)
    }
