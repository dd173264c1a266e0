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


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        repeats: How often each side runs.
        threads: How many threads each side has.
        batch: The samples of a batch, instead of those that the bars are meant for.
        model: The network, instead of the one that the bars are meant for.
        small: Whether everything is tiny, to see that it works; the ratios then mean nothing.
    """

    repeats: int
    threads: int
    batch: int | None = None
    model: str | None = None
    small: bool = False

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


class Limits(NamedTuple):
    """What a ratio must not exceed, and should not."""

    bar: float | None = None
    aim: float | None = None


NO_LIMITS = Limits()


class Bars(NamedTuple):
    """The limits of a ratio on machines with AVX-512, and on others."""

    avx512: Limits
    avx2: Limits

    @property
    def here(self) -> Limits:
        """Those that hold for the kernels in use."""
        return self.avx512 if available() and instruction_set() == "avx512" else self.avx2


def bars(avx512: tuple[float, float], avx2: tuple[float, float] | None = None) -> Bars:
    """Bars and aims with AVX-512, and without, if they differ."""
    return Bars(Limits(*avx512), Limits(*(avx2 or avx512)))


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

    @property
    def speedup(self) -> float:
        """How many times as fast ours is."""
        return 1 / self.value

    @property
    def met(self) -> bool | None:
        """Whether the ratio keeps below its bar; None if it has none."""
        return None if self.bar is None else self.value <= self.bar

    @property
    def aimed(self) -> bool | None:
        """Whether the ratio reaches its aim; None if it has none."""
        return None if self.aim is None else self.value <= self.aim

    def as_json(self) -> dict[str, Any]:
        """Plain values, with keys that stay."""
        names = ("name", "value", "best", "speedup", "bar", "aim", "met", "aimed")
        return {name: getattr(self, name) for name in (*names, "seconds", "memory", "repeats")}


class Timing(NamedTuple):
    """What a side took."""

    median: float
    fastest: float


class Pair(NamedTuple):
    """Our side and the one that it is compared with, both named."""

    ours: tuple[str, Timing]
    other: tuple[str, Timing]

    def ratio(
        self, name: str, repeats: int, limits: Limits = NO_LIMITS, factor: float = 1.0
    ) -> Ratio:
        """Compares the two; `factor` is how often our side runs for one run of the other."""
        ours, other = self.ours[1], self.other[1]
        return Ratio(
            name,
            factor * ours.median / other.median,
            factor * ours.fastest / other.fastest,
            *limits,
            {side: timing.median for side, timing in self},
            repeats,
        )


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
    return {name: Timing(statistics.median(found), min(found)) for name, found in times.items()}


def _calls(side: Side, least: float) -> int:
    """Warms a side up, and says how many calls of it take at least this many seconds."""
    side()
    if not least:
        return 1
    began = time.perf_counter()
    side()
    return max(1, math.ceil(least / (time.perf_counter() - began)))


def versus(timings: Mapping[str, Timing], ours: str, others: Iterable[str]) -> Pair:
    """Sets one side against the fastest of some others."""
    fastest = min(others, key=lambda name: timings[name].median)
    return Pair((ours, timings[ours]), (fastest, timings[fastest]))


def total(pairs: Sequence[Pair]) -> Pair:
    """What the pairs take one after the other."""
    return _combine(pairs, math.fsum)


def geometric_mean(pairs: Sequence[Pair]) -> Pair:
    """A pair whose ratio is the geometric mean of the pairs' ratios."""
    return _combine(pairs, statistics.geometric_mean)


def _combine(pairs: Sequence[Pair], reduce: Callable[[list[float]], float]) -> Pair:
    def combine(sides: Sequence[tuple[str, Timing]]) -> tuple[str, Timing]:
        # Which of several others was the fastest may differ: then all of them are named.
        names = " or ".join(sorted({name for name, _ in sides}))
        medians = [timing.median for _, timing in sides]
        return names, Timing(reduce(medians), reduce([timing.fastest for _, timing in sides]))

    return Pair(combine([pair.ours for pair in pairs]), combine([pair.other for pair in pairs]))


def ratio(
    name: str, over: tuple[str, Side], under: tuple[str, Side], *, repeats: int, bar: float
) -> Ratio:
    """Measures how much longer one side takes than the other."""
    timings = interleave(dict([over, under]), repeats)
    return versus(timings, over[0], [under[0]]).ratio(name, repeats, Limits(bar))


def machine() -> dict[str, Any]:
    """Says where the numbers were measured."""
    return {
        "cpu": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernels": instruction_set() if available() else "not built",
    }
