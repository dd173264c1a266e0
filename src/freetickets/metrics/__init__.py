"""Scores as pure functions of member log-probabilities (M, N, C) and labels (N,)."""

from .calibration import ece
from .predictive import accuracy, ensemble_log_probs, nll

__all__ = ["accuracy", "ece", "ensemble_log_probs", "nll"]
