"""What the saved predictions of a run say, as far as a report shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..data import get_spec
from ..errors import FreeTicketsError
from ..evaluation import Predictions
from ..predictions import REMAKE
from ..reading import damaged, printable
from .figures import ClassScores, SizeCurve
from .run import RunSummary

Array = npt.NDArray[np.float64]


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
    labels: npt.NDArray[np.int64]
    reliability: metrics.Reliability
    risk: metrics.RiskCoverage
    classes: ClassScores
    sizes: SizeCurve | None
    inside: Array
    unfamiliar: Mapping[str, Unfamiliar]


def analyse(run: RunSummary) -> Analysis | None:
    """Analyses the saved predictions of a run; None if it has none, or none of classes."""
    if not (run.has_predictions and run.task.has_classes):
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


def _class_scores(members: Array, ensemble: Array, labels: npt.NDArray[np.int64]) -> ClassScores:
    classes = ensemble.shape[-1]
    correct = ensemble[0].argmax(-1) == labels
    counts = np.bincount(labels, minlength=classes)
    right = np.bincount(labels, weights=correct, minlength=classes)
    accuracy = np.divide(right, counts, out=np.full(classes, np.nan), where=counts > 0)
    differing = metrics.disagreement_by_class(members, labels) if len(members) > 1 else None
    return ClassScores(accuracy, differing)


def _size_curve(predictions: Predictions, members: Array) -> SizeCurve:
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
    return SizeCurve(
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
