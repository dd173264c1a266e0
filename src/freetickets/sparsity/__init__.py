"""Sparse training for any network, optimizer and loop; needs nothing of the rest of FreeTickets."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .distribution import DISTRIBUTIONS as DISTRIBUTIONS
    from .distribution import allocate as allocate
    from .distribution import er as er
    from .distribution import erk as erk
    from .distribution import uniform as uniform
    from .layers import select_weights as select_weights
    from .schedule import Exploration as Exploration
    from .score import SCORES as SCORES
    from .score import Score as Score
    from .score import WeightView as WeightView
    from .sparsifier import Sparsifier as Sparsifier
    from .statistics import LayerStatistics as LayerStatistics

__getattr__, __all__ = attach(
    __name__,
    {
        "DISTRIBUTIONS": "distribution",
        "allocate": "distribution",
        "er": "distribution",
        "erk": "distribution",
        "uniform": "distribution",
        "select_weights": "layers",
        "Exploration": "schedule",
        "SCORES": "score",
        "Score": "score",
        "WeightView": "score",
        "LayerStatistics": "statistics",
        "Sparsifier": "sparsifier",
    },
)
