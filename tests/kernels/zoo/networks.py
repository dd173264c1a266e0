"""The zoo: small networks as people write them, each with something that may go wrong."""

from . import branches, classics, code, layers, maps
from .entry import ZOO, Entry, lived_in

__all__ = ["THEMES", "ZOO", "Entry", "lived_in"]

THEMES = (classics, branches, maps, layers, code)
