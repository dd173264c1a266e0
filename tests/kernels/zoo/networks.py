"""The zoo: small networks as people write them, each with something that may go wrong."""

from . import classics, code, layers, maps
from .entry import ZOO, Entry, lived_in

__all__ = ["ZOO", "Entry", "classics", "code", "layers", "lived_in", "maps"]
