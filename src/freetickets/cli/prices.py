"""The tables that a dry run of `reproduce` prints."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.table import Table

from ..experiments import Experiment
from ..experiments.pricing import Price, PriceList
from ..progress import duration

_COLUMNS = ("", "x dense", "paper", "differs", "FLOPs", "time", "done")


def print_prices(prices: PriceList, experiments: Iterable[Experiment]) -> None:
    """Prints a table for each experiment, and what is left to pay in all."""
    console = Console(highlight=False)
    titles = {each.name: f"{each.name}: {each.title} ({each.paper})" for each in experiments}
    for name, group in groupby(prices.prices, key=lambda price: price.experiment):
        console.print(_table(titles[name], list(group)))
    done = f"{prices.finished} of {prices.tasks} trainings are finished"
    time = "" if prices.seconds is None else f", about {duration(prices.seconds)} of training"
    print(f"{done}; {prices.flops:.3g} FLOPs are left{time}")
    if prices.seconds is None:
        print("--throughput 1e14 estimates the time on a device that does 1e14 FLOPs per second")
    if any(not price.derivable for price in prices.prices):
        print("* can't be derived: the notes of the experiment say why")


def _table(title: str, prices: list[Price]) -> Table:
    table = Table(title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for price in prices:
        far = price.difference
        table.add_row(
            price.name,
            f"{price.relative_flops:.3f}",
            "" if price.paper is None else f"{price.paper:.2f}",
            "" if far is None else f"{far:+.3f}{'' if price.derivable else ' *'}",
            f"{price.flops:.2e}",
            "" if price.seconds is None else duration(price.seconds),
            f"{price.finished}/{price.seeds}",
        )
    used = sorted({f"{price.model} on {price.data}" for price in prices})
    table.caption = "; ".join(used)
    return table
