"""Work side by side: the runs of a plan, or the cells of an experiment, as processes of their own.

What is to be done is a list of `Assignment`s; a launcher is a function that does them and tells
`News`. They share only the disk: each has a checkpointed folder, so what is lost starts again.
"""

import argparse
import os

from ..errors import FreeTicketsError, check_known
from . import cluster, local
from .assignment import Assignment as Assignment
from .assignment import Launcher as Launcher
from .assignment import News as News

LAUNCHERS = ("local", "ray")
_OF_RAY = ("address", "cpus_per_task", "gpus_per_task")


def launcher_from(parsed: argparse.Namespace) -> Launcher | None:
    """The launcher that flags ask for; None for one after the other, in this process."""
    name = parsed.launcher or ("local" if parsed.jobs is not None else None)
    if name is not None:
        check_known("launcher", name, LAUNCHERS)
        if under_torchrun():
            raise FreeTicketsError(
                "torchrun trains one network, a launcher several side by side: use one of the two"
            )
    if name != "ray":
        for flag in _OF_RAY:
            if getattr(parsed, flag) is not None:
                raise FreeTicketsError(f"--{flag.replace('_', '-')} is only for --launcher ray")
        return None if name is None else on_this_machine(parsed.jobs)
    if parsed.jobs is not None:
        raise FreeTicketsError("--jobs is only for --launcher local: with Ray, use --cpus-per-task")
    cpus = 1.0 if parsed.cpus_per_task is None else parsed.cpus_per_task
    gpus = parsed.gpus_per_task or 0.0
    for flag, value in (("cpus", cpus), ("gpus", gpus)):
        if value < 0:
            raise FreeTicketsError(f"--{flag}-per-task {value:g}: give 0 or more")
    cluster.check_ray()
    return lambda assignments: cluster.launch(assignments, parsed.address, cpus, gpus)


def under_torchrun() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def on_this_machine(jobs: int | None) -> Launcher:
    """Processes on this machine: this many at a time, or one for each core."""
    return lambda assignments: local.launch(assignments, jobs or local.cores())
