"""Timing two sides of a ratio fairly on a machine that others use too."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Ratio:
    """How two sides compare.

    Attributes:
        name: What was measured.
        value: The ratio of the medians.
        best: The ratio of the fastest times.
        bar: What the ratio should not exceed.
        seconds: The median time of each side.
        repeats: How often each side ran.
    """

    name: str
    value: float
    best: float
    bar: float
    seconds: dict[str, float]
    repeats: int


def interleave(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Runs the sides in turn, after one run of each to warm up, and returns their times.

    A slow moment of the machine then falls on all sides alike.
    """
    for side in sides.values():
        side()
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - began)
    return times


def ratio(
    name: str,
    over: tuple[str, Callable[[], Any]],
    under: tuple[str, Callable[[], Any]],
    *,
    bar: float,
    repeats: int,
) -> Ratio:
    """Measures how much longer one side takes than the other."""
    times = interleave(dict([over, under]), repeats)
    above, below = times[over[0]], times[under[0]]
    return Ratio(
        name,
        statistics.median(above) / statistics.median(below),
        min(above) / min(below),
        bar,
        {side: statistics.median(values) for side, values in times.items()},
        repeats,
    )


def machine() -> dict[str, Any]:
    """Says where the numbers were measured."""
    return {
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
