"""The figures, one file each. Every function returns panels: inline SVGs that the page lays out.

They take arrays by the name of the run, in the order of the page. Where a figure shows some runs
only, `runs=` names all of the page, and each keeps its colour.
"""

from .attacks import AttackBar, attack_bars
from .classes import ClassScores, class_breakdown
from .cost import cost_against_quality
from .curves import SizeCurve, SparsityCurve, size_curves, sparsity_curves
from .layers import feature_curves, layer_densities
from .members import members_and_ensembles
from .novelty import novelty_histograms
from .pairs import disagreement_heatmaps, transfer_heatmaps
from .reliability import reliability_diagrams
from .risk import risk_curves
from .roc import roc_curves
from .shift import corruption_heatmap, severity_curves
from .training import training_curves
from .trajectories import trajectories

__all__ = [
    "AttackBar",
    "ClassScores",
    "SizeCurve",
    "SparsityCurve",
    "attack_bars",
    "class_breakdown",
    "corruption_heatmap",
    "cost_against_quality",
    "disagreement_heatmaps",
    "feature_curves",
    "layer_densities",
    "members_and_ensembles",
    "novelty_histograms",
    "reliability_diagrams",
    "risk_curves",
    "roc_curves",
    "severity_curves",
    "size_curves",
    "sparsity_curves",
    "training_curves",
    "trajectories",
    "transfer_heatmaps",
]
