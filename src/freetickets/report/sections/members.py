"""Members alone and together: scores, size, sparsity, correlations, and how they differ."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...config import Config
from ...evaluation.trajectory import embed, read_trajectory
from ...metrics import pearson, spearman
from ...predictions import REMAKE, trajectory_files
from ...reading import damaged
from ...tasks import CLASSIFICATION
from ..comparison import Comparison, class_names
from ..figures import points, scores
from ..figures.breakdowns import class_breakdown, feature_curves
from ..figures.heatmaps import disagreement_heatmaps
from ..parts import Figure, Shown, Table, row, score_cells
from ..run import RunSummary

_ACCURACY = CLASSIFICATION.scores[0]


def members(comparison: Comparison) -> Iterator[Shown]:
    """What the members score alone and together."""
    figure = Figure(scores.members_and_ensembles(comparison.runs))
    yield Shown(figure, {"samples": comparison.runs[0].results.samples})


def member_scores(comparison: Comparison) -> Iterator[Shown]:
    """The same in numbers."""
    rows, shown = [], comparison.runs[0].results.task.scores
    for run in comparison.runs:
        parts = [(f"member {number}", it) for number, it in enumerate(run.results.members, start=1)]
        if len(run.results.members) > 1:
            parts += [("member mean", run.results.member_mean), ("ensemble", run.results.ensemble)]
        rows += [row(run.name, name, *score_cells(it, shown)) for name, it in parts]
    yield Shown(Table(["run", "predictor", *(score.title for score in shown)], rows))


def ensemble_size(comparison: Comparison) -> Iterator[Shown]:
    """What each further member brings."""
    yield Shown(Figure(scores.size_curves(comparison.each("sizes"), comparison.names)))


def sparsity(comparison: Comparison) -> Iterator[Shown]:
    """How scores change with sparsity."""
    families: list[list[RunSummary]] = []  # the same but for their sparsity
    for run in comparison.runs if comparison.has_classes else ():
        alike = (it for it in families if not _but_sparsity(it[0]).differences(_but_sparsity(run)))
        if (family := next(alike, None)) is None:
            families.append([run])
        else:
            family.append(run)
    curves: dict[str, scores.EnsembleCurve] = {}
    for family in families:
        family.sort(key=_sparsity)
        if _sparsity(family[0]) == _sparsity(family[-1]):
            continue
        method = family[0].config.method
        # One method may have several families: of other sizes, say.
        number = sum(name.partition(" ")[0] == method for name in curves) + 1
        results = [run.results for run in family]
        kl = [it.diversity.kl if it.diversity else math.nan for it in results]
        curves[method if number == 1 else f"{method} {number}"] = scores.EnsembleCurve(
            list(map(_sparsity, family)),
            [it.ensemble["accuracy"] for it in results],
            [it.member_mean["accuracy"] for it in results],
            kl=kl if np.isfinite(kl).any() else None,
        )
    yield Shown(Figure(scores.sparsity_curves(curves)))


def correlations(comparison: Comparison) -> Iterator[Shown]:
    """Whether better members make better ensembles, over the runs."""
    found = [run.results for run in comparison.runs if len(run.results.members) > 1]
    differing = [it.diversity.disagreement if it.diversity else math.nan for it in found]
    shown = comparison.runs[0].results.task.scores[:2]
    means = [np.array([it.member_mean[score.key] for it in found]) for score in shown]
    together = [np.array([it.ensemble[score.key] for it in found]) for score in shown]
    titles = [f"{score.title}: member mean and ensemble" for score in shown]
    titles.append(f"disagreement, and gain in {shown[0].title} over the member mean")
    pairs = [*zip(means, together, strict=True), (np.array(differing), together[0] - means[0])]
    rows = []
    for title, (x, y) in zip(titles, pairs, strict=True):
        known = np.isfinite(x) & np.isfinite(y)
        one, other = x[known], y[known]
        if len(one) > 2 and np.ptp(one) > 0 and np.ptp(other) > 0:
            both = (pearson(one, other), ".3f"), (spearman(one, other), ".3f")
            rows.append(row(title, (len(one), "d"), *both))
    yield Shown(Table(["between", "runs", "Pearson", "Spearman"], rows))


def diversity(comparison: Comparison) -> Iterator[Shown]:
    """The table of diversity, with the accuracy that it brings."""
    rows = []
    for run in comparison.runs:
        if (found := run.results.diversity) is not None:
            accuracy = run.results.ensemble["accuracy"]
            gain = 100 * (accuracy - run.results.member_mean["accuracy"])
            numbers = [(it, ".4f") for it in (found.disagreement, found.kl, found.kl_one_way)]
            rows.append(row(run.name, *numbers, (accuracy, _ACCURACY.form), (gain, "+.2f")))
    titles = (
        "run",
        "disagreement ↑",
        "KL ↑",
        "KL, i<j",
        f"{_ACCURACY.short} {_ACCURACY.arrow}",
        "gain ↑",
    )
    yield Shown(Table(titles, rows))


def disagreement(comparison: Comparison) -> Iterator[Shown]:
    """Every pair of members."""
    found = {run.name: it for run in comparison.runs if (it := run.results.diversity) is not None}
    panels = disagreement_heatmaps({name: it.disagreement_matrix for name, it in found.items()})
    kl = {name: it.kl_matrix for name, it in found.items()}
    yield Shown(Figure([*panels, *disagreement_heatmaps(kl, what="KL divergence")]))


def classes(comparison: Comparison) -> Iterator[Shown]:
    """Scores by true class."""
    if found := comparison.each("classes"):
        count = next(iter(comparison.analyses.values())).ensemble.shape[-1]
        names = class_names(comparison.runs[0], count)
        yield Shown(Figure(class_breakdown(names, found, comparison.names)))


def features(comparison: Comparison) -> Iterator[Shown]:
    """How members' feature maps differ, layer by layer."""
    curves = {
        run.name: [(each.layer, each.kl) for each in run.results.features]
        for run in comparison.runs
    }
    yield Shown(Figure(feature_curves(curves, comparison.names)))


def trajectories(comparison: Comparison) -> Iterator[Shown]:
    """The ways that networks took while they trained."""
    embeddings = []
    for run in comparison.runs if comparison.has_classes else ():
        if trajectory_files(run.folder):
            with damaged(run.folder / "trajectory", REMAKE):
                embeddings.append(embed({run.name: read_trajectory(run.folder)}))
    few = next((f" (of few, {each.note})" for each in embeddings if each.note), "")
    paths = {name: each for found in embeddings for name, each in found.paths.items()}
    yield Shown(Figure(points.trajectories(paths)), {"few": few})


def _sparsity(run: RunSummary) -> float:
    return run.ledger.phases[-1].sparsity


def _but_sparsity(run: RunSummary) -> Config:
    options = {key: value for key, value in run.config.options.items() if key != "sparsity"}
    return replace(run.config, options=options)
