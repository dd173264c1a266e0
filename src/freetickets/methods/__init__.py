"""The methods, by name. Each is one short file: a data class of options that makes a plan."""

from ..errors import FreeTicketsError
from ..registry import Registry, derived_from
from .dense import FGE, Dense, DenseEnsemble, PruneFineTune, Snapshot
from .events import Collect, Escape, Event, Prune, Remember
from .method import PRESETS, Method, Setting
from .plan import ExplorationPlan, Phase, Plan, PruningPlan, Run, SparseOptions, Start, Stretch
from .recipe import RECIPES, Recipe, get_recipe
from .shared import MIMO, BatchEnsemble, MCDropout, NeuroTrails, TreeNet
from .sparse import DST, EDST, LTR, Static
from .sup_tickets import SupTickets
from .timeline import Timeline

# In the order in which they are listed.
_OURS: tuple[type[Method], ...] = (
    EDST, DST, Static, LTR, PruneFineTune, Dense, DenseEnsemble, Snapshot, FGE,
    MCDropout, MIMO, BatchEnsemble, TreeNet, SupTickets, NeuroTrails,
)  # fmt: skip


METHODS: Registry[type[Method]] = Registry(
    "method", "methods", {method.name: method for method in _OURS}, derived_from(Method)
)


def get_method(name: str) -> type[Method]:
    """Looks a method up by its name.

    Example:
        >>> get_method("edst")().tickets
        3
    """
    return METHODS.find(name)


def method_name(method: Method) -> str:
    """The name of a method in files: its registered name, its own, or where its class is.

    Raises:
        FreeTicketsError: Its name is another method's.

    Example:
        >>> class Mine(EDST):
        ...     "A method of one's own, without a name."
        >>> method_name(EDST()), method_name(Mine())
        ('edst', 'freetickets.methods:Mine')
    """
    kind = type(method)
    place = f"{kind.__module__}:{kind.__qualname__}"
    name: str = METHODS.name_of(kind) or vars(kind).get("name") or place
    if METHODS.get(name, kind) is not kind:
        there = f"there is a method named {name!r} already"
        raise FreeTicketsError(f"{there}: give {kind.__qualname__} another name")
    return name


__all__ = [
    "DST", "EDST", "FGE", "LTR", "METHODS", "MIMO", "PRESETS", "RECIPES", "BatchEnsemble",
    "Collect", "Dense", "DenseEnsemble", "Escape", "Event", "ExplorationPlan", "MCDropout",
    "Method", "NeuroTrails", "Phase", "Plan", "Prune", "PruneFineTune", "PruningPlan", "Recipe",
    "Remember", "Run", "Setting", "Snapshot", "SparseOptions", "Start", "Static", "Stretch",
    "SupTickets", "Timeline", "TreeNet", "get_method", "get_recipe", "method_name",
]  # fmt: skip
