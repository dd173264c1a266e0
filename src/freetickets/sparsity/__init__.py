"""Sparse training for any network, optimizer and loop; needs nothing of the rest of FreeTickets."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .criteria import CRITERIA as CRITERIA
    from .criteria import initial_topology as initial_topology
    from .distribution import DISTRIBUTIONS as DISTRIBUTIONS
    from .distribution import allocate as allocate
    from .distribution import er as er
    from .distribution import erk as erk
    from .distribution import uniform as uniform
    from .layers import select_weights as select_weights
    from .named import SPARSE_METHODS as SPARSE_METHODS
    from .named import SparseParts as SparseParts
    from .named import sparse_method as sparse_method
    from .network import LayerStatistics as LayerStatistics
    from .schedule import Exploration as Exploration
    from .schedule import GradualPruning as GradualPruning
    from .score import SCORES as SCORES
    from .score import Score as Score
    from .score import WeightView as WeightView
    from .sparsifier import Sparsifier as Sparsifier
    from .structure import Structure as Structure
    from .structure import parse_structure as parse_structure

_NAMES = {
    "criteria": "CRITERIA initial_topology",
    "distribution": "DISTRIBUTIONS allocate er erk uniform",
    "layers": "select_weights",
    "named": "SPARSE_METHODS SparseParts sparse_method",
    "network": "LayerStatistics",
    "schedule": "Exploration GradualPruning",
    "score": "SCORES Score WeightView",
    "sparsifier": "Sparsifier",
    "structure": "Structure parse_structure",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
