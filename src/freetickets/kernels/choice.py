"""Sparse, Winograd or dense: for each layer and direction, what is fastest on machines like this.

The choice is a function of the layer, its density, the batch and the instruction set: times come
from a small model whose constants were measured once, not from a clock. So equal runs choose alike,
and equal choices have equal bits, on any number of threads. Two variables of the environment change
what a choice rests on: FREETICKETS_COSTS=measured takes the constants that `freetickets bench
choose` found on this machine, and FREETICKETS_WINOGRAD=0 leaves Winograd's way out.
"""

from __future__ import annotations

import functools
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ..errors import FreeTicketsError
from ..reading import damaged, read, read_json
from ..storage import write_json
from . import ops, winograd
from .library import Geometry, instruction_set, lanes

DIRECTIONS = (ops.FORWARD, ops.INPUT_GRADIENT, ops.WEIGHT_GRADIENT)


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

    def plain(self) -> dict[str, Any]:
        """The numbers by name, as JSON has them."""
        return {n: list(v) if isinstance(v, tuple) else v for n, v in self._asdict().items()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Costs | None:
        """Undoes `plain`; None if the numbers are those of another version's model."""
        if set(plain) != set(cls._fields):
            return None
        hints = get_type_hints(cls)
        return cls(**{name: read(hints[name], plain[name], name) for name in cls._fields})


# Measured on Zen 5 and on Zen 4, which computes vectors of 512 bits in halves, AVX2 by its
# instructions on the latter; the baseline is an estimate.
COSTS = {
    "avx512": Costs(
        (0.0133, 0.0140), (0.29, 0.32), (0.0022, 0.0028),
        (0.0092, 0.0110), (0.10, 0.105), 0.30, (0.0109, 0.0106), 1.0,
    ),
    "avx512 in halves": Costs(
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


class Basis(NamedTuple):
    """What choices rest on.

    Attributes:
        costs: What things take.
        source: Where that is from: "shipped" or "measured".
        winograd: Whether Winograd's way may be taken.
    """

    costs: Costs
    source: str
    winograd: bool

    @property
    def effective(self) -> Costs:
        """The costs; a way that may not be taken takes forever."""
        never = (math.inf, math.inf)
        return self.costs if self.winograd else self.costs._replace(product=never)


def basis() -> Basis:
    """What choices rest on in this process, now.

    Raises:
        FreeTicketsError: The environment asks for something that there is not.
    """
    source, winograd = (os.environ.get(f"FREETICKETS_{name}", "") for name in ("COSTS", "WINOGRAD"))
    return _basis(instruction_set(), source, winograd)


@functools.cache
def _basis(instructions: str, source: str, winograd: str) -> Basis:
    if source not in ("", "shipped", "measured"):
        raise FreeTicketsError(f"FREETICKETS_COSTS must be shipped or measured, not {source!r}")
    if winograd not in ("", "0", "1"):
        raise FreeTicketsError(f"FREETICKETS_WINOGRAD must be 0 or 1, not {winograd!r}")
    costs = _measured(instructions) if source == "measured" else shipped_costs(instructions)
    return Basis(costs, source or "shipped", winograd != "0")


def shipped_costs(instructions: str) -> Costs:
    """What things take on machines like this one, as measured once."""
    in_halves = instructions == "avx512" and _processor("cpu family") == "25"  # of AMD's only
    return COSTS["avx512 in halves" if in_halves else instructions]


def measured_path() -> Path:
    """Where the costs of this machine are kept: in `$XDG_CACHE_HOME`, else in `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "freetickets" / "costs.json"


def _measured(instructions: str) -> Costs:
    path, advice = measured_path(), "run freetickets bench choose"
    with damaged(path, advice):
        found = read(dict[str, dict[str, Any]], read_json(path) if path.exists() else {})
        plain = found.get(f"{processor()}, {instructions}")
        costs = None if plain is None else Costs.of(plain)
    if plain is None:
        raise FreeTicketsError(
            "FREETICKETS_COSTS is 'measured', but nothing was measured on this processor "
            f"({instructions}): {advice}"
        )
    if costs is None:
        raise FreeTicketsError(f"{path} belongs to another version of freetickets: {advice}")
    return costs


def keep_measured(instructions: str, costs: Costs) -> None:
    """Keeps costs, beside those of other processors and instruction sets."""
    found = read_json(measured_path()) if measured_path().exists() else {}
    write_json(measured_path(), {**found, f"{processor()}, {instructions}": costs.plain()})


def processor() -> str:
    """The name of this machine's processor."""
    return _processor("model name") or platform.processor() or platform.machine()


def _processor(fact: str) -> str | None:
    """What Linux says of the first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(fact))
    return next(found, None)


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
    """What Winograd's way takes; `prepared`: to predict, with weights transformed already."""
    if not (winograd.predicts if prepared else winograd.suits)(work.geometry):
        return float("inf")
    last = direction == ops.WEIGHT_GRADIENT
    outputs, inputs = work.geometry.shape[:2]
    height, width = work.geometry.output_size(work.height, work.width)
    if direction == ops.INPUT_GRADIENT:
        height, width = work.height, work.width
    if last:  # channels lie in the lanes there: those that fill none are multiplied all the same
        outputs, inputs = (-(-channels // lanes()) * lanes() for channels in (outputs, inputs))
    frequencies, side = (1, 1) if work.geometry.shape[2] == 1 else (36, 4)
    tiles = frequencies * -(-height // side) * -(-width // side) * work.samples
    weights = frequencies * outputs * inputs * costs.transformed * (0.25 if prepared else 1)
    numbers = tiles * (outputs + inputs) * costs.transform[last]
    return tiles * outputs * inputs * costs.product[last] + numbers + weights


def dense_time(work: Work, direction: int, costs: Costs, *, grouped: bool = True) -> float:
    """What PyTorch takes; `grouped`: maps come and go in groups, so that they must be converted."""
    last = direction == ops.WEIGHT_GRADIENT
    outputs, inputs, height, width = work.geometry.shape
    products = work.results * outputs * inputs * height * width * costs.dense[last]
    numbers = work.results * outputs + work.height * work.width * work.samples * inputs
    return products + (numbers * costs.layout if grouped else 0)


def convolution_ways(work: Work, costs: Costs) -> int:
    """The ways in which a convolution is computed, as `ops.conv2d` takes them."""
    ways = 0
    for direction in DIRECTIONS:
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
    costs = basis().effective
    sparse = sparse_time(work, ops.FORWARD, costs) * (1.6 if rows else 1)
    dense = dense_time(work, ops.FORWARD, costs, grouped=not rows)
    fast = float("inf") if rows else winograd_time(work, ops.FORWARD, costs, prepared=True)
    if fast < min(sparse, dense):
        return ops.FORWARD << ops.WINOGRAD, fast
    return (ops.FORWARD, dense) if dense < 0.9 * sparse else (0, sparse)


def plain_time(work: Work) -> float:
    """How long PyTorch takes for the same, with what follows a convolution: BatchNorm, ReLU."""
    costs = basis().effective
    passes = work.results * work.geometry.shape[0]
    return dense_time(work, ops.FORWARD, costs, grouped=False) + passes


def layout_time(numbers: int) -> float:
    """How long it takes to bring this many numbers into groups, or out of them."""
    return numbers * basis().costs.layout / 2


def halo_time(numbers: int) -> float:
    """How long it takes to give blocks a border, if they have this many numbers then."""
    return numbers * basis().costs.layout / 6


def pays(ours: float, plain: float) -> bool:
    """Whether a compiled network is worth it."""
    return ours < plain


def linear_ways(inputs: int, outputs: int, nonzeros: int, samples: int, costs: Costs) -> int:
    """The directions of a linear layer that run dense, as `linear` takes them."""
    ways = 0
    for direction in DIRECTIONS:
        sparse, dense, zeros = linear_times(inputs, outputs, nonzeros, samples, costs, direction)
        ways |= direction * (dense + zeros < 0.9 * sparse)
    return ways


def linear_times(
    inputs: int, outputs: int, nonzeros: int, samples: int, costs: Costs | None = None,
    direction: int = ops.FORWARD,
) -> tuple[float, float, float]:  # fmt: skip
    """What a linear layer takes: sparse, in PyTorch, and for writing the zeros out."""
    last = direction == ops.WEIGHT_GRADIENT
    costs = costs or basis().costs
    sparse = nonzeros * (1.5 + costs.weight[last] * samples) + outputs * (12 + 0.6 * samples)
    dense = inputs * outputs * 1.2 * costs.dense[last] * samples
    return sparse, dense, inputs * outputs * (0.25 if last else 0.55)
