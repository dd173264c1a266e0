"""Our metrics beside those of other packages, and all of them from a file of predictions."""

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from .. import metrics
from ..errors import FreeTicketsError
from ..evaluation import Predictions
from ..metrics.arrays import Array, Labels
from .timing import Ratio, Settings, Sides, Timing, compare, interleave, total

# What all metrics of a saved file may take on one core.
_ALLOWED_SECONDS = 2.0
_BINS = 15


# A metric, ours, a peer that takes the same and returns the same value or values, and whose it is:
# another package's, or as one would write it down.
Case = tuple[str, Callable[..., Any], Callable[..., Any], str]


# ---- the peers: most take log-probabilities (M, N, C) and labels


def _of(name: str) -> Any:
    """A function of another package, which may not be there."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def _sklearn(name: str, *given: Any, **options: Any) -> Any:
    return _of(f"sklearn.metrics.{name}")(*given, **options)


def _mean(logs: Array) -> Array:
    return np.exp(logs).mean(0)


def _ece(logs: Array, labels: Labels) -> Any:
    tensor, find = _of("torch.from_numpy"), "multiclass_calibration_error"
    given = (tensor(_mean(logs)), tensor(labels), logs.shape[2])
    return float(_of(f"torchmetrics.functional.classification.{find}")(*given, n_bins=_BINS))


def _adaptive_ece(logs: Array, labels: Labels) -> Any:
    mean = _mean(logs)
    order = mean.max(-1).argsort()
    gaps = ((mean.argmax(-1) == labels) - mean.max(-1))[order]
    cuts = np.ceil(np.arange(1, _BINS) * len(labels) / _BINS).astype(int)
    return sum(abs(part.sum()) for part in np.split(gaps, cuts)) / len(labels)


def _classwise_ece(logs: Array, labels: Labels) -> Any:
    mean, edges = _mean(logs), np.linspace(0, 1, _BINS + 1)
    found = 0.0
    for label, probs in enumerate(mean.T):
        gaps, which = (labels == label) - probs, np.digitize(probs, edges[1:-1], right=True)
        found += sum(abs(gaps[which == place].sum()) for place in range(_BINS))
    return found / mean.size


def _calibration_curve(logs: Array, labels: Labels) -> Any:
    """Says nothing of empty bins."""
    mean = _mean(logs)
    given = (mean.argmax(-1) == labels, mean.max(-1))
    return _of("sklearn.calibration.calibration_curve")(*given, n_bins=_BINS)[0]


def _disagreement(choices: Array) -> Any:
    return np.mean([np.mean(a != b) for a, b in combinations(choices, 2)])


def _disagreement_by_class(logs: Array, labels: Labels) -> Any:
    choices = logs.argmax(-1)
    return [_disagreement(choices[:, labels == label]) for label in range(logs.shape[2])]


def _kl(logs: Array, _: Labels) -> Any:
    divergence = _of("torchmetrics.functional.kl_divergence")
    members = [_of("torch.from_numpy")(member) for member in logs]
    return [[float(divergence(p, q, log_prob=True)) for q in members] for p in members]


def _entropy(probs: Array) -> Any:
    return _of("scipy.stats.entropy")(probs, axis=-1)


def _risk_coverage(logs: Array, labels: Labels) -> Any:
    mean = _mean(logs)
    wrong = (mean.argmax(-1) != labels)[(-mean.max(-1)).argsort()]
    return (wrong.cumsum() / np.arange(1, len(wrong) + 1)).mean()


def _bootstrap(logs: Array, labels: Labels) -> Any:
    right = (_mean(logs).argmax(-1) == labels).astype(float)
    options = {"n_resamples": 1000, "batch": 100, "method": "percentile"}
    _of("scipy.stats.bootstrap")((right,), np.mean, **options)
    return right.mean()


def _detection(inside: Array, outside: Array) -> tuple[Array, Array]:
    """What scikit-learn takes of two lists of novelty scores."""
    kinds = np.repeat([0.0, 1.0], [len(inside), len(outside)])
    return kinds, np.concatenate([inside, outside])


def _fpr95(inside: Array, outside: Array) -> Any:
    false, true, _ = _sklearn("roc_curve", *_detection(inside, outside), drop_intermediate=False)
    return false[(true >= 0.95 - 1e-12).argmax()]


def _filled(logs: Array, labels: Labels) -> Array:
    found = metrics.reliability(logs, labels)
    return found.accuracy[found.count > 0]


# fmt: off
_CASES: tuple[Case, ...] = (
    ("accuracy", metrics.accuracy,
     lambda logs, labels: _sklearn("accuracy_score", labels, _mean(logs).argmax(-1)),
     "scikit-learn"),
    ("nll", metrics.nll,
     lambda logs, labels: _sklearn("log_loss", labels, _mean(logs), labels=range(logs.shape[2])),
     "scikit-learn"),
    ("brier", metrics.brier,
     lambda logs, labels: ((_mean(logs) - np.eye(logs.shape[2])[labels]) ** 2).sum(-1).mean(),
     "NumPy, one-hot"),
    ("ece", metrics.ece, _ece, "torchmetrics"),
    ("adaptive_ece", metrics.adaptive_ece, _adaptive_ece, "NumPy, split"),
    ("classwise_ece", metrics.classwise_ece, _classwise_ece, "NumPy, loops"),
    ("reliability", _filled, _calibration_curve, "scikit-learn"),
    ("disagreement", lambda logs, _: metrics.disagreement(logs),
     lambda logs, _: _disagreement(logs.argmax(-1)), "pairs"),
    ("disagreement_by_class", metrics.disagreement_by_class, _disagreement_by_class, "pairs"),
    ("kl_matrix", lambda logs, _: metrics.kl_matrix(logs), _kl, "torchmetrics"),
    ("novelty: max_probability", lambda logs, _: metrics.novelty(logs),
     lambda logs, _: 1 - _mean(logs).max(-1), "NumPy"),
    ("novelty: entropy", lambda logs, _: metrics.novelty(logs, "entropy"),
     lambda logs, _: _entropy(_mean(logs)), "SciPy"),
    ("novelty: mutual_information", lambda logs, _: metrics.novelty(logs, "mutual_information"),
     lambda logs, _: _entropy(_mean(logs)) - _entropy(np.exp(logs)).mean(0), "SciPy"),
    ("risk_coverage", lambda *data: metrics.risk_coverage(*data).area, _risk_coverage,
     "NumPy, sorted"),
    ("bootstrap of accuracy", lambda *data: metrics.bootstrap(metrics.accuracy, *data).value,
     _bootstrap, "SciPy"),
)
_OOD_CASES: tuple[Case, ...] = (
    ("auroc", metrics.auroc, lambda *sides: _sklearn("roc_auc_score", *_detection(*sides)),
     "scikit-learn"),
    ("aupr", metrics.aupr,
     lambda *sides: _sklearn("average_precision_score", *_detection(*sides)), "scikit-learn"),
    ("fpr95", metrics.fpr95, _fpr95, "scikit-learn"),
)
# fmt: on


# ---- measurements


def scores(settings: Settings) -> Iterator[Ratio | str]:
    """Each metric of an ensemble against a peer, both from the members' log-probabilities."""
    logs, labels = draw(settings)
    yield from _compare(_CASES, settings, (logs, labels), " x ".join(map(str, logs.shape)))


def ood(settings: Settings) -> Iterator[Ratio | str]:
    """Each score of novelty detection against a peer, both from the novelty of samples."""
    rng = np.random.default_rng(0)
    sizes = (20, 30) if settings.small else (10_000, 26_032)  # the test sets of CIFAR and SVHN
    sides = tuple(rng.normal(place, size=size) for place, size in enumerate(sizes))
    yield from _compare(_OOD_CASES, settings, sides, f"{sizes[0]} inside, {sizes[1]} outside")


def saved(settings: Settings) -> Iterator[Ratio | str]:
    """All metrics from a file of predictions, as evaluate computes them, against 2 seconds."""
    logs, labels = draw(settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "predictions.npz")
        info = {"dataset": "drawn", "combine": "probabilities"}
        Predictions(logs.astype(np.float32), labels, info).save(path)
        runs = [score_file(path) for _ in range(settings.repeats)]
    for name in runs[0]:
        yield f"{1000 * float(np.median([run[name] for run in runs])):9.1f} ms  {name}"
    sums = [sum(run.values()) for run in runs]
    ours = Timing(float(np.median(sums)), min(sums), settings.repeats)
    yield compare(
        f"all metrics from a saved file / {_ALLOWED_SECONDS:g} s of one core "
        f"({' x '.join(map(str, logs.shape))})",
        {"all": ours, "allowed": Timing(_ALLOWED_SECONDS, _ALLOWED_SECONDS)},
        (1.0, None),
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
    of_ensemble = "accuracy nll brier risk_coverage ece adaptive_ece classwise_ece reliability"
    for name in of_ensemble.split():
        timed(name, getattr(metrics, name), ensemble, labels)
    for name in ("member_nll", "disagreement_by_class"):
        timed(name, getattr(metrics, name), members, labels)
    for name in ("disagreement", "disagreement_matrix", "kl_matrix"):
        timed(name, getattr(metrics, name), members)
    for score in metrics.NOVELTY_SCORES:
        of_members = score == "mutual_information"
        timed(f"novelty: {score}", metrics.novelty, members if of_members else ensemble, score)
    for name in ("accuracy", "nll", "ece"):
        each = map(getattr(metrics, name), members[:, None], [labels] * len(members))
        timed(f"{name} of each member", list, each)
    return took


def draw(settings: Settings) -> tuple[Array, Labels]:
    """Members as of CIFAR-100, right on most samples: log-probabilities (M, N, C) and labels."""
    members, samples, classes = (3, 40, 5) if settings.small else (7, 10_000, 100)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, samples)
    logits = 2 * rng.normal(size=(samples, classes)) + rng.normal(size=(members, samples, classes))
    logits[:, np.arange(samples), labels] += 7
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


def _compare(
    cases: tuple[Case, ...], settings: Settings, data: tuple[Any, ...], what: str
) -> Iterator[Ratio | str]:
    pairs: list[Sides] = []
    for name, ours, peer, by in cases:
        try:
            mine, theirs = np.asarray(ours(*data)), np.asarray(peer(*data))
        except ImportError as error:
            hint = "pip install 'freetickets[bench]'"
            yield f"{name} is left out: it needs the package {error.name}: {hint}"
            continue
        # Else their times mean nothing.
        if mine.shape != theirs.shape or not np.allclose(mine, theirs, rtol=0, atol=1e-6):
            raise FreeTicketsError(f"{name} is not what it is by {by}")
        sides = {"ours": partial(ours, *data), by: partial(peer, *data)}
        pairs.append(interleave(sides, settings.repeats))
        yield compare(f"{name} / by {by} ({what})", pairs[-1])
    if pairs:
        together = dict(zip(("ours", "the others"), total(pairs).values(), strict=True))
        yield compare(f"all of these / by the others ({what})", together)
