"""FreeTickets: train one sparse network, get an ensemble."""

from typing import TYPE_CHECKING

from ._lazy import attach

if TYPE_CHECKING:
    from . import data, evaluation, metrics, models, sparsity, tasks
    from .calibration import Temperature
    from .ensemble import Ensemble, load
    from .errors import FreeTicketsError
    from .extend import (
        register_dataset,
        register_explorer,
        register_method,
        register_model,
        register_optimizer,
        register_score,
        register_task,
    )
    from .kernels.pruned import compile  # noqa: A004
    from .methods.dense import FGE, Dense, DenseEnsemble, PruneFineTune, Snapshot
    from .methods.shared import MIMO, BatchEnsemble, MCDropout, NeuroTrails, TreeNet
    from .methods.sparse import DST, EDST, LTR, Static
    from .methods.sup_tickets import SupTickets
    from .metrics.uncertainty import Uncertainty
    from .sparsity.schedule import Exploration
    from .sparsity.sparsifier import Sparsifier
    from .tasks.classification import Classification
    from .tasks.task import Task
    from .ticket import Ticket

__version__ = "0.1.0"

__all__ = [
    "DST", "EDST", "FGE", "LTR", "MIMO", "BatchEnsemble", "Classification", "Dense",
    "DenseEnsemble", "Ensemble", "Exploration", "FreeTicketsError", "MCDropout", "NeuroTrails",
    "PruneFineTune", "Snapshot", "Sparsifier", "Static", "SupTickets", "Task", "Temperature",
    "Ticket", "TreeNet", "Uncertainty", "compile", "data", "evaluation", "load", "metrics",
    "models", "register_dataset", "register_explorer", "register_method", "register_model",
    "register_optimizer", "register_score", "register_task", "sparsity", "tasks",
]  # fmt: skip

_NAMES = {
    "calibration": "Temperature",
    "ensemble": "Ensemble load",
    "errors": "FreeTicketsError",
    "kernels.pruned": "compile",
    "methods.dense": "FGE Dense DenseEnsemble PruneFineTune Snapshot",
    "methods.sparse": "DST EDST LTR Static",
    "methods.shared": "MIMO BatchEnsemble MCDropout NeuroTrails TreeNet",
    "methods.sup_tickets": "SupTickets",
    "metrics.uncertainty": "Uncertainty",
    "sparsity.schedule": "Exploration",
    "sparsity.sparsifier": "Sparsifier",
    "tasks.classification": "Classification",
    "tasks.task": "Task",
    "ticket": "Ticket",
    **{name: name for name in ("data", "evaluation", "metrics", "models", "sparsity", "tasks")},
    "extend": " ".join(name for name in __all__ if name.startswith("register_")),
}
__getattr__, __dir__, _ = attach(__name__, _NAMES)
