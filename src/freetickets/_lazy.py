"""Public names imported on first use, so that `freetickets --help` never waits for torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], list[str]]:
    """Returns `__getattr__` and `__all__` for a package whose names live in its submodules."""

    def __getattr__(name: str) -> object:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return __getattr__, sorted(homes)
