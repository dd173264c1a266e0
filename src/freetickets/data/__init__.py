"""Data sets: what they are, how they are read, and the batches a network trains on.

Importing this package does not import torch: names and specs come at once, the rest on first use.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .batches import Batches as Batches
    from .loading import load as load
    from .samples import DatasetSplit as DatasetSplit
    from .samples import LazySplit as LazySplit
    from .samples import Split as Split
    from .samples import arrays as arrays
    from .samples import hold_out as hold_out
    from .samples import take as take
    from .spec import DatasetSpec as DatasetSpec
    from .spec import OwnDataset as OwnDataset
    from .spec import dataset_names as dataset_names
    from .spec import get_spec as get_spec

_NAMES = {
    "batches": "Batches",
    "loading": "load",
    "spec": "DatasetSpec OwnDataset dataset_names get_spec",
    "samples": "DatasetSplit LazySplit Split arrays hold_out take",
}
__getattr__, __dir__, __all__ = attach(__name__, _NAMES)
