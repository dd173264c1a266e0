"""Measure how long sparse layers and networks take on this machine, compared with dense ones.

freetickets bench kernels
freetickets bench train --only edst
freetickets bench train --figure sparsity.svg
freetickets bench choose
"""

import argparse
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench import NAMES, ON_REQUEST
from ..errors import FreeTicketsError, check_known
from ..models import check_name

if TYPE_CHECKING:
    from ..bench.timing import Ratio

_FIGURE = "sparsity"
_HEADER = "  ratio  speed-up     bar     aim  met  what, and the median of each side"


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Measures, and prints each ratio beside its bar as it comes."""
    names = _measurements(parsed)
    import torch

    from ..bench.figure import Point, check_path, draw_costs
    from ..bench.timing import Ratio, Settings, machine
    from ..storage import write_atomic

    path = None if parsed.figure is None else Path(parsed.figure)
    if path is not None:
        check_path(path)
    if parsed.threads is not None:
        torch.set_num_threads(parsed.threads)
    settings = Settings(
        parsed.repeats, torch.get_num_threads(), parsed.batch_size, parsed.model, parsed.small,
        parsed.record,
    )  # fmt: skip
    where = machine()

    def say(text: str) -> None:
        if not parsed.json:
            print(text, flush=True)

    say(", ".join(f"{key} {value}" for key, value in where.items()))
    say(_HEADER)
    results: list[Ratio | str] = []
    module = importlib.import_module(f"freetickets.bench.{parsed.what.replace('-', '_')}")
    for name in names:
        for result in getattr(module, name.replace("-", "_"))(settings):
            results.append(result)
            say(_row(result) if isinstance(result, Ratio) else result)
    if path is not None:
        points = [result for result in results if isinstance(result, Point)]
        threads = "1 thread" if where["threads"] == 1 else f"{where['threads']} threads"
        machinery = f"{where['cpu']}, {where['kernels']}, {threads}, torch {where['torch']}"
        title = f"{settings.model_or('wrn-28-10')}: {machinery}"
        write_atomic(path, draw_costs(points, title, path.suffix))
        say(f"saved in {path}")
    ratios = [result.as_json() for result in results if isinstance(result, Ratio)]
    notes = [result for result in results if isinstance(result, str)]
    return {"machine": where, "ratios": ratios, "notes": notes}


def _measurements(parsed: argparse.Namespace) -> list[str]:
    """Checks the flags, before torch is loaded, and returns what is to be measured."""
    known = NAMES[parsed.what]
    if parsed.model is not None:
        check_name(parsed.model)
        if parsed.what not in ("train", "profile", "infer"):
            raise FreeTicketsError("--model is for bench train, bench profile and bench infer")
    for name in parsed.only:
        check_known(f"measurement of bench {parsed.what}", name, known)
    if parsed.figure is None:
        return parsed.only or [name for name in known if name not in ON_REQUEST]
    if _FIGURE not in known:
        raise FreeTicketsError("--figure is only for bench train")
    return list(dict.fromkeys([*parsed.only, _FIGURE]))


def _row(ratio: "Ratio") -> str:
    told = ratio.as_json()
    bar, aim = ("-" if limit is None else f"{limit:.3f}" for limit in (ratio.bar, ratio.aim))
    met = "aim" if told["aimed"] else {True: "yes", False: "NO", None: "-"}[told["met"]]
    sides = [
        f"{side} {time:.4g} s" if time >= 1 else f"{side} {1000 * time:.4g} ms"
        for side, time in ratio.seconds.items()
    ]
    sides += [f"{side} {size / 1e6:.4g} MB" for side, size in ratio.memory.items()]
    return (
        f"{ratio.value:7.4f}  {told['speedup']:7.2f}x  {bar:>6}  {aim:>6}  {met:>3}  "
        f"{ratio.name} ({', '.join(sides)}; best {ratio.best:.4f}; repeats {ratio.repeats})"
    )
