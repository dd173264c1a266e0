"""What goes by a name: methods, models, data sets, scores, optimizers. One way to find and to add.

Nothing that is read from a file imports code: a name in a run folder or a ticket is looked up among
what the process knows already, and what is installed. Only `Registry.load`, for the user's own
flag, imports "module:name".
"""

import importlib
import importlib.machinery
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, TypeVar

from .errors import FreeTicketsError, UnknownNameError

T = TypeVar("T")

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind by their names, each checked to be of this kind.

    Installed packages add theirs as entry points of the group `freetickets.<group>`; they are
    imported when they are asked for.

    Example:
        >>> shapes: Registry[int] = Registry("shape", "shapes", {"triangle": 3})
        >>> shapes.register("square", 4)
        4
        >>> shapes.find("square"), list(shapes)
        (4, ['triangle', 'square'])
    """

    def __init__(
        self, kind: str, group: str, known: Mapping[str, T] | None = None,
        check: Callable[[Any], None] | None = None,
    ) -> None:  # fmt: skip
        self.kind = kind
        self._group = f"freetickets.{group}"
        self._known = dict(known or {})
        self._check = check

    def register(self, name: str, thing: T) -> T:
        """Adds a thing under a name of its own; the same thing may be added again."""
        if self._check is not None:
            self._check(thing)
        if self._known.setdefault(name, thing) is not thing:
            there = f"there is a {self.kind} named {name!r} already"
            raise FreeTicketsError(f"{there}: give yours another name")
        return thing

    def find(self, name: str) -> T:
        """Looks a name up; nothing that is not known is imported."""
        if name in self._known:
            return self._known[name]
        if name in self._entry_points:
            return self.register(name, self._entry_points[name].load())
        if not is_reference(name):
            raise UnknownNameError(self.kind, name, self)
        module_name, _, path = name.partition(":")
        # Without a check, a file could name any function of any module to be called.
        if self._check is not None:
            with suppress(KeyError, AttributeError):  # if the user has imported it already
                return self.register(name, attrgetter(path)(sys.modules[module_name]))
        raise FreeTicketsError(
            f"the {self.kind} {name!r} is not known here: import it first, by --import "
            f"{module_name} on the command line"
        )

    def load(self, name: str) -> T:
        """Looks up a name that the user has typed, which may be "module:name" to import."""
        if name in self or not is_reference(name):
            return self.find(name)
        return self.register(name, import_reference(self.kind, name))

    def name_of(self, thing: object) -> str | None:
        """The name under which a thing is registered; None if it is not."""
        return next((name for name, known in self._known.items() if known is thing), None)

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise KeyError(name)
        return self.find(name)

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._entry_points

    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **dict.fromkeys(self._entry_points)})

    def __len__(self) -> int:
        return len({*self._known, *self._entry_points})

    @cached_property
    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        return {each.name: each for each in importlib.metadata.entry_points(group=self._group)}


def derived_from(base: type) -> Callable[[Any], None]:
    """The check of a registry of data classes that are derived from one."""

    def check(thing: Any) -> None:
        if not (isinstance(thing, type) and issubclass(thing, base) and is_dataclass(thing)):
            kind = f"a data class derived from {base.__name__}"
            raise FreeTicketsError(f"a {base.__name__.lower()} must be {kind}, not {thing!r}")

    return check


def is_reference(name: str) -> bool:
    """Whether a name says where something of the user's own is: "package.module:name"."""
    return _REFERENCE.fullmatch(name) is not None


def import_module(kind: str, module_name: str, name: str = "") -> Any:
    """Imports a module of the user's own, also from the current directory, looked through last.

    An installed command, unlike `python -m`, does not look there. It comes last: first, a file
    there would be taken for any module that is imported from now on.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ImportError as error:
        what = f"{kind} {name or module_name!r}"
        _check_not_hidden(what, module_name)
        raise FreeTicketsError(f"{what}: cannot import {module_name}: {error}") from error


def import_reference(kind: str, name: str) -> Any:
    """Imports "package.module:name", which errors call a `kind`."""
    module_name, _, path = name.partition(":")
    found = import_module(kind, module_name, name)
    for part in path.split("."):
        if not hasattr(found, part):
            _check_not_hidden(f"{kind} {name!r}", module_name)
            names = (n for n in dir(found) if n[0] != "_" and callable(getattr(found, n)))
            raise UnknownNameError(f"name in {module_name}", part, names)
        found = getattr(found, part)
    return found


def _check_not_hidden(what: str, module_name: str) -> None:
    """Raises if the current directory has the module, but another one of its name came first."""
    folders, here = [os.getcwd()], []
    for part in module_name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, folders)
        if spec is None:
            return
        here.append(spec.origin)
        folders = list(spec.submodule_search_locations or [])
    package = module_name.partition(".")[0]
    origin = getattr(getattr(sys.modules.get(package), "__spec__", None), "origin", None)
    # What has no origin is a mere folder, perhaps of data.
    if here[-1] is not None and origin not in (None, here[0]):
        raise FreeTicketsError(
            f"{what}: {package} is not that of the current directory, which is looked through "
            f"last, but {origin}: give yours another name"
        )
