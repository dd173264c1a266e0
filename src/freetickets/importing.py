"""Code of one's own by its name, "module:function": only what a user has asked for is imported."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from typing import Any

from .errors import FreeTicketsError, UnknownNameError


def import_named(kind: str, name: str) -> Any:
    """Imports what `module:function` or `module:Class` names.

    Args:
        kind: What errors call it, such as "model".
        name: Its name; the module may lie in the current directory, which is looked through last.

    Raises:
        FreeTicketsError: It can't be imported.

    Example:
        >>> import_named("function", "math:prod")([2, 3])
        6
    """
    # An installed command, unlike `python -m`, does not look in the current directory. It comes
    # last: first, a file there would be taken for any module that is imported from now on.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        _check_not_hidden(kind, name, module_name)
        raise FreeTicketsError(f"{kind} {name!r}: cannot import {module_name}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            _check_not_hidden(kind, name, module_name)
            raise UnknownNameError(f"name in {module_name}", part, _public(found))
        found = getattr(found, part)
    return found


def _check_not_hidden(kind: str, name: str, module_name: str) -> None:
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
            f"{kind} {name!r}: {package} is not that of the current directory, which is looked "
            f"through last, but {origin}: give yours another name"
        )


def _public(found: object) -> list[str]:
    return [name for name in dir(found) if name[0] != "_" and callable(getattr(found, name))]
