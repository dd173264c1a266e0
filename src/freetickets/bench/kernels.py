"""Our kernels against PyTorch's dense ones, layer by layer."""

import math
import warnings
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import linear as linear_ops
from ..kernels import ops
from ..kernels.groups import to_groups
from ..kernels.library import Geometry, lanes
from ..kernels.operator import run
from ..sparsity.topology import random_mask
from .timing import (
    Bars,
    Ratio,
    Settings,
    Side,
    Sides,
    Timing,
    compare,
    geometric_mean,
    interleave,
    total,
    versus,
)

WINOGRAD = ops.ALL << ops.WINOGRAD

_DIRECTIONS = ("forward", "input gradient", "weight gradient")
LEAST_SECONDS = 0.005
_PYTORCH = ("PyTorch contiguous", "PyTorch channels_last")

# For each density, how many times as fast as dense the geometric mean must be, and should be.
Speedups = dict[float, tuple[float, float]]
_WIDE_FORWARD: Speedups = {0.2: (3.5, 4.5), 0.1: (6, 8), 0.05: (9, 14)}
_WIDE_TRAINING: Speedups = {0.2: (4, 5), 0.1: (7, 9), 0.05: (11, 16)}
_SMALL_TRAINING: Speedups = {0.2: (3, 4), 0.1: (5, 7)}
_LINEAR_TRAINING: Speedups = {0.1: (2.5, 4), 0.02: (8, 15)}
# For each direction of dense layers, how many times as fast as PyTorch Winograd's way must be and
# should be, with AVX-512 and without.
_DENSE = {
    "forward": Bars((1 / 2.4, 1 / 3), (1 / 1.8, 1 / 2.5)),
    "input gradient": Bars((1 / 2.4, 1 / 3), (1 / 1.8, 1 / 2.5)),
    "weight gradient": Bars((1 / 1.8, 1 / 2.5), (1 / 1.5, 1 / 2)),
}


@dataclass(frozen=True)
class Conv:
    """A convolution that keeps the size of its maps, but for its stride."""

    inputs: int
    outputs: int
    size: int
    kernel: int = 3
    stride: int = 1

    def __str__(self) -> str:
        stride = f" stride {self.stride}" if self.stride > 1 else ""
        kernel = f"{self.kernel}x{self.kernel}{stride}"
        return f"{kernel} {self.inputs}->{self.outputs} @ {self.size}x{self.size}"

    @property
    def geometry(self) -> Geometry:
        """The same for the kernels."""
        shape = (self.outputs, self.inputs, self.kernel, self.kernel)
        return Geometry(shape, (self.stride,) * 2, (self.kernel // 2,) * 2)


# The layers of WRN-28-10, and of a network that is five times as narrow.
_WIDE = (Conv(160, 160, 32), Conv(320, 320, 16), Conv(640, 640, 8))
_SMALL = (Conv(32, 32, 32), Conv(64, 64, 16), Conv(128, 128, 8))
_OTHER = (Conv(256, 256, 14, 1), Conv(160, 320, 32, stride=2), Conv(3, 64, 64, 7, stride=2))
# Networks of linear layers, by the widths of their maps.
_LINEAR = ((784, 1000, 1000, 10), (1024, 4096))


def wide(settings: Settings) -> Iterator[Ratio | str]:
    """Each direction of the convolutions of a wide network."""
    found = yield from _convolutions(_WIDE, settings, 32, list(_WIDE_FORWARD), apart=True)
    yield from _means("forward, wide convolutions", found["forward"], _WIDE_FORWARD)
    yield from _means("training, wide convolutions", found["training"], _WIDE_TRAINING)


def dense(settings: Settings) -> Iterator[Ratio | str]:
    """Each direction of the same convolutions without zeros, in Winograd's way."""
    batch = settings.batch_or(32)
    found: dict[str, list[Sides]] = defaultdict(list)
    for conv in _shrunk(_WIDE, settings):
        measured = _measure(conv, batch, [1.0], settings.repeats, WINOGRAD, "ours")
        for direction, pairs in measured.items():
            found[direction].append(pairs[1.0])
            yield compare(f"{direction}, dense {conv}, batch {batch}", pairs[1.0])
    for direction, limits in _DENSE.items():
        name = f"{direction}, dense wide convolutions: geometric mean"
        yield compare(name, geometric_mean(found[direction]), limits.here)


def small(settings: Settings) -> Iterator[Ratio | str]:
    """The convolutions of a narrow network."""
    found = yield from _convolutions(_SMALL, settings, 64, list(_SMALL_TRAINING))
    yield from _means("training, small convolutions", found["training"], _SMALL_TRAINING)


def other(settings: Settings) -> Iterator[Ratio | str]:
    """Convolutions of other kinds."""
    yield from _convolutions(_OTHER, settings, 32, [0.1])


def linear(settings: Settings) -> Iterator[Ratio | str]:
    """Networks of linear layers, and PyTorch's own sparse matrices."""
    batch, repeats = settings.batch_or(128), settings.repeats
    found: dict[float, list[Sides]] = defaultdict(list)
    for widths in _LINEAR:
        sizes = [min(width, 16) if settings.small else width for width in widths]
        name = "linear " + "-".join(map(str, sizes))
        for density in _LINEAR_TRAINING:
            about = _about(name, batch, density)
            network = LinearNetwork(sizes, batch, density)
            pair = _time({"sparse": network.train, "PyTorch": network.train_dense}, repeats)
            found[density].append(pair)
            yield compare(f"training, {about}", pair)
            rivals = network.csr_sides()
            timings = _time({"sparse": network.predict, **rivals}, repeats)
            beside = versus(timings, "sparse", rivals)
            yield compare(f"forward against torch.sparse, {about}", beside)
    yield from _means("training, linear networks", found, _LINEAR_TRAINING)


def _about(layer: object, batch: int, density: float) -> str:
    return f"{layer}, batch {batch}, density {density:g}"


@torch.no_grad()
def _time(sides: Mapping[str, Side], repeats: int) -> dict[str, Timing]:
    return interleave(sides, repeats, least=LEAST_SECONDS)


def _means(name: str, pairs: dict[float, list[Sides]], speedups: Speedups) -> Iterator[Ratio]:
    """The geometric mean of the layers, for each density."""
    for density, (must, should) in speedups.items():
        about = f"{name}: geometric mean, density {density:g}"
        yield compare(about, geometric_mean(pairs[density]), (1 / must, 1 / should))


def _shrunk(convs: Iterable[Conv], settings: Settings) -> list[Conv]:
    if not settings.small:
        return list(convs)
    return [
        Conv(min(c.inputs, 8), min(c.outputs, 8), max(2, c.size // 4), c.kernel, c.stride)
        for c in convs
    ]


# ---- convolutions


def _convolutions(
    convs: Iterable[Conv], settings: Settings, batch: int, densities: Sequence[float], *,
    apart: bool = False,
) -> Generator[Ratio, None, dict[str, dict[float, list[Sides]]]]:  # fmt: skip
    """The three directions of each convolution, one after the other ("training") or `apart`.

    Returns what was found by direction and density.
    """
    batch = settings.batch_or(batch)
    found: dict[str, dict[float, list[Sides]]] = defaultdict(lambda: defaultdict(list))
    for conv in _shrunk(convs, settings):
        layer = _measure(conv, batch, densities, settings.repeats)
        whole = {each: total([pairs[each] for pairs in layer.values()]) for each in densities}
        for direction, pairs in (layer | {"training": whole}).items():
            for density, pair in pairs.items():
                found[direction][density].append(pair)
                if apart is not (direction == "training"):
                    yield compare(f"{direction}, {_about(conv, batch, density)}", pair)
    return found


def _measure(
    conv: Conv, batch: int, densities: Sequence[float], repeats: int, ways: int = 0,
    label: str = "sparse",
) -> dict[str, dict[float, Sides]]:  # fmt: skip
    """Times each direction: all densities, and dense in PyTorch in either layout, in one loop."""
    found = {}
    for direction, sides in conv_sides(conv, batch, densities, ways).items():
        timings = _time(sides, repeats)
        found[direction] = {
            density: versus(timings, _sparse(density), _PYTORCH, label) for density in densities
        }
    return found


def conv_sides(
    conv: Conv, batch: int, densities: Sequence[float], ways: int = 0
) -> dict[str, dict[str, Side]]:
    """What is timed, by direction and side; our sides take these ways."""
    generator = torch.Generator().manual_seed(0)
    height, width = conv.geometry.output_size(conv.size, conv.size)
    x = torch.randn(batch, conv.inputs, conv.size, conv.size, generator=generator)
    gradient = torch.randn(batch, conv.outputs, height, width, generator=generator)
    weight = torch.randn(conv.geometry.shape, generator=generator)
    found: dict[str, list[Side]] = {}  # the three directions of each
    for density in densities:
        mask = _mask(weight.shape, density, generator)
        found[_sparse(density)] = our_sides(conv.geometry, weight, mask, x, gradient, ways)
    for name, layout in zip(_PYTORCH, (torch.contiguous_format, torch.channels_last), strict=True):
        tensors = [tensor.contiguous(memory_format=layout) for tensor in (weight, x, gradient)]
        found[name] = dense_sides(conv.geometry, *tensors)
    return {
        direction: {name: sides[place] for name, sides in found.items()}
        for place, direction in enumerate(_DIRECTIONS)
    }


def _sparse(density: float) -> str:
    return f"sparse {density:g}"


def our_sides(
    geometry: Geometry, weight: Tensor, mask: Tensor, x: Tensor, gradient: Tensor, ways: int
) -> list[Side]:
    """The three directions of a convolution, in these ways: see `ops.conv2d`."""
    indices = mask.flatten().nonzero().flatten().int()
    values, plan = weight[mask], ops.make_plan(indices, geometry)
    size, (shape, stride, padding) = list(x.shape[2:]), map(list, geometry)
    x, gradient = to_groups(x, lanes()), to_groups(gradient, lanes())
    layer = (shape, stride, padding, ways)
    return [
        lambda: run(ops.conv2d, x, values, indices, plan, None, *layer),
        lambda: run(ops.conv2d_input_gradient, gradient, values, indices, plan, size, *layer),
        lambda: run(ops.conv2d_weight_gradient, x, gradient, indices, plan, *layer),
    ]


def dense_sides(geometry: Geometry, weight: Tensor, x: Tensor, gradient: Tensor) -> list[Side]:
    """The same in PyTorch, where nothing is skipped."""
    stride, padding = geometry.stride, geometry.padding

    def backward(which: int) -> Tensor:
        wanted = [which == 0, which == 1, False]
        layer = (None, stride, padding, (1, 1), False, (0, 0), 1)
        return torch.ops.aten.convolution_backward(gradient, x, weight, *layer, wanted)[which]

    forward = partial(F.conv2d, x, weight, None, stride, padding)
    return [forward, partial(backward, 0), partial(backward, 1)]


def _mask(shape: torch.Size, density: float, generator: torch.Generator) -> Tensor:
    return random_mask(shape, max(1, round(density * shape.numel())), generator)


# ---- linear layers


class LinearNetwork:
    """Linear layers in a row, sparse and dense: forward, then both gradients of each layer."""

    def __init__(self, widths: Sequence[int], batch: int, density: float) -> None:
        generator = torch.Generator().manual_seed(0)
        self._x = torch.randn(batch, widths[0], generator=generator)
        self._gradient = torch.randn(batch, widths[-1], generator=generator)
        self.weights: list[Tensor] = []
        self._layers: list[tuple[Tensor, Tensor, Tensor]] = []
        for inputs, outputs in pairwise(widths):
            weight = torch.randn(outputs, inputs, generator=generator) / math.sqrt(inputs)
            mask = _mask(weight.shape, density, generator)
            indices = mask.flatten().nonzero().flatten().int()
            plan = ops.make_plan(indices, Geometry((outputs, inputs, 1, 1)))
            self.weights.append(weight)
            self._layers.append((weight[mask], indices, plan))

    def predict(self) -> Tensor:
        """The sparse forward pass."""
        return self._forward()[-1]

    def train(self) -> list[Tensor]:
        """The sparse passes; returns all gradients."""
        maps, found = self._forward(), []
        gradient = run(linear_ops.columns, self._gradient, lanes())
        for number in reversed(range(len(self._layers))):
            settings = ([True, True, False], list(self.weights[number].shape), lanes(), 0)
            given = (maps[number], None, gradient, *self._layers[number], *settings)
            gradient, weight_gradient, _ = run(linear_ops.linear_backward, *given)
            found.append(weight_gradient)
        return [gradient, *found]

    def _forward(self) -> list[Tensor]:
        maps = [run(linear_ops.columns, self._x, lanes())]
        for weight, layer in zip(self.weights, self._layers, strict=True):
            shape = list(weight.shape)
            maps.append(run(linear_ops.linear, maps[-1], *layer, None, shape, lanes(), 0, False))
        return maps

    def train_dense(self) -> list[Tensor]:
        """The dense passes; returns all gradients."""
        maps = [self._x]
        for weight in self.weights:
            maps.append(F.linear(maps[-1], weight))
        gradient, found = self._gradient, []
        for x, weight in zip(reversed(maps[:-1]), reversed(self.weights), strict=True):
            found.append(gradient.t() @ x)
            gradient = gradient @ weight
        return [gradient, *found]

    def csr_sides(self) -> dict[str, Side]:
        """The forward pass with PyTorch's sparse matrices, for inputs in either order."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrices = [
                ops.scatter(values, indices, list(weight.shape)).to_sparse_csr()
                for weight, (values, indices, _) in zip(self.weights, self._layers, strict=True)
            ]

        def side(x: Tensor) -> Tensor:
            return reduce(lambda maps, matrix: matrix @ maps, matrices, x)

        return {
            "torch.sparse CSR": partial(side, self._x.t()),
            "torch.sparse CSR of copied inputs": partial(side, self._x.t().contiguous()),
        }
