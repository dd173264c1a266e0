"""Where the time of a training step goes, and how fast its layers are beside what is possible."""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity
from torch.utils._python_dispatch import TorchDispatchMode

from ..kernels.library import Geometry, LayerStruct, MapsStruct, available, native
from .kernels import dense_sides
from .step import CIFAR, Step
from .timing import Ratio, Settings, interleave

_NETWORKS: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("wrn-28-10", CIFAR, 64), ("wrn-16-2", CIFAR, 64), ("fast-64-128-128", CIFAR, 128),
    ("cnn", (1, 28, 28), 64), ("mlp-512-512", (1, 28, 28), 128),
    ("mlp-1024-1024", (1, 28, 28), 128),
)  # fmt: skip
_SPARSITY = 0.8
_ROUNDS = 20_000  # of the loops that say what is possible: some milliseconds

# The kernels of layers, and which of their arguments is the number of weights (Winograd's: all).
_LAYERS = {
    "ft_forward": 5, "ft_input_gradient": 5, "ft_weight_gradient": 5, "ft_linear": 5,
    "ft_linear_backward": 7, "ft_winograd_weights": None, "ft_winograd_forward": None,
    "ft_winograd_gradient": None,
}  # fmt: skip
_OTHERS = {
    "ft_normalize": "norms", "ft_normalize_backward": "norms", "ft_scale": "norms",
    "ft_to_groups": "layout", "ft_from_groups": "layout",
    "ft_max_pool": "pooling", "ft_max_pool_backward": "pooling",
    "ft_take": "gathering weights", "ft_put": "gathering weights",
}  # fmt: skip
# What PyTorch's own operators are, by parts of their names; the first that fits.
_OPERATORS = (
    ("layers", ("conv", "mm", "linear")),
    ("norms", ("batch_norm",)),
    ("pooling", ("pool",)),
    ("loss", ("softmax", "nll_loss", "cross_entropy")),
    ("ReLU, additions, copies", ("",)),
)


def bound(settings: Settings) -> Iterator[Ratio | str]:
    """What a loop in registers reaches here, and one whose factors come from the nearest cache."""
    for threads in _threads(settings):
        registers, cache = _bounds(threads, settings.repeats)
        yield (
            f"the most that this machine can do on {threads} thread(s): {registers:.0f} GFLOP/s "
            f"in registers, {cache:.0f} from the first-level cache"
        )


def steps(settings: Settings) -> Iterator[Ratio | str]:
    """The parts of a training step, sparse and dense in PyTorch."""
    for step, label in _steps(settings):
        seconds, parts = _parts(step, settings.repeats)
        told = ", ".join(
            f"{part} {1000 * spent:.3g} ({spent / seconds:.0%})"
            for part, spent in sorted(parts.items(), key=lambda item: -item[1])
        )
        yield f"{label}: a step takes {1000 * seconds:.3g} ms: {told}"


def layers(settings: Settings) -> Iterator[Ratio | str]:
    """How fast the kernels of each layer are, beside PyTorch's dense ones and what is possible."""
    for step, label in _steps(settings):
        if step.sparsifier is None or not available():
            continue
        most = _bounds(torch.get_num_threads(), settings.repeats)[1]
        yield f"{label}; from the first-level cache {most:.0f} GFLOP/s would be possible"
        with _watched() as calls:
            for _ in range(1 + settings.repeats):
                step()
        for (name, layer), times in calls.items():
            if layer is not None:
                rate = layer.operations / statistics.median(times) / 1e9
                dense = 2 * layer.size * layer.positions / _dense_seconds(name, layer) / 1e9
                kernel = f"{name.removeprefix('ft_'):18}"
                reached = f"{rate:6.1f} GFLOP/s ({rate / most:.0%})"
                yield f"  {kernel} {layer}: {reached}; PyTorch's dense {dense:6.1f}"


def operators(settings: Settings) -> Iterator[Ratio | str]:
    """How many of PyTorch's operators a masked step calls beyond those of a dense one."""
    model = settings.tiny("wrn-28-10")
    counts = []
    for step in (Step(model, 2, fused=False), Step(model, 2, _SPARSITY, "masked", fused=False)):
        step()
        with _Counter() as counter:  # type: ignore[no-untyped-call]
            step()
        counts.append(counter.count)
    dense, masked = counts
    yield (
        f"operators called in a step of {model}: {dense} dense, {masked} masked, {masked - dense} "
        f"beyond ({masked / dense - 1:.2f})"
    )


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that are called and compute something: views do not."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


class _Layer(NamedTuple):
    """A layer as a kernel was called for it."""

    geometry: Geometry
    nonzeros: int
    samples: int
    source: tuple[int, int]
    directions: int

    @property
    def positions(self) -> int:
        """What one weight is multiplied with."""
        height, width = self.geometry.output_size(*self.source)
        return self.samples * height * width

    @property
    def size(self) -> int:
        outputs, inputs, height, width = self.geometry.shape
        return outputs * inputs * height * width

    @property
    def operations(self) -> int:
        return 2 * self.directions * self.nonzeros * self.positions

    def __str__(self) -> str:
        shape = "x".join(map(str, self.geometry.shape))
        return f"{shape} on {self.source[0]}x{self.source[1]}, {self.nonzeros / self.size:.0%}"


_Calls = dict[tuple[str, _Layer | None], list[float]]


@contextmanager
def _watched() -> Iterator[_Calls]:
    """Times every call of the kernels of training."""
    calls: _Calls = defaultdict(list)
    library = native()
    real: dict[str, Callable[..., Any]] = {}

    def timed(name: str, *given: Any) -> Any:
        began = time.perf_counter()
        result = real[name](*given)
        calls[name, _layer(name, given)].append(time.perf_counter() - began)
        return result

    for name in (*_LAYERS, *_OTHERS):
        real[name] = getattr(library, name)
        setattr(library, name, partial(timed, name))
    try:
        yield calls
    finally:
        for name, function in real.items():
            setattr(library, name, function)


def _layer(name: str, given: tuple[Any, ...]) -> _Layer | None:
    if name not in _LAYERS or not isinstance(given[0], LayerStruct) or "weights" in name:
        return None
    layer, maps = given[:2]
    shape = (layer.outputs, layer.inputs, layer.kernel_h, layer.kernel_w)
    strides = ((layer.stride_h, layer.stride_w), (layer.pad_h, layer.pad_w))
    geometry, place = Geometry(shape, *strides), _LAYERS[name]
    is_maps = isinstance(maps, MapsStruct)
    samples = maps.groups * maps.lanes if is_maps else maps
    source = (maps.height, maps.width) if is_maps else (1, 1)
    directions = sum(x is not None for x in given[8:10]) if name == "ft_linear_backward" else 1
    nonzeros = given[place] if place else torch.Size(shape).numel()
    return _Layer(geometry, nonzeros, samples, source, directions)


def _parts(step: Step, repeats: int) -> tuple[float, dict[str, float]]:
    """The seconds of a step, and of its parts."""
    seconds = interleave({"step": step}, repeats)["step"].median
    parts: dict[str, float] = defaultdict(float)
    if available():
        with _watched() as calls:
            for _ in range(repeats):
                step()
        for (name, _), times in calls.items():
            parts["layers" if name in _LAYERS else _OTHERS[name]] += sum(times) / repeats
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else each profile prints two lines of its own
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profile:
        for _ in range(repeats):
            step()
    for event in profile.events():
        if event.name.startswith("aten::"):
            parts[_part(event)] += event.self_cpu_time_total / 1e6 / repeats
    parts["Python and what is left"] = max(0.0, seconds - sum(parts.values()))
    return seconds, dict(parts)


def _part(event: Any) -> str:
    parent = event
    while parent is not None:
        if parent.name.startswith("Optimizer."):
            return "optimizer"
        parent = parent.cpu_parent
    return next(part for part, words in _OPERATORS if any(word in event.name for word in words))


def _steps(settings: Settings) -> Iterator[tuple[Step, str]]:
    """Each network, sparse and dense, on one thread and on all."""
    before = torch.get_num_threads()
    try:
        for name, shape, default in _NETWORKS:
            if settings.model not in (None, name):
                continue
            model, batch = settings.tiny(name), settings.batch_or(default)
            for threads in _threads(settings):
                torch.set_num_threads(threads)
                for sparsity in (_SPARSITY, 0.0):
                    side = f"S={sparsity}" if sparsity else "dense in PyTorch"
                    label = f"{model}, {side}, batch {batch}, {threads} thread(s)"
                    yield Step(model, batch, sparsity, shape=shape), label
    finally:
        torch.set_num_threads(before)


def _threads(settings: Settings) -> list[int]:
    return sorted({1, settings.threads})


def _bounds(threads: int, repeats: int) -> tuple[float, float]:
    """GFLOP/s in registers and from the first-level cache; the best of some."""
    if not available():
        return 0.0, 0.0

    def rate(from_cache: int) -> float:
        began = time.perf_counter()
        operations = native().ft_bound(from_cache, _ROUNDS, threads)
        return operations / (time.perf_counter() - began) / 1e9

    registers, cache = (max(rate(c) for _ in range(1 + repeats)) for c in (0, 1))
    return registers, cache


def _dense_seconds(name: str, layer: _Layer) -> float:
    """What PyTorch's dense kernel takes for the same direction."""
    x = torch.randn(layer.samples, layer.geometry.shape[1], *layer.source)
    weight, geometry = torch.randn(layer.geometry.shape), layer.geometry
    y = torch.nn.functional.conv2d(x, weight, None, geometry.stride, geometry.padding)
    if name.startswith("ft_linear"):
        x, y, weight = x.flatten(1), y.flatten(1), weight.flatten(1)
        if name == "ft_linear":
            return _median(lambda: x @ weight.t())
        return _median(lambda: (y @ weight, y.t() @ x)) / 2
    forward, input_gradient, weight_gradient = dense_sides(geometry, weight, x, y)
    if "forward" in name:
        return _median(forward)
    return _median(input_gradient if name == "ft_input_gradient" else weight_gradient)


def _median(side: Callable[[], Any]) -> float:
    return interleave({"dense": side}, 5)["dense"].median
