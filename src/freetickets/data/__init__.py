"""Data sets: what they are, how they are read, and the batches a network trains on.

Importing this package does not import torch: names and specs come at once, the rest on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetickets._lazy import attach

if TYPE_CHECKING:
    from freetickets.data.batches import Batches as Batches
    from freetickets.data.loading import load as load
    from freetickets.data.spec import DatasetSpec as DatasetSpec
    from freetickets.data.spec import dataset_names as dataset_names
    from freetickets.data.spec import get_spec as get_spec
    from freetickets.data.split import LazySplit as LazySplit
    from freetickets.data.split import Split as Split
    from freetickets.data.split import arrays as arrays
    from freetickets.data.split import hold_out as hold_out

__getattr__, __all__ = attach(
    __name__,
    {
        "Batches": "batches",
        "DatasetSpec": "spec",
        "LazySplit": "split",
        "Split": "split",
        "arrays": "split",
        "dataset_names": "spec",
        "get_spec": "spec",
        "hold_out": "split",
        "load": "loading",
    },
)
