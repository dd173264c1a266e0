"""What the saved predictions of runs say, and how sure a difference between two of them is."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..data import get_spec
from ..errors import FreeTicketsError
from ..evaluation import Predictions
from ..metrics import Difference
from ..metrics.score import MAIN_SCORES, Score
from ..predictions import REMAKE
from ..reading import damaged, printable
from .figures.breakdowns import ClassScores
from .figures.scores import EnsembleCurve
from .run import RunSummary

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

REPEATS: int = inspect.signature(metrics.bootstrap).parameters["repeats"].default
LEVEL: float = inspect.signature(metrics.bootstrap).parameters["level"].default


@dataclass(frozen=True)
class Unfamiliar:
    """How novel the test samples and those of one set seem, and how well that tells them apart."""

    inside: Array
    outside: Array
    roc: metrics.Roc
    auroc: float


@dataclass(frozen=True)
class Analysis:
    """All that figures and intervals need of a run's predictions; those of members are not kept.

    Attributes:
        ensemble: Its log-probabilities, (1, N, C).
        labels: The truth, (N,).
        reliability: Accuracy by confidence.
        risk: Risk by coverage.
        classes: Scores by true class.
        sizes: Scores of the first m members; None for a single network.
        inside: How novel each test sample seems, (N,).
        unfamiliar: The same of sets of no class.
    """

    ensemble: Array
    labels: Labels
    reliability: metrics.Reliability
    risk: metrics.RiskCoverage
    classes: ClassScores
    sizes: EnsembleCurve | None
    inside: Array
    unfamiliar: Mapping[str, Unfamiliar]


def analyse(run: RunSummary) -> Analysis | None:
    """Analyses the saved predictions of a run; None if it has none, or none of classes."""
    if not (run.has_predictions and run.results.task.has_classes):
        return None
    with damaged(run.predictions_path, REMAKE):
        predictions = run.load_predictions()
        members, ensemble = predictions.members(), predictions.ensemble()
        labels, inside = predictions.labels, metrics.novelty(ensemble)
        return Analysis(
            ensemble,
            labels,
            metrics.reliability(ensemble, labels),
            metrics.risk_coverage(ensemble, labels),
            _class_scores(members, ensemble, labels),
            _size_curve(predictions, members) if len(members) > 1 else None,
            inside,
            {name: _unfamiliar(run, name, inside) for name in _unknown_sets(run)},
        )


def class_names(run: RunSummary, count: int) -> list[str]:
    """What the classes of a run's data set are called; numbers where that can't be told."""
    try:
        names = get_spec(run.config.dataset, run.config.data_dir, run.config.image_size).classes
    except (FreeTicketsError, OSError):
        names = ()
    return list(map(printable, names if len(names) == count else range(count)))


def _class_scores(members: Array, ensemble: Array, labels: Labels) -> ClassScores:
    classes = ensemble.shape[-1]
    correct = ensemble[0].argmax(-1) == labels
    counts = np.bincount(labels, minlength=classes)
    right = np.bincount(labels, weights=correct, minlength=classes)
    accuracy = np.divide(right, counts, out=np.full(classes, np.nan), where=counts > 0)
    differing = metrics.disagreement_by_class(members, labels) if len(members) > 1 else None
    return ClassScores(accuracy, differing)


def _size_curve(predictions: Predictions, members: Array) -> EnsembleCurve:
    """Scores of the first m members, for every m."""
    labels, combine = predictions.labels, predictions.info["combine"]
    kl = metrics.kl_matrix(members)
    sizes = np.arange(1, len(members) + 1)
    accuracy, nll, divergence = [], [], []
    for size in sizes:
        joint = metrics.ensemble_log_probs(members[:size], combine)[None]
        accuracy.append(metrics.accuracy(joint, labels))
        nll.append(metrics.nll(joint, labels))
        # The diagonal is 0, so the sum is that of the ordered pairs.
        pairs = size * (size - 1)
        divergence.append(kl[:size, :size].sum() / pairs if pairs else np.nan)
    alone = [metrics.accuracy(member[None], labels) for member in members]
    return EnsembleCurve(
        sizes,
        np.array(accuracy),
        np.cumsum(alone) / sizes,
        np.array(nll),
        np.array(divergence),
    )


def _unknown_sets(run: RunSummary) -> list[str]:
    folder = run.folder / "predictions" / "ood"
    return [name for name in run.results.ood if (folder / f"{name}.npz").is_file()]


def _unfamiliar(run: RunSummary, name: str, inside: Array) -> Unfamiliar:
    path = run.folder / "predictions" / "ood" / f"{name}.npz"
    with damaged(path, REMAKE):
        predictions = Predictions.load(path)
        outside = metrics.novelty(predictions.ensemble())
        # Where only the first samples of a set were predicted, evaluate compares as many.
        inside = inside[: predictions.info.get("samples")]
        roc, area = metrics.roc_curve(inside, outside), metrics.auroc(inside, outside)
        return Unfamiliar(inside, outside, roc, area)


@dataclass(frozen=True)
class Differences:
    """How the scores of one run differ from those of another on the same samples.

    Attributes:
        scores: By the name of the score: the difference, its interval, and its p-value.
        mcnemar: The exact p-value of the difference in accuracy.
    """

    scores: dict[str, Difference]
    mcnemar: float


def differences(log_probs: Array, reference: Array, labels: Labels) -> Differences:
    """What the scores of one ensemble (1, N, C) are above those of another.

    Example:
        >>> right, wrong = np.log([[[0.9, 0.1]] * 6]), np.log([[[0.1, 0.9]] * 6])
        >>> found = differences(right, wrong, np.zeros(6, dtype=int))
        >>> found.scores["accuracy"].value, found.mcnemar
        (1.0, 0.03125)
    """
    return Differences(
        {it.key: _difference(it, log_probs, reference, labels) for it in MAIN_SCORES},
        metrics.mcnemar(log_probs, reference, labels),
    )


def _difference(score: Score, log_probs: Array, reference: Array, labels: Labels) -> Difference:
    try:
        return metrics.paired_difference(score, log_probs, reference, labels)
    except FreeTicketsError:  # both are infinitely wrong: no number says by how much more
        return Difference(math.nan, math.nan, math.nan, math.nan)
