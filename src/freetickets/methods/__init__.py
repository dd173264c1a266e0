"""The methods, by name. Each is one short file: a data class of options that makes a plan."""

from ..errors import UnknownNameError
from .batch_ensemble import BatchEnsemble
from .dense import Dense, DenseEnsemble
from .dst import DST
from .edst import EDST
from .fge import FGE
from .ltr import LTR
from .mc_dropout import MCDropout
from .method import PRESETS, Method, Setting
from .mimo import MIMO
from .plan import (
    Collect,
    Escape,
    ExplorationPlan,
    Phase,
    Plan,
    Prune,
    PruningPlan,
    Remember,
    Run,
    SparseOptions,
    Start,
    Stretch,
)
from .prune_finetune import PruneFineTune
from .recipe import RECIPES, Recipe, get_recipe
from .snapshot import Snapshot
from .static import Static
from .timeline import Timeline
from .treenet import TreeNet

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        EDST,
        DST,
        Static,
        LTR,
        PruneFineTune,
        Dense,
        DenseEnsemble,
        Snapshot,
        FGE,
        MCDropout,
        MIMO,
        BatchEnsemble,
        TreeNet,
    )
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
    "FGE",
    "LTR",
    "METHODS",
    "MIMO",
    "PRESETS",
    "RECIPES",
    "BatchEnsemble",
    "Collect",
    "Dense",
    "DenseEnsemble",
    "Escape",
    "ExplorationPlan",
    "MCDropout",
    "Method",
    "Phase",
    "Plan",
    "Prune",
    "PruneFineTune",
    "PruningPlan",
    "Recipe",
    "Remember",
    "Run",
    "Setting",
    "Snapshot",
    "SparseOptions",
    "Start",
    "Static",
    "Stretch",
    "Timeline",
    "TreeNet",
    "get_method",
    "get_recipe",
]
