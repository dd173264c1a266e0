"""Assignments as tasks of a Ray cluster, whose machines share the output folder."""

import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError, MissingExtraError
from .assignment import COMMAND, GRACE, MISTAKE, RETRIES, Assignment, Log, News, follow


def check_ray() -> None:
    """Raises if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("--launcher ray", "ray")


def launch(
    assignments: Sequence[Assignment], address: str | None = None, cpus: float = 1, gpus: float = 0
) -> Generator[News, None, None]:
    """Does assignments wherever the cluster has room: see `follow`.

    Without an address it is `RAY_ADDRESS`, or a new cluster on this machine. Ray reserves cores,
    which are also the number of threads, and devices for each assignment.
    """
    check_ray()
    import ray

    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    task = ray.remote(_task(os.getcwd())).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)

    def start(log: Log) -> _Task:
        path = str(log.assignment.log.resolve())
        return _Task(ray, log, task.remote(log.assignment.arguments, path, max(1, int(cpus))))

    try:  # all at once: those for which there is no room wait in the cluster
        yield from follow(assignments, start, len(assignments), RETRIES)
    finally:
        if ours:
            ray.shutdown()


class _Task:
    def __init__(self, ray: Any, log: Log, reference: Any) -> None:
        self.log = log
        self._ray, self._reference, self._asked = ray, reference, False

    def poll(self) -> int | None:
        if not self._has_ended(within=0):
            return None
        try:
            return int(self._ray.get(self._reference))
        except self._ray.exceptions.RayTaskError as error:  # not even its log could be written
            self.log.error = f"{type(error.cause).__name__}: {error.cause}".partition("\n")[0]
            return MISTAKE
        except self._ray.exceptions.RayError:  # its process or machine was lost
            return 1

    def ask_to_stop(self) -> None:
        if not self._asked and not self._has_ended(within=0):
            self._ray.cancel(self._reference)
        self._asked = True

    def kill(self) -> None:
        self._ray.cancel(self._reference, force=True)

    def end(self) -> None:
        self.ask_to_stop()
        if not self._has_ended(within=GRACE):
            self.kill()

    def _has_ended(self, within: float) -> bool:
        return bool(self._ray.wait([self._reference], timeout=within)[0])


def _task(where: str) -> Callable[[Sequence[str], str, int], int]:
    is_on_path, command = not {"", where}.isdisjoint(sys.path), COMMAND

    def work(arguments: Sequence[str], log: str, threads: int) -> int:
        # Ray has put the folder of the command first on the path of this process: a `yaml.py` that
        # lies there would run. No code of ours may be imported before the folder is out of the way.
        # So this is a function within a function: Ray sends it whole, and not its name alone.
        sys.path[:] = [each for each in sys.path if each != where]
        if is_on_path:
            sys.path.append(where)
        from importlib import import_module

        return import_module(command).work(arguments, log, where, threads)

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
