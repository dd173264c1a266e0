"""Assignments as tasks of a Ray cluster, whose machines share the output folder."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError, MissingExtraError
from ..training.interrupt import StopRequest
from .assignment import COMMAND, MISTAKE, RETRIES, Assignment, Log, News, stopped

_POLL = 0.2
_GRACE = 60.0  # seconds for tasks to save and end


def check_ray() -> None:
    """Raises if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("--launcher ray", "ray")


def launch(
    assignments: Sequence[Assignment],
    address: str | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    retries: int = RETRIES,
) -> Generator[News, None, None]:
    """Does assignments wherever the cluster has room; tells of them until all have ended.

    If it is left before the end, the tasks save and stop; so do they on Ctrl-C or SIGTERM
    (StoppedError). Without an address it is `RAY_ADDRESS`, or a new cluster on this machine. Ray
    reserves cores, which are also the number of threads, and devices for each assignment.
    """
    check_ray()
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    where = os.getcwd()
    task = ray.remote(_task(where)).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
    running: dict[Any, Log] = {}

    def start(assignment: Assignment, lost: int) -> None:
        log, path = Log(assignment, lost), str(assignment.log.resolve())
        running[task.remote(assignment.arguments, path, max(1, int(cpus)))] = log

    try:
        with StopRequest() as stop:
            for assignment in assignments:
                start(assignment, 0)
            while running and not stop.made:
                ended, _ = ray.wait(list(running), timeout=_POLL)
                for log in running.values():
                    yield from log.news()
                for reference in ended:
                    log = running.pop(reference)
                    code, log.error = _outcome(ray, reference)
                    yield from log.news()
                    news = log.end(code, retries)
                    if news.kind == "again":
                        start(news.assignment, log.lost + 1)
                    yield news
            if stop.made:
                raise stopped()
    finally:
        _stop(ray, list(running))
        if ours:
            ray.shutdown()


def _task(where: str) -> Callable[[Sequence[str], str, int], int]:
    """A function for Ray, which does an assignment in a folder."""
    is_on_path, command = not {"", where}.isdisjoint(sys.path), COMMAND

    def work(arguments: Sequence[str], log: str, threads: int) -> int:
        # Ray has put the folder of the command first on the path of this process: a `yaml.py` that
        # lies there would run. No code of ours may be imported before the folder is out of the way.
        # So this is a function within a function: Ray sends it whole, and not its name alone.
        sys.path[:] = [each for each in sys.path if each != where]
        if is_on_path:
            sys.path.append(where)
        from importlib import import_module

        code: int = import_module(command).work(arguments, log, where, threads)
        return code

    return work


def _connect(ray: Any, address: str | None) -> None:
    # Ray puts the current folder first on the path of its processes, and may import (pydantic, say)
    # before they do anything of ours: let it be the folder that we are imported from.
    where = os.getcwd()
    os.chdir(Path(__file__).parents[2])
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, RuntimeError, ValueError) as error:
        line = str(error).strip().partition("\n")[0]
        raise FreeTicketsError(f"can't reach a Ray cluster at {address}: {line}") from error
    finally:
        os.chdir(where)


def _outcome(ray: Any, reference: Any) -> tuple[int, str]:
    """How a task ended: as what exit code, and by which error, if that is not in its log."""
    try:
        return int(ray.get(reference)), ""
    except ray.exceptions.RayTaskError as error:  # not even its log could be written
        return MISTAKE, f"{type(error.cause).__name__}: {error.cause}".partition("\n")[0]
    except ray.exceptions.RayError:  # its process or machine was lost
        return 1, ""


def _stop(ray: Any, references: list[Any]) -> None:
    """Asks tasks to save and end, as Ctrl-C would; those that don't are ended."""
    for reference in references:
        ray.cancel(reference)
    deadline = time.monotonic() + _GRACE
    while references and time.monotonic() < deadline:
        _, references = ray.wait(references, num_returns=len(references), timeout=_POLL)
    for reference in references:
        ray.cancel(reference, force=True)
