"""Our metrics beside those of other packages, and all of them from a file of predictions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import metrics
from ..errors import FreeTicketsError
from ..evaluation import Predictions
from ..metrics.arrays import Array, Labels
from . import metric_peers as peers
from .timing import Pair, Ratio, Settings, interleave, total, versus

# What all metrics of a saved file may take on one core.
_ALLOWED_SECONDS = 2.0


class Case(NamedTuple):
    """A metric, and a peer that returns the same value or values."""

    name: str
    ours: Callable[..., Any]
    peer: Callable[..., Any]
    by: str


# fmt: off
_CASES = (
    Case("accuracy", metrics.accuracy, peers.accuracy, "scikit-learn"),
    Case("nll", metrics.nll, peers.nll, "scikit-learn"),
    Case("brier", metrics.brier, peers.brier, "NumPy, one-hot"),
    Case("ece", metrics.ece, peers.ece, "torchmetrics"),
    Case("adaptive_ece", metrics.adaptive_ece, peers.adaptive_ece, "NumPy, split"),
    Case("classwise_ece", metrics.classwise_ece, peers.classwise_ece, "NumPy, loops"),
    Case("reliability", lambda *data: _filled(*data), peers.reliability, "scikit-learn"),
    Case("disagreement", lambda logs, _: metrics.disagreement(logs), peers.disagreement, "pairs"),
    Case("disagreement_by_class", metrics.disagreement_by_class, peers.disagreement_by_class,
         "pairs"),
    Case("kl_matrix", lambda logs, _: metrics.kl_matrix(logs), peers.kl, "torchmetrics"),
    Case("novelty: max_probability", lambda logs, _: metrics.novelty(logs), peers.max_probability,
         "NumPy"),
    Case("novelty: entropy", lambda logs, _: metrics.novelty(logs, "entropy"), peers.entropy,
         "SciPy"),
    Case("novelty: mutual_information", lambda logs, _: metrics.novelty(logs, "mutual_information"),
         peers.mutual_information, "SciPy"),
    Case("risk_coverage", lambda *data: metrics.risk_coverage(*data).area, peers.risk_coverage,
         "NumPy, sorted"),
    Case("bootstrap of accuracy", lambda *data: metrics.bootstrap(metrics.accuracy, *data).value,
         peers.bootstrap, "SciPy"),
)
# fmt: on
_OOD_CASES = (
    Case("auroc", metrics.auroc, peers.auroc, "scikit-learn"),
    Case("aupr", metrics.aupr, peers.aupr, "scikit-learn"),
    Case("fpr95", metrics.fpr95, peers.fpr95, "scikit-learn"),
)


def scores(settings: Settings) -> Iterator[Ratio | str]:
    """Each metric of an ensemble against a peer, both from the members' log-probabilities."""
    logs, labels = draw(settings)
    members, samples, classes = logs.shape
    yield from _compare(_CASES, settings, (logs, labels), f"{members} x {samples} x {classes}")


def ood(settings: Settings) -> Iterator[Ratio | str]:
    """Each score of novelty detection against a peer, both from the novelty of samples."""
    rng = np.random.default_rng(0)
    sizes = (20, 30) if settings.small else (10_000, 26_032)  # the test sets of CIFAR and SVHN
    sides = tuple(rng.normal(place, size=size) for place, size in enumerate(sizes))
    yield from _compare(_OOD_CASES, settings, sides, f"{sizes[0]} inside, {sizes[1]} outside")


def saved(settings: Settings) -> Iterator[Ratio | str]:
    """All metrics from a file of predictions, as evaluate computes them, against 2 seconds."""
    logs, labels = draw(settings)
    members, samples, classes = logs.shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "predictions.npz")
        info = {"dataset": "drawn", "combine": "probabilities"}
        Predictions(logs.astype(np.float32), labels, info).save(path)
        runs = [score_file(path) for _ in range(settings.repeats)]
    took = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
    for name, seconds in took.items():
        yield f"{1000 * seconds:9.1f} ms  {name}"
    sums = [sum(run.values()) for run in runs]
    yield Ratio(
        f"all metrics from a saved file / {_ALLOWED_SECONDS:g} s of one core "
        f"({members} x {samples} x {classes})",
        float(np.median(sums)) / _ALLOWED_SECONDS,
        min(sums) / _ALLOWED_SECONDS,
        1.0,
        None,
        {"all": float(np.median(sums)), "allowed": _ALLOWED_SECONDS},
        settings.repeats,
    )


def score_file(path: Path) -> dict[str, float]:
    """Reads predictions, computes every metric of them, and says what each took of a core."""
    took: dict[str, float] = {}

    def timed(name: str, work: Callable[..., Any], *inputs: Any) -> Any:
        # The seconds of a core, whoever else uses the machine: a bar in seconds has no other side
        # that would wait as long.
        began = time.process_time()
        found = work(*inputs)
        took[name] = time.process_time() - began
        return found

    predictions = timed("reading the file", Predictions.load, path)
    labels = predictions.labels
    members = timed("members in float64", predictions.members)
    # Once; what scores the ensemble only then has one member to go through.
    ensemble = timed("the ensemble", predictions.ensemble)
    for metric in (
        *(metrics.accuracy, metrics.nll, metrics.brier, metrics.risk_coverage),
        *(metrics.ece, metrics.adaptive_ece, metrics.classwise_ece, metrics.reliability),
    ):
        timed(metric.__name__, metric, ensemble, labels)
    timed("member_nll", metrics.member_nll, members, labels)
    timed("disagreement", metrics.disagreement, members)
    timed("disagreement_matrix", metrics.disagreement_matrix, members)
    timed("disagreement_by_class", metrics.disagreement_by_class, members, labels)
    timed("kl_matrix", metrics.kl_matrix, members)
    for score in metrics.NOVELTY_SCORES:
        of_members = score == "mutual_information"
        timed(f"novelty: {score}", metrics.novelty, members if of_members else ensemble, score)
    for metric in (metrics.accuracy, metrics.nll, metrics.ece):
        timed(f"{metric.__name__} of each member", _of_members, metric, members, labels)
    return took


def draw(settings: Settings) -> tuple[Array, Labels]:
    """Members as of CIFAR-100, right on most samples: log-probabilities (M, N, C) and labels."""
    members, samples, classes = (3, 40, 5) if settings.small else (7, 10_000, 100)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, samples)
    logits = 2 * rng.normal(size=(samples, classes)) + rng.normal(size=(members, samples, classes))
    logits[:, np.arange(samples), labels] += 7
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


def _of_members(metric: Callable[..., float], members: Array, labels: Labels) -> list[float]:
    return [metric(member[None], labels) for member in members]


def _filled(logs: Array, labels: Labels) -> Array:
    found = metrics.reliability(logs, labels)
    return found.accuracy[found.count > 0]


def _compare(
    cases: tuple[Case, ...], settings: Settings, data: tuple[Any, ...], what: str
) -> Iterator[Ratio | str]:
    pairs: list[Pair] = []
    for case in cases:
        try:
            _check(case, data)
        except ImportError as error:
            yield (
                f"{case.name} is left out: it needs the package {error.name}: "
                "pip install 'freetickets[bench]'"
            )
            continue
        sides = {"ours": partial(case.ours, *data), case.by: partial(case.peer, *data)}
        timings = interleave(sides, settings.repeats)
        pairs.append(versus(timings, "ours", [case.by]))
        yield pairs[-1].ratio(f"{case.name} / by {case.by} ({what})", settings.repeats)
    if pairs:
        whole = total(pairs)
        together = Pair(whole.ours, ("the others", whole.other[1]))
        yield together.ratio(f"all of these / by the others ({what})", settings.repeats)


def _check(case: Case, data: tuple[Any, ...]) -> None:
    """Raises unless both sides agree: else their times mean nothing."""
    ours, peer = np.asarray(case.ours(*data)), np.asarray(case.peer(*data))
    if ours.shape != peer.shape or not np.allclose(ours, peer, rtol=0, atol=1e-6):
        raise FreeTicketsError(f"{case.name} is not what it is by {case.by}")
