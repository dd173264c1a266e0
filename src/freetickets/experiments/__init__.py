"""The tables and figures of the paper as data, a YAML file each in `paper/`; without torch."""

from .claims import CLAIMS
from .experiment import Cell, Correction, Experiment, Needs, Row, cells, needed
from .reading import PARTS, experiment_names, load, parse
from .results import Results

__all__ = [
    "CLAIMS", "PARTS", "Cell", "Correction", "Experiment", "Needs", "Results", "Row", "cells",
    "experiment_names", "load", "needed", "parse",
]  # fmt: skip
