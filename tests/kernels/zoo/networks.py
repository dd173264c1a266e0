"""The zoo: small networks as people write them, each with something that may go wrong."""

from __future__ import annotations

from . import (
    attention,
    branches,
    broadcast,
    convolutions,
    ends,
    in_place,
    patches,
    residual,
    shared,
    sizes,
    spatial,
    tricks,
    vgg,
)
from .entry import ZOO, Entry, lived_in

__all__ = ["THEMES", "ZOO", "Entry", "lived_in"]

THEMES = (
    residual, vgg, broadcast, in_place, patches, ends, sizes, branches, attention, spatial,
    convolutions, shared, tricks,
)  # fmt: skip
