"""Sparse, Winograd or dense: for each layer and direction, what is fastest on machines like this.

The choice is a function of the layer, its density, the batch and the instruction set: times come
from a small model whose constants were measured once (`freetickets bench kernels`), not from a
clock. So equal runs choose alike, and equal choices have equal bits, on any number of threads.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from . import ops, winograd
from .library import Geometry, instruction_set, lanes

if TYPE_CHECKING:
    from .layers import SparseLayer

_DIRECTIONS = (ops.FORWARD, ops.INPUT_GRADIENT, ops.WEIGHT_GRADIENT)


class Costs(NamedTuple):
    """What things take on one core, in nanoseconds. Pairs: one of forward kind, weight gradient.

    Attributes:
        weight: An active weight and a sample's position that it multiplies.
        visit: A result channel's position that is visited.
        visit_of: The same, for each source channel: they are visited in blocks.
        product: A product of Winograd's, for one sample.
        transform: A number that Winograd's way transforms.
        transformed: A weight's frequency.
        dense: A weight and a sample's position, in PyTorch's convolution.
        layout: A number that is brought into PyTorch's layout, or back.
    """

    weight: tuple[float, float]
    visit: tuple[float, float]
    visit_of: tuple[float, float]
    product: tuple[float, float]
    transform: tuple[float, float]
    transformed: float
    dense: tuple[float, float]
    layout: float


# Measured on Zen 4, AVX2 by its instructions on the same machine; the baseline is an estimate.
COSTS = {
    "avx512": Costs(
        (0.0208, 0.0222), (0.45, 0.5), (0.0035, 0.0045),
        (0.0186, 0.0210), (0.20, 0.20), 0.60, (0.0165, 0.0190), 1.5,
    ),
    "avx2": Costs(
        (0.0210, 0.0238), (0.50, 0.55), (0.0036, 0.0045),
        (0.0190, 0.0205), (0.22, 0.30), 1.6, (0.0180, 0.0210), 1.5,
    ),
    "baseline": Costs(
        (0.050, 0.055), (1.0, 1.1), (0.007, 0.009),
        (0.040, 0.045), (1.2, 0.8), 2.5, (0.036, 0.042), 2.0,
    ),
}  # fmt: skip


class Work(NamedTuple):
    """A convolution and what it is done to.

    Attributes:
        geometry: The layer.
        nonzeros: Its active weights.
        samples: Of the batch, empty lanes among them.
        height: Of the maps that are read.
        width: Of the maps that are read.
    """

    geometry: Geometry
    nonzeros: int
    samples: int
    height: int
    width: int

    @property
    def results(self) -> int:
        """The positions of all samples' results."""
        height, width = self.geometry.output_size(self.height, self.width)
        return height * width * self.samples


def sparse_time(work: Work, direction: int, costs: Costs) -> float:
    """What skipping zeros takes."""
    last = direction == ops.WEIGHT_GRADIENT
    outputs, inputs = work.geometry.shape[:2]
    results, sources = (inputs, outputs) if direction == ops.INPUT_GRADIENT else (outputs, inputs)
    visits = results * (costs.visit[last] + costs.visit_of[last] * sources)
    return work.results * (work.nonzeros * costs.weight[last] + visits)


def winograd_time(work: Work, direction: int, costs: Costs, *, prepared: bool = False) -> float:
    """What Winograd's way takes; `prepared`: the weights are transformed already."""
    if not winograd.suits(work.geometry):
        return float("inf")
    last = direction == ops.WEIGHT_GRADIENT
    outputs, inputs = work.geometry.shape[:2]
    height, width = work.geometry.output_size(work.height, work.width)
    if direction == ops.INPUT_GRADIENT:
        height, width = work.height, work.width
    tiles = 36 * -(-height // 4) * -(-width // 4) * work.samples
    weights = 36 * outputs * inputs * costs.transformed * (0.25 if prepared else 1)
    numbers = tiles * (outputs + inputs) * costs.transform[last]
    return tiles * outputs * inputs * costs.product[last] + numbers + weights


def dense_time(work: Work, direction: int, costs: Costs, *, grouped: bool = True) -> float:
    """What PyTorch takes; `grouped`: maps come and go in groups, so that they must be converted."""
    last = direction == ops.WEIGHT_GRADIENT
    outputs, inputs, height, width = work.geometry.shape
    products = work.results * outputs * inputs * height * width * costs.dense[last]
    numbers = work.results * outputs + work.height * work.width * work.samples * inputs
    return products + (numbers * costs.layout if grouped else 0)


def convolution_ways(work: Work) -> int:
    """The ways in which a convolution is computed, as `ops.conv2d` takes them."""
    return _convolution_ways(work, instruction_set())


@functools.cache
def _convolution_ways(work: Work, instructions: str) -> int:
    costs = COSTS[instructions]
    ways = 0
    for direction in _DIRECTIONS:
        sparse, dense = (f(work, direction, costs) for f in (sparse_time, dense_time))
        if winograd_time(work, direction, costs) < min(sparse, dense):
            ways |= direction << ops.WINOGRAD
        elif dense < sparse:
            ways |= direction
    return ways


def predicting_way(work: Work, rows: bool) -> tuple[int, float]:
    """How the forward pass of a network that only predicts is computed, and how long it takes.

    Args:
        work: The convolution.
        rows: Whether vectors lie along rows (few samples). Then skipping zeros is slower, nothing
            must be converted for PyTorch, and there is no Winograd's way.
    """
    costs = COSTS[instruction_set()]
    sparse = sparse_time(work, ops.FORWARD, costs) * (1.6 if rows else 1)
    dense = dense_time(work, ops.FORWARD, costs, grouped=not rows)
    fast = float("inf") if rows else winograd_time(work, ops.FORWARD, costs, prepared=True)
    if fast < min(sparse, dense):
        return ops.FORWARD << ops.WINOGRAD, fast
    return (ops.FORWARD, dense) if dense < 0.9 * sparse else (0, sparse)


def plain_time(work: Work) -> float:
    """How long PyTorch takes for the same, with what follows a convolution: BatchNorm, ReLU."""
    costs = COSTS[instruction_set()]
    passes = work.results * work.geometry.shape[0]
    return dense_time(work, ops.FORWARD, costs, grouped=False) + passes


def layout_time(numbers: int) -> float:
    """How long it takes to bring so many numbers into groups, or out of them."""
    return numbers * COSTS[instruction_set()].layout / 2


def pays(ours: float, plain: float) -> bool:
    """Whether a compiled network is worth it."""
    return ours < plain


def linear_ways(inputs: int, outputs: int, nonzeros: int, samples: int) -> int:
    """The directions of a linear layer that run dense, as `linear` takes them."""
    ways = 0
    for direction in _DIRECTIONS:
        sparse, dense, zeros = linear_times(inputs, outputs, nonzeros, samples, direction)
        ways |= direction * (dense + zeros < 0.9 * sparse)
    return ways


def linear_times(
    inputs: int, outputs: int, nonzeros: int, samples: int, direction: int = ops.FORWARD
) -> tuple[float, float, float]:
    """What a linear layer takes: sparse, in PyTorch, and for writing the zeros out."""
    last = direction == ops.WEIGHT_GRADIENT
    costs = COSTS[instruction_set()]
    sparse = nonzeros * (1.5 + costs.weight[last] * samples) + outputs * (12 + 0.6 * samples)
    dense = inputs * outputs * 1.2 * costs.dense[last] * samples
    return sparse, dense, inputs * outputs * (0.25 if last else 0.55)


class Choices:
    """The ways of a network's layers; made once, then kept.

    Args:
        choose: Whether to choose; if not, everything runs sparse.
    """

    def __init__(self, choose: bool) -> None:
        self._choose = choose
        self._made: dict[str, int] = {}

    def conv2d(self, layer: SparseLayer, x: Tensor) -> int:
        """Returns what `ops.conv2d` takes, for groups."""
        if not self._choose or x.shape[4] != lanes():
            return 0
        size = (x.shape[0] * x.shape[4], x.shape[2], x.shape[3])
        key = f"conv2d {layer.geometry} {layer.values.numel()} {size}"
        if key not in self._made:
            work = Work(layer.geometry, layer.values.numel(), *size)
            self._made[key] = convolution_ways(work)
        return self._made[key]

    def linear(self, layer: SparseLayer, x: Tensor) -> int:
        """Returns what `linear` takes."""
        if not self._choose:
            return 0
        key = f"linear {layer.geometry} {layer.values.numel()} {x.shape[0]}"
        if key not in self._made:
            outputs, inputs = layer.geometry.shape[:2]
            self._made[key] = linear_ways(inputs, outputs, layer.values.numel(), x.shape[0])
        return self._made[key]

    def state_dict(self) -> dict[str, int]:
        """Returns what was chosen."""
        return dict(self._made)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Uses these choices, as far as they go."""
        self._made = {name: int(ways) for name, ways in state.items()}
