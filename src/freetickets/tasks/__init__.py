"""Tasks: what a network's outputs are for. Importing this package does not import torch."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..errors import FreeTicketsError, check_known
from ..metrics.score import Score
from ..registry import Registry, derived_from, import_reference
from .classification import Classification
from .task import Task, function_name

__all__ = [
    "CLASSIFICATION", "TASKS", "Classification", "Score", "Task", "make_task", "stored_task",
    "task_name",
]  # fmt: skip

# The default: data and files that say nothing of a task are for it.
CLASSIFICATION = Classification()


TASKS: Registry[type[Task]] = Registry(
    "task", "tasks", {"classification": Classification}, derived_from(Task)
)


def task_name(task: Task) -> str:
    """What files call a task: the name under which it is known, or "module:Class"."""
    return TASKS.name_of(type(task)) or function_name(type(task))


def make_task(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """Makes a task that the user asks for: here "module:Class" imports code, as a loss does."""
    kind, given = TASKS.load(name), dict(options or {})
    if isinstance(given.get("loss"), str):
        given["loss"] = import_reference("loss", given["loss"])
    return _with_options(kind, name, given)


def stored_task(info: Mapping[str, Any], given: Task | str | None = None) -> Task:
    """The task of a run or a ticket, by what it says of itself: that never imports code.

    Older ones say nothing, and are classification; `given` is a task of the user's own.
    """
    if isinstance(given, Task):
        return given
    # What a function of one's own was is told by its name: nothing but training needs it.
    options = {key: v for key, v in (info.get("task_options") or {}).items() if key != "loss"}
    if given is not None:
        return make_task(given, options)
    name = str(info.get("task") or "classification")
    return _with_options(TASKS.find(name), name, options)


def _with_options(kind: type[Task], name: str, options: Mapping[str, Any]) -> Task:
    known = [each.name for each in fields(kind)]
    for option in options:
        check_known(f"option of {name}", option, known)
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise FreeTicketsError(f"task {name!r}: {error}") from error
