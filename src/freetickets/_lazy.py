"""Public names imported on first use, so that `freetickets --help` never waits for torch."""

import importlib
import sys
from collections.abc import Callable, Mapping


def attach(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for a package, by the names of each submodule."""
    homes = {name: home for home, known in names.items() for name in known.split()}

    def __getattr__(name: str) -> object:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*homes, *vars(sys.modules[package])})

    return __getattr__, __dir__, sorted(homes)
