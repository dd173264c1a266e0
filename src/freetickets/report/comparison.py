"""Runs side by side: what their saved predictions say, and how sure a difference is."""

import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..data import get_spec
from ..errors import FreeTicketsError
from ..evaluation import Predictions
from ..evaluation.results import Evaluation
from ..metrics import Difference
from ..metrics.arrays import Array, Labels
from ..metrics.score import MAIN_SCORES
from ..predictions import REMAKE
from ..reading import damaged, printable
from .run import RunSummary
from .tables import kind_of

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
class EnsembleCurve:
    """How ensembles change with x, their size or sparsity; kl is NaN where one is alone."""

    x: npt.ArrayLike
    accuracy: npt.ArrayLike
    member_accuracy: npt.ArrayLike
    nll: npt.ArrayLike | None = None
    kl: npt.ArrayLike | None = None


@dataclass(frozen=True)
class Analysis:
    """All that figures and intervals need of a run's predictions; those of members are not kept."""

    ensemble: Array  # its log-probabilities, (1, N, C)
    labels: Labels
    reliability: metrics.Reliability
    risk: metrics.RiskCoverage
    # Of each class, (C,), NaN without samples: "accuracy" and, of several members, "disagreement".
    classes: Mapping[str, Array]
    sizes: EnsembleCurve | None  # scores of the first m members; None for a single network
    inside: Array  # how novel each test sample seems, (N,)
    unfamiliar: Mapping[str, Unfamiliar]  # the same of sets of no class


def analyse(run: RunSummary) -> Analysis | None:
    """Analyses the saved predictions of a run; None if it has none, or none of classes."""
    if not (run.has_predictions and run.results.task.has_classes):
        return None
    with damaged(run.predictions_path, REMAKE):
        predictions = run.load_predictions()
        members, ensemble = predictions.members(), predictions.ensemble()
        labels, inside = predictions.labels, metrics.novelty(ensemble)
        classes, correct = ensemble.shape[-1], ensemble[0].argmax(-1) == labels
        counts = np.bincount(labels, minlength=classes)
        right = np.bincount(labels, weights=correct, minlength=classes)
        accuracy = np.divide(right, counts, out=np.full(classes, np.nan), where=counts > 0)
        by_class, sizes = {"accuracy": accuracy}, None
        if len(members) > 1:
            by_class["disagreement"] = metrics.disagreement_by_class(members, labels)
            sizes = _size_curve(predictions, members)
        return Analysis(
            ensemble, labels, metrics.reliability(ensemble, labels),
            metrics.risk_coverage(ensemble, labels), by_class, sizes, inside,
            dict(_unfamiliar(run, inside)),
        )  # fmt: skip


def class_names(run: RunSummary, count: int) -> list[str]:
    """What the classes of a run's data set are called; numbers where that can't be told."""
    try:
        names = get_spec(run.config.dataset, run.config.data_dir, run.config.image_size).classes
    except (FreeTicketsError, OSError):
        names = ()
    return list(map(printable, names if len(names) == count else range(count)))


def _size_curve(predictions: Predictions, members: Array) -> EnsembleCurve:
    labels, combine = predictions.labels, predictions.info["combine"]
    kl = metrics.kl_matrix(members)
    sizes = np.arange(1, len(members) + 1)
    joint = [metrics.ensemble_log_probs(members[:size], combine)[None] for size in sizes]
    # The diagonal is 0, so the sum is that of the ordered pairs.
    divergence = [kl[:size, :size].sum() / (size * (size - 1)) for size in sizes[1:]]
    return EnsembleCurve(
        sizes,
        np.array([metrics.accuracy(it, labels) for it in joint]),
        np.cumsum([metrics.accuracy(member[None], labels) for member in members]) / sizes,
        np.array([metrics.nll(it, labels) for it in joint]),
        np.array([np.nan, *divergence]),
    )


def _unfamiliar(run: RunSummary, inside: Array) -> Iterator[tuple[str, Unfamiliar]]:
    """What was predicted of each set of no class, as far as it is saved."""
    for name in run.results.ood:
        path = run.folder / "predictions" / "ood" / f"{name}.npz"
        if path.is_file():
            with damaged(path, REMAKE):
                predictions = Predictions.load(path)
                outside = metrics.novelty(predictions.ensemble())
                # Where only the first samples of a set were predicted, evaluate compares as many.
                known = inside[: predictions.info.get("samples")]
                roc, area = metrics.roc_curve(known, outside), metrics.auroc(known, outside)
            yield name, Unfamiliar(known, outside, roc, area)


@dataclass(frozen=True)
class Differences:
    """How scores, by key, differ between two runs on the same samples; McNemar's p of accuracy."""

    scores: dict[str, Difference]
    mcnemar: float


def differences(log_probs: Array, reference: Array, labels: Labels) -> Differences:
    """What the scores of one ensemble (1, N, C) are above those of another."""
    found = {}
    for score in MAIN_SCORES:
        # Where both are infinitely wrong, no number says by how much more.
        found[score.key] = Difference(math.nan, math.nan, math.nan, math.nan)
        with contextlib.suppress(FreeTicketsError):
            found[score.key] = metrics.paired_difference(score, log_probs, reference, labels)
    return Differences(found, metrics.mcnemar(log_probs, reference, labels))


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, with the analyses of those whose predictions are saved, by name."""

    runs: Sequence[RunSummary]
    reference: RunSummary
    analyses: Mapping[str, Analysis]

    @classmethod
    def of(cls, runs: Sequence[RunSummary], reference: str | None = None) -> "Comparison":
        """Analyses runs; see `find_reference` for the reference."""
        analyses = {run.name: analysis for run in runs if (analysis := analyse(run)) is not None}
        return cls(runs, find_reference(runs, reference), analyses)

    @cached_property
    def differences(self) -> dict[str, Differences]:
        """How each run differs from the reference, of those whose predictions are saved."""
        others = dict(self.analyses)
        if (base := others.pop(self.reference.name, None)) is None:
            return {}
        found = others.items()
        return {name: differences(it.ensemble, base.ensemble, base.labels) for name, it in found}

    @property
    def results(self) -> dict[str, Evaluation]:
        """What was evaluated of each run, by its name."""
        return {run.name: run.results for run in self.runs}

    @property
    def has_classes(self) -> bool:
        """Whether the task of the runs has classes, which many sections are about."""
        return self.runs[0].results.task.has_classes

    @property
    def names(self) -> list[str]:
        """Of all runs: figures that show some of them keep the colour of each."""
        return [run.name for run in self.runs]


def each_part(of: Mapping[str, Any], part: str) -> dict[str, Any]:
    """A part of each analysis or evaluation, by the name of the run; of those that have it."""
    found = {name: getattr(it, part) for name, it in of.items()}
    return {name: value for name, value in found.items() if value is not None}


def find_reference(runs: Sequence[RunSummary], wanted: str | None = None) -> RunSummary:
    """The run that is wanted, by name or folder; else the first single dense model or first run."""
    if wanted is None:
        return next((run for run in runs if kind_of(run) == "dense"), runs[0])
    for run in runs:
        if wanted == run.name or Path(wanted).resolve() == run.folder.resolve():
            return run
    raise FreeTicketsError(
        f"the reference {wanted!r} is not one of the runs: give one of "
        f"{', '.join(run.name for run in runs)}"
    )
