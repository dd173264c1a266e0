"""How to measure: settings, bars, and timing two sides fairly on a machine that others use too."""

import math
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ..kernels.choice import processor
from ..kernels.library import available, instruction_set

Side = Callable[[], Any]
Limits = tuple[float | None, float | None]  # what a ratio must not exceed, and should not
NO_LIMITS = (None, None)
_KEYS = (
    *("name", "value", "best", "speedup", "bar", "aim", "met", "aimed"),
    *("seconds", "memory", "repeats"),
)


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        repeats: How often each side runs.
        threads: How many threads each side has.
        batch: The samples of a batch, instead of those that the bars are meant for.
        model: The network, instead of the one that the bars are meant for.
        small: Whether everything is tiny, to see that it works; the ratios then mean nothing.
        record: The metrics.json that says how many members a cascade asks.
    """

    repeats: int
    threads: int
    batch: int | None = None
    model: str | None = None
    small: bool = False
    record: str | None = None

    @property
    def few_repeats(self) -> int:
        """Repeats of what takes long."""
        return max(2, self.repeats // 5)

    def batch_or(self, default: int) -> int:
        """The samples of a batch."""
        return self.batch or (2 if self.small else default)

    def model_or(self, default: str) -> str:
        """The network."""
        return self.model or self.tiny(default)

    def tiny(self, model: str) -> str:
        """The network, or a tiny one of its kind if everything is tiny."""
        kind = model.partition("-")[0]
        tiny = {"wrn": "wrn-10-1", "cnn": "cnn-4", "mlp": "mlp-16-16", "fast": "fast-4-8-8"}
        return tiny[kind] if self.small else model


class Bars(NamedTuple):
    """The limits of a ratio on machines with AVX-512, and on others."""

    avx512: Limits
    avx2: Limits

    @property
    def here(self) -> Limits:
        """Those that hold for the kernels in use."""
        return self.avx512 if available() and instruction_set() == "avx512" else self.avx2


@dataclass(frozen=True)
class Ratio:
    """How two sides compare: what ours takes over what the other takes. Smaller is better.

    `value` is the ratio of the medians, `best` of the fastest times; it must not exceed `bar`, and
    should not exceed `aim`. `seconds` are medians, ours first; `memory` has bytes where it is not
    time that is compared.
    """

    name: str
    value: float
    best: float
    bar: float | None
    aim: float | None
    seconds: dict[str, float]
    repeats: int
    memory: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values, with keys that stay."""
        met, aimed = (None if bar is None else self.value <= bar for bar in (self.bar, self.aim))
        told = {**vars(self), "speedup": 1 / self.value, "met": met, "aimed": aimed}
        return {key: told[key] for key in _KEYS}


class Timing(NamedTuple):
    """What a side took, and how often it was measured."""

    median: float
    fastest: float
    repeats: int = 1


Sides = Mapping[str, Timing]  # ours, and the one that it is compared with


def compare(name: str, sides: Sides, limits: Limits = NO_LIMITS, factor: float = 1.0) -> Ratio:
    """Compares two sides; `factor` is how often ours runs for one run of the other."""
    ours, other = sides.values()
    return Ratio(
        name, factor * ours.median / other.median, factor * ours.fastest / other.fastest, *limits,
        {side: timing.median for side, timing in sides.items()}, ours.repeats,
    )  # fmt: skip


def interleave(
    sides: Mapping[str, Side], repeats: int, *, least: float = 0.0, pause: float = 0.0
) -> dict[str, Timing]:
    """Runs the sides in turn, after a warm-up: a slow moment of the machine falls on all alike.

    A side that takes less than `least` seconds is called several times in a row, so that neither
    the clock nor the threads' waking up weighs in. `pause` is rest before each side: the threads of
    another library that still spin, waiting for work, would take its cores.
    """
    calls = {name: _calls(side, least) for name, side in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            time.sleep(pause)
            began = time.perf_counter()
            for _ in range(calls[name]):
                side()
            times[name].append((time.perf_counter() - began) / calls[name])
    return {
        name: Timing(statistics.median(found), min(found), repeats) for name, found in times.items()
    }


def _calls(side: Side, least: float) -> int:
    """Warms a side up, and says how many calls of it take at least this many seconds."""
    side()
    if not least:
        return 1
    began = time.perf_counter()
    side()
    return max(1, math.ceil(least / (time.perf_counter() - began)))


def versus(timings: Sides, ours: str, others: Iterable[str], label: str = "") -> Sides:
    """Sets one side, under a label, against the fastest of some others."""
    fastest = min(others, key=lambda name: timings[name].median)
    return {label or ours: timings[ours], fastest: timings[fastest]}


def total(pairs: Sequence[Sides]) -> Sides:
    """What the pairs take one after the other."""
    return _combine(pairs, math.fsum)


def median(pairs: Sequence[Sides]) -> Sides:
    """A pair of what either side took in the middle of several rounds."""
    return _combine(pairs, statistics.median)


def geometric_mean(pairs: Sequence[Sides]) -> Sides:
    """A pair whose ratio is the geometric mean of the pairs' ratios."""
    return _combine(pairs, statistics.geometric_mean)


def _combine(pairs: Sequence[Sides], reduce: Callable[[list[float]], float]) -> Sides:
    found = {}
    for side in zip(*(pair.items() for pair in pairs), strict=True):
        # Which of several others was the fastest may differ: then all of them are named.
        names = " or ".join(sorted({name for name, _ in side}))
        medians, fastest = ([timing[place] for _, timing in side] for place in (0, 1))
        found[names] = Timing(reduce(medians), reduce(fastest), side[0][1].repeats)
    return found


def ratio(name: str, sides: Mapping[str, Side], repeats: int, bar: float) -> Ratio:
    """Measures how much longer the first side takes than the second."""
    return compare(name, interleave(sides, repeats), (bar, None))


def machine() -> dict[str, Any]:
    """Says where the numbers were measured."""
    return {
        "cpu": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernels": instruction_set() if available() else "not built",
    }
