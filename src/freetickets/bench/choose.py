"""What things take on this machine: the constants by which layers choose their way.

The model's shape is that of the shipped constants (`kernels.choice`); what is measured is how much
faster or slower this machine is, for each way and kind of direction.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import torch

from ..kernels import choice, ops
from ..kernels.choice import DIRECTIONS, Costs, Work, shipped_costs
from ..kernels.choices import words
from ..kernels.library import instruction_set
from .kernels import LEAST_SECONDS, WINOGRAD, Conv, conv_sides
from .timing import Ratio, Settings, Sides, Timing, compare, geometric_mean, interleave

# Densities at which each way is measured, the ways as `ops.conv2d` takes them, and their times.
_Time = Callable[[Work, int, Costs], float]
_WAYS: dict[str, tuple[tuple[float, ...], int, _Time]] = {
    "skipping zeros": ((0.1, 0.3), 0, choice.sparse_time),
    "Winograd": ((1.0,), WINOGRAD, choice.winograd_time),
    "PyTorch": ((1.0,), ops.ALL, choice.dense_time),
}
_KINDS = ("forward and input gradient", "weight gradient")
_LAYERS = (Conv(32, 32, 32), Conv(64, 64, 16), Conv(128, 128, 8), Conv(160, 160, 16))
_BATCH = 32

# Where it is told what the choices change.
_SHOWN_LAYERS = (*_LAYERS, Conv(160, 160, 32), Conv(320, 320, 16), Conv(640, 640, 8))
_SHOWN_DENSITIES = (1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1)
_SHOWN_BATCH = 64

Factors = Mapping[tuple[str, int], float]


def costs(settings: Settings) -> Iterator[Ratio | str]:
    """Measures, tells which choices change, and keeps the constants in the cache folder."""
    instructions = instruction_set()
    shipped = shipped_costs(instructions)
    factors: dict[tuple[str, int], float] = {}
    for way in _WAYS:
        for kind, pair in _measure(way, shipped, settings).items():
            row = compare(f"{way}, {_KINDS[kind]}", pair)
            factors[way, kind] = row.value
            yield row
    found = scaled(shipped, factors)
    yield from changes(shipped, found)
    if settings.small:
        yield "nothing is kept of tiny layers"
        return
    choice.keep_measured(instructions, found)
    yield f"kept in {choice.measured_path()}; used if FREETICKETS_COSTS=measured is set"


def scaled(shipped: Costs, factors: Factors) -> Costs:
    """The shipped constants, each times the factor of its way and kind."""

    def pair(name: str, way: str) -> tuple[float, float]:
        first, last = getattr(shipped, name)
        return first * factors[way, 0], last * factors[way, 1]

    return shipped._replace(
        weight=pair("weight", "skipping zeros"),
        visit=pair("visit", "skipping zeros"),
        visit_of=pair("visit_of", "skipping zeros"),
        product=pair("product", "Winograd"),
        transform=pair("transform", "Winograd"),
        transformed=shipped.transformed * factors["Winograd", 0],
        dense=pair("dense", "PyTorch"),
        layout=shipped.layout * factors["PyTorch", 0],
    )


def changes(before: Costs, after: Costs) -> Iterator[str]:
    """Which of some layers choose otherwise."""
    for conv in _SHOWN_LAYERS:
        for density in _SHOWN_DENSITIES:
            work = _work(conv, density, _SHOWN_BATCH)
            old, new = (words(choice.convolution_ways(work, each)) for each in (before, after))
            if old != new:
                yield f"{conv}, batch {_SHOWN_BATCH}, density {density:g}: {new}, not {old}"


def _measure(way: str, shipped: Costs, settings: Settings) -> dict[int, Sides]:
    """What a way takes on one core beside what the shipped constants say, for each kind."""
    densities, ways, time = _WAYS[way]
    found: dict[int, list[Sides]] = defaultdict(list)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for conv in (Conv(8, 8, 8),) if settings.small else _LAYERS:
            for place, sides in enumerate(conv_sides(conv, _BATCH, densities, ways).values()):
                ours = dict(list(sides.items())[: len(densities)])
                with torch.no_grad():
                    timings = interleave(ours, settings.repeats, least=LEAST_SECONDS)
                for density, timing in zip(densities, timings.values(), strict=True):
                    nanoseconds = time(_work(conv, density, _BATCH), DIRECTIONS[place], shipped)
                    told = Timing(nanoseconds * 1e-9, nanoseconds * 1e-9)
                    found[place == 2].append({"measured": timing, "as shipped": told})
    finally:
        torch.set_num_threads(threads)
    return {int(kind): geometric_mean(pairs) for kind, pairs in found.items()}


def _work(conv: Conv, density: float, batch: int) -> Work:
    geometry = conv.geometry
    nonzeros = round(density * torch.Size(geometry.shape).numel())
    return Work(geometry, nonzeros, batch, conv.size, conv.size)
