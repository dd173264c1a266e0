"""Print what the paper's main tables need: arithmetic, memory and network, as Markdown.

python tools/paper_needs.py --throughput 1e13 --ranks 8
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from freetickets.experiments import Experiment, load
from freetickets.experiments.needs import Needs, hours, needs_of, ring_bytes
from freetickets.experiments.runner import Runner
from freetickets.experiments.scales import get_scale
from freetickets.experiments.stand_ins import outline
from freetickets.experiments.tasks import Task, make_tasks
from freetickets.training.job import Job

TABLES = ("cifar10", "cifar100", "imagenet")
COLUMNS = (
    "method",
    "FLOPs",
    "hours",
    "hours, masked",
    "3 x weights",
    "masks",
    "activations",
    "in all",
    "gradients a step",
    "of active weights",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table for each of the paper's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", default=TABLES, metavar="TABLE")
    parser.add_argument("--throughput", type=float, default=1e13, help="FLOPs a second of a GPU")
    parser.add_argument("--ranks", type=int, default=8, help="processes of a data-parallel run")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as nowhere:
        runner = Runner(get_scale("paper"), nowhere)
        for number, name in enumerate(parsed.tables):
            lines = table(load(name), runner, parsed.throughput, parsed.ranks)
            print(*([""] if number else []), *lines, sep="\n")
    return 0


def table(experiment: Experiment, runner: Runner, throughput: float, ranks: int) -> Iterator[str]:
    """The lines of one table, and what all its trainings take."""
    tasks = {task.cell: task for task in make_tasks([experiment], runner.scale, seeds=1)}
    jobs = {cell: make_job(runner, task) for cell, task in tasks.items()}
    found = {cell: needs_of(job) for cell, job in jobs.items()}
    (batch_size,) = {job.config.batch_size for job in jobs.values()}
    seeds = runner.scale.seeds(experiment)
    yield f"**{experiment.title}** ({experiment.paper}), batch {batch_size}"
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|---|{'---:|' * (len(COLUMNS) - 1)}"
    for row in experiment.rows:
        for cell in row.cells:
            yield f"| {' | '.join([row.label, *numbers(found[cell], throughput)])} |"
    counted = sum(needs.flops for needs in found.values())
    executed = sum(needs.executed_flops for needs in found.values())
    gradients = max(needs.weights for needs in found.values())
    yield ""
    yield (
        f"{seeds} trainings of each row: {seeds * counted:.2e} FLOPs, "
        f"{seeds * hours(counted, throughput):,.0f} GPU hours, masked "
        f"{seeds * hours(executed, throughput):,.0f}. By a ring of {ranks} ranks each sends up to "
        f"{ring_bytes(gradients, ranks) / 1e6:.0f} MB a step."
    )


def numbers(needs: Needs, throughput: float) -> list[str]:
    """The cells of one row, behind its name."""
    return [
        f"{needs.flops:.2e}".replace("e+", "e"),
        f"{hours(needs.flops, throughput):.1f}",
        f"{hours(needs.executed_flops, throughput):.1f}",
        f"{3 * needs.weights / 1e6:.0f} MB",
        f"{needs.masks / 1e6:.0f} MB",
        f"{needs.activations / 1e9:.2f} GB",
        f"{needs.memory / 1e9:.2f} GB",
        f"{needs.weights / 1e6:.0f} MB",
        f"{needs.active / 1e6:.0f} MB",
    ]


def make_job(runner: Runner, task: Task) -> Job:
    """A job that can be priced, not trained."""

    def nothing() -> Any:
        raise AssertionError("what a training needs is told without its data")

    return Job(runner.config(task), outline(runner.stand(task).data), nothing)


if __name__ == "__main__":
    sys.exit(main())
