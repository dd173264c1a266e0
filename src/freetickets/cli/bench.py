"""Measure ratios on this machine: what sparse training costs beside dense training.

freetickets bench train
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("what", choices=["train"], help="which benchmark")
    parser.add_argument("--only", help="one measurement: masks, loader or exploration")
    parser.add_argument("--repeats", type=int, default=10, help="runs of each side (default: 10)")


def run(parsed: argparse.Namespace) -> None:
    """Measures, and prints each ratio beside its bar."""
    from ..bench.timing import machine
    from ..bench.train import MEASUREMENTS
    from ..errors import FreeTicketsError, UnknownNameError

    if parsed.repeats < 1:
        raise FreeTicketsError(f"--repeats must be at least 1, not {parsed.repeats}")
    if parsed.only is not None and parsed.only not in MEASUREMENTS:
        raise UnknownNameError("measurement", parsed.only, MEASUREMENTS)
    names = [parsed.only] if parsed.only else list(MEASUREMENTS)
    where = machine()
    if not parsed.json:
        print(", ".join(f"{key} {value}" for key, value in where.items()))
    ratios = []
    for name in names:
        result = MEASUREMENTS[name](parsed.repeats)
        ratios.append(asdict(result))
        if not parsed.json:
            times = ", ".join(f"{side} {time:.4g} s" for side, time in result.seconds.items())
            print(
                f"{result.name}: {result.value:.4f} (best {result.best:.4f}, bar {result.bar}; "
                f"{result.repeats} repeats; {times})",
                flush=True,
            )
    if parsed.json:
        print(json.dumps({"machine": where, "ratios": ratios}, indent=2))
