"""The figures, one file each. Every function returns panels: inline SVGs that the page lays out."""

from .cost import cost_against_quality
from .members import members_and_ensembles
from .training import training_curves

__all__ = ["cost_against_quality", "members_and_ensembles", "training_curves"]
