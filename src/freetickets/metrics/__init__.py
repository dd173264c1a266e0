"""Scores as pure functions of member log-probabilities (M, N, C) and labels (N,).

What is scored is the ensemble, the mean of the members' probabilities; to score one member, pass
`member[None]`. Nothing here needs a model, only NumPy arrays.
"""

from .calibration import Reliability, adaptive_ece, classwise_ece, ece, reliability
from .diversity import (
    disagreement,
    disagreement_by_class,
    disagreement_matrix,
    feature_kl,
    kl,
    kl_matrix,
)
from .predictive import accuracy, brier, ensemble_log_probs, member_nll, nll, restrict_classes
from .resampling import (
    Difference,
    Interval,
    bootstrap,
    mcnemar,
    paired_difference,
    pearson,
    spearman,
)
from .shift import (
    CORRUPTION_SETS,
    AttackScores,
    ShiftScores,
    attack_scores,
    corruption_set,
    shift_scores,
    transfer_matrix,
)
from .uncertainty import (
    NOVELTY_SCORES,
    RiskCoverage,
    Roc,
    aupr,
    auroc,
    fpr95,
    novelty,
    risk_coverage,
    roc_curve,
)

__all__ = [
    "CORRUPTION_SETS", "NOVELTY_SCORES", "AttackScores", "Difference", "Interval", "Reliability",
    "RiskCoverage", "Roc", "ShiftScores", "accuracy", "adaptive_ece", "attack_scores", "aupr",
    "auroc", "bootstrap", "brier", "classwise_ece", "corruption_set", "disagreement",
    "disagreement_by_class", "disagreement_matrix", "ece", "ensemble_log_probs", "feature_kl",
    "fpr95", "kl", "kl_matrix", "mcnemar", "member_nll", "nll", "novelty", "paired_difference",
    "pearson", "reliability", "restrict_classes", "risk_coverage", "roc_curve", "shift_scores",
    "spearman", "transfer_matrix",
]  # fmt: skip
