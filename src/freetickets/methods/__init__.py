"""The methods, by name. Each is one short file: a data class of options that makes a plan."""

from ..errors import UnknownNameError
from .dense import Dense, DenseEnsemble
from .dst import DST
from .edst import EDST
from .method import PRESETS, Method, Setting
from .plan import Collect, Escape, ExplorationPlan, Phase, Plan, Run, SparseOptions, Stretch
from .recipe import RECIPES, Recipe, get_recipe
from .static import Static
from .timeline import Timeline

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (EDST, DST, Static, Dense, DenseEnsemble)
}


def get_method(name: str) -> type[Method]:
    """Looks a method up by its name.

    Example:
        >>> get_method("edst")().tickets
        3
    """
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    return METHODS[name]


__all__ = [
    "DST",
    "EDST",
    "METHODS",
    "PRESETS",
    "RECIPES",
    "Collect",
    "Dense",
    "DenseEnsemble",
    "Escape",
    "ExplorationPlan",
    "Method",
    "Phase",
    "Plan",
    "Recipe",
    "Run",
    "Setting",
    "SparseOptions",
    "Static",
    "Stretch",
    "Timeline",
    "get_method",
    "get_recipe",
]
