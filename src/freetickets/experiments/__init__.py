"""The tables and figures of the paper as data: what each trains, measures, and found.

One YAML file a table or figure lies in `paper/`. Importing this package does not import torch.
"""

from .cell import Cell
from .experiment import Correction, Experiment, Needs, Row, cells, needed
from .reading import experiment_names, load, parse
from .results import Results
from .vocabulary import CLAIMS, PARTS, is_column, is_percentage

__all__ = [
    "CLAIMS",
    "PARTS",
    "Cell",
    "Correction",
    "Experiment",
    "Needs",
    "Results",
    "Row",
    "cells",
    "experiment_names",
    "is_column",
    "is_percentage",
    "load",
    "needed",
    "parse",
]
