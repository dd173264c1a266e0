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

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "CRITERIA": "criteria",
        "initial_topology": "criteria",
        "DISTRIBUTIONS": "distribution",
        "allocate": "distribution",
        "er": "distribution",
        "erk": "distribution",
        "uniform": "distribution",
        "select_weights": "layers",
        "SPARSE_METHODS": "named",
        "SparseParts": "named",
        "sparse_method": "named",
        "Exploration": "schedule",
        "GradualPruning": "schedule",
        "SCORES": "score",
        "Score": "score",
        "WeightView": "score",
        "LayerStatistics": "network",
        "Structure": "structure",
        "parse_structure": "structure",
        "Sparsifier": "sparsifier",
    },
)
