"""Reproduce the paper's tables and figures; run the same command again to continue.

freetickets reproduce --list
freetickets reproduce all --scale paper --dry-run --throughput 1e14
freetickets reproduce cifar10 diversity --scale small --data-dir data
freetickets reproduce all --scale medium --data-dir data
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ..errors import FreeTicketsError
from ..experiments import Experiment, cells
from ..experiments.grid import find_grid, grid_names
from ..launch import launcher_from, under_torchrun
from ..lock import hold
from ..methods import METHODS
from ..metrics.significance import Estimate

if TYPE_CHECKING:
    from ..experiments.grid import CellTask, Grid
    from ..experiments.runner import Runner


def run(parsed: argparse.Namespace) -> Any:
    """Lists, prices, or trains and measures."""
    grid = find_grid(parsed.scale)
    if parsed.list:
        return _list(parsed.json)
    experiments = grid.choose(parsed.names)
    _check(parsed)

    from ..experiments.runner import CellProgress, Runner, reason

    runner = Runner(grid.scale, parsed.output, parsed.data_dir, parsed.device, parsed.workers)
    tasks = grid.tasks(experiments, parsed.seeds, parsed.only)
    if not tasks:
        raise FreeTicketsError(f"these experiments don't train {', '.join(parsed.only)}")
    if parsed.dry_run:
        return _price(experiments, runner, tasks, parsed)
    for each in experiments:
        if each.provisional:
            raise FreeTicketsError(f"{each.name} can't be trained yet: {each.provisional}")
    if parsed.cell is None:
        Estimate(0.0, 1.0, 1.0).p()  # an extra that is missing is told now, not at the end
        progress = CellProgress(parsed.quiet)
        with hold(runner.folder, progress.line):
            for line in runner.missing_data:
                progress.line(line)
            # What, with a name behind it, runs one cell as this command would.
            command = ["reproduce", *parsed.names, "--quiet"]
            for flag in ("scale", "output", "device", "workers", "data_dir", "seeds"):
                if (value := getattr(parsed, flag)) is not None:
                    command += [f"--{flag.replace('_', '-')}", str(value)]
            command += [*(["--only", *parsed.only] if parsed.only else ()), "--cell"]
            failed = runner.run_all(tasks, progress, launcher_from(parsed), command)
            _show(grid, experiments, runner, len(tasks), failed, parsed.json)
        return None
    try:
        runner.run(next(task for task in tasks if task.name == parsed.cell))
    except FreeTicketsError:
        raise
    except Exception as error:  # it would fail again: the launcher need not try
        raise FreeTicketsError(reason(error)) from error
    return None


def _check(parsed: argparse.Namespace) -> None:
    for name in parsed.only:
        METHODS.find(name)
    if under_torchrun():
        raise FreeTicketsError(
            "reproduce trains each cell with one process: start it without torchrun, with --jobs "
            "or --launcher ray for several cells at a time"
        )
    launcher_from(parsed)
    if parsed.throughput is None:
        return
    if not parsed.throughput > 0:
        hint = "give FLOPs per second, such as 1e14"
        raise FreeTicketsError(f"--throughput {parsed.throughput:g}: {hint}")
    if not parsed.dry_run:
        raise FreeTicketsError("--throughput is for estimates: add --dry-run")


def _show(
    grid: Grid, experiments: list[Experiment], runner: Runner, cells: int, failed: Any,
    as_json: bool,
) -> None:  # fmt: skip
    """Writes the page, and prints what was measured and what failed."""
    from ..experiments import page
    from ..experiments.claims import judge
    from ..experiments.results import Results
    from .tables import print_measured

    results = Results.load(runner.folder, grid.timing)
    verdicts = judge(experiments, results, grid.claims)
    page.write(experiments, results, runner.folder, verdicts=verdicts)
    if as_json:
        answer = {"output": str(runner.folder), "cells": cells, "failed": failed}
        print(json.dumps(answer, indent=2))
    else:
        print_measured(experiments, results, verdicts)
        print(f"saved in {runner.folder}: results.html, results.md, cells.csv")
    if failed:
        told = f"{len(failed)} of {cells} cells failed ({'; '.join(failed)})"
        raise FreeTicketsError(f"{told}: run the same command again to retry them")


def _list(as_json: bool) -> list[dict[str, Any]] | None:
    grids = [find_grid("paper"), *map(find_grid, grid_names())]
    if as_json:
        return [
            {
                "name": each.name,
                "scale": grid.scale.name if grid.staged else None,
                "title": each.title,
                "paper": each.paper,
                "seeds": each.seeds,
                "cells": [cell.name for cell in cells(each)],
            }
            for grid in grids
            for each in grid.experiments
        ]
    from rich.console import Console
    from rich.table import Table

    for grid in grids:
        staged = f"stages of --scale {grid.scale.name}"
        table = Table(title=staged if grid.staged else "the paper's tables and figures")
        for column in ("name", "title", *(() if grid.staged else ("in the paper",))):
            table.add_column(column)
        for column in ("cells", "new cells", "seeds"):
            table.add_column(column, justify="right")
        seen: set[Any] = set()
        for each in grid.experiments:
            own = set(cells(each))
            where = () if grid.staged else (each.paper,)
            numbers = map(str, (len(own), len(own - seen), each.seeds))
            table.add_row(each.name, each.title, *where, *numbers)
            seen |= own
        Console(highlight=False).print(table)
    return None


def _price(
    experiments: list[Experiment], runner: Runner, tasks: list[CellTask], parsed: argparse.Namespace
) -> Any:
    from ..experiments.pricing import price_list
    from .tables import print_prices

    prices = price_list(experiments, runner, tasks, parsed.throughput)
    if not parsed.json:
        print(*runner.missing_data, sep="\n", end="\n" if runner.missing_data else "")
        print_prices(prices, experiments)
    return prices.as_dict()
