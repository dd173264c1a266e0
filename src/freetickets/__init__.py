"""FreeTickets: train one sparse network, get an ensemble."""

from typing import TYPE_CHECKING

from ._lazy import attach

if TYPE_CHECKING:
    from . import data as data
    from . import evaluation as evaluation
    from . import metrics as metrics
    from . import models as models
    from . import sparsity as sparsity
    from . import tasks as tasks
    from .calibration import Temperature as Temperature
    from .ensemble import Ensemble as Ensemble
    from .ensemble import load as load
    from .errors import FreeTicketsError as FreeTicketsError
    from .extend import register_dataset as register_dataset
    from .extend import register_explorer as register_explorer
    from .extend import register_method as register_method
    from .extend import register_model as register_model
    from .extend import register_optimizer as register_optimizer
    from .extend import register_score as register_score
    from .extend import register_task as register_task
    from .methods.dense import FGE as FGE
    from .methods.dense import Dense as Dense
    from .methods.dense import DenseEnsemble as DenseEnsemble
    from .methods.dense import PruneFineTune as PruneFineTune
    from .methods.dense import Snapshot as Snapshot
    from .methods.shared import MIMO as MIMO
    from .methods.shared import BatchEnsemble as BatchEnsemble
    from .methods.shared import MCDropout as MCDropout
    from .methods.shared import NeuroTrails as NeuroTrails
    from .methods.shared import TreeNet as TreeNet
    from .methods.sparse import DST as DST
    from .methods.sparse import EDST as EDST
    from .methods.sparse import LTR as LTR
    from .methods.sparse import Static as Static
    from .methods.sup_tickets import SupTickets as SupTickets
    from .metrics.uncertainty import Uncertainty as Uncertainty
    from .sparsity.schedule import Exploration as Exploration
    from .sparsity.sparsifier import Sparsifier as Sparsifier
    from .tasks.classification import Classification as Classification
    from .tasks.task import Task as Task
    from .ticket import Ticket as Ticket

__version__ = "0.1.0"

_HOMES = {
    "calibration": "Temperature",
    "ensemble": "Ensemble load",
    "errors": "FreeTicketsError",
    "extend": "register_dataset register_explorer register_method register_model "
    "register_optimizer register_score register_task",
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
}
__getattr__, __dir__, __all__ = attach(
    __name__, {name: home for home, names in _HOMES.items() for name in names.split()}
)
