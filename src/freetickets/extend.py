"""Adding what FreeTickets does not have: one function for each kind of thing."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .data.spec import DATASETS, DatasetSpec, OwnDataset
from .methods import METHODS, Method
from .models.names import MODELS
from .sparsity.named import SCORES, SPARSE_METHODS, SparseParts
from .tasks import TASKS, Task

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from .sparsity.score import Score, ScoreFunction


def register_method(kind: type[Method]) -> type[Method]:
    """Makes a method known by its `name`; can be used as a decorator.

    Example:
        >>> from dataclasses import dataclass
        >>> from freetickets import EDST
        >>> @register_method
        ... @dataclass(frozen=True)
        ... class Patient(EDST):
        ...     "EDST that takes its time."
        ...
        ...     name = "patient-edst"
        ...     refinement: float = 2.0
        >>> METHODS.find("patient-edst")().refinement
        2.0
    """
    own = vars(kind).get("name") or f"{kind.__module__}:{kind.__qualname__}"
    return METHODS.register(own, kind)


def register_model(name: str, factory: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a network known by a name.

    The factory is given `input_shape` and `classes` if it has parameters with these names.
    """
    return MODELS.register(name, factory)


def register_dataset(spec: DatasetSpec, read: Callable[[str], tuple[Any, Any]]) -> OwnDataset:
    """Makes a data set known by its spec's name.

    `read` returns the inputs and labels of "train" or "test", as arrays or tensors.
    """
    return DATASETS.register(spec.name, OwnDataset(spec, read))


def register_explorer(name: str, parts: SparseParts) -> SparseParts:
    """Makes a way to explore known by a name, for `--explorer` and `Sparsifier.named`."""
    return SPARSE_METHODS.register(name, parts)


def register_task(name: str, kind: type[Task]) -> type[Task]:
    """Makes a task known by a name."""
    return TASKS.register(name, kind)


def register_score(name: str, score: "Score | ScoreFunction") -> "Score | ScoreFunction":
    """Makes a score known by a name, for `--prune`, `--grow` and the `Sparsifier`."""
    return SCORES.register(name, score)


def register_optimizer(name: str, kind: "type[Optimizer]") -> "type[Optimizer]":
    """Makes an optimizer known by a name; all of torch.optim already are."""
    from .training.optimizer import OPTIMIZERS

    return OPTIMIZERS.register(name, kind)
