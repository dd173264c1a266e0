"""Members alone and together: scores, size, sparsity, correlations, and how they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...config import Config
from ...evaluation.trajectory import embed, read_trajectory
from ...metrics import pearson, spearman
from ...predictions import REMAKE, trajectory_files
from ...reading import damaged
from ...tasks import CLASSIFICATION
from ..analysis import class_names
from ..comparison import Comparison
from ..figures import points, scores
from ..figures.breakdowns import class_breakdown, feature_curves
from ..figures.heatmaps import disagreement_heatmaps
from ..parts import Figure, Section, Table, row, score_cells
from ..run import RunSummary

_ACCURACY = CLASSIFICATION.scores[0]


def members(comparison: Comparison) -> Iterator[Section]:
    """What the members score alone and together."""
    caption = (
        f"Each member alone, the mean of the members, and the ensemble, on the "
        f"{comparison.runs[0].results.samples:,} test samples. A run of one network has one point."
    )
    yield Section(
        "Members and ensemble", caption, Figure(scores.members_and_ensembles(comparison.runs))
    )


def member_scores(comparison: Comparison) -> Iterator[Section]:
    """The same in numbers."""
    rows, shown = [], comparison.runs[0].results.task.scores
    for run in comparison.runs:
        parts = [(f"member {number}", it) for number, it in enumerate(run.results.members, start=1)]
        if len(run.results.members) > 1:
            parts += [("member mean", run.results.member_mean), ("ensemble", run.results.ensemble)]
        rows += [row(run.name, name, *score_cells(it, shown)) for name, it in parts]
    caption = "The numbers behind the figure above; members are in the order of their collection."
    table = Table(["run", "predictor", *(score.title for score in shown)], rows)
    yield Section("Scores of every member", caption, table)


def ensemble_size(comparison: Comparison) -> Iterator[Section]:
    """What each further member brings."""
    caption = (
        "The ensemble of the first m members, in the order of their collection, and the mean of "
        "those members alone; KL is the mean divergence between ordered pairs of them. From the "
        "saved predictions of the test set, without any temperature of the ensemble."
    )
    yield Section(
        "Size of the ensemble",
        caption,
        Figure(scores.size_curves(comparison.each("sizes"), comparison.names)),
    )


def sparsity(comparison: Comparison) -> Iterator[Section]:
    """How scores change with sparsity."""
    if not comparison.has_classes:
        return
    curves: dict[str, scores.EnsembleCurve] = {}
    for family in _families(comparison.runs):
        if len({_sparsity(run) for run in family}) < 2:
            continue
        method = family[0].config.method
        # One method may have several families: of other sizes, say.
        number = sum(name.partition(" ")[0] == method for name in curves) + 1
        results = [run.results for run in sorted(family, key=_sparsity)]
        kl = [it.diversity.kl if it.diversity else math.nan for it in results]
        curves[method if number == 1 else f"{method} {number}"] = scores.EnsembleCurve(
            sorted(map(_sparsity, family)),
            [it.ensemble["accuracy"] for it in results],
            [it.member_mean["accuracy"] for it in results],
            kl=kl if np.isfinite(kl).any() else None,
        )
    caption = (
        "Runs that differ in their sparsity only: the ensemble, the mean of its members, and the "
        "mean KL divergence between ordered pairs of members where it was measured."
    )
    yield Section("Sparsity", caption, Figure(scores.sparsity_curves(curves)))


def correlations(comparison: Comparison) -> Iterator[Section]:
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
    caption = (
        "Over the runs that have several members. Pearson's coefficient is of the values, "
        "Spearman's of their ranks. With few runs neither says much."
    )
    table = Table(["between", "runs", "Pearson", "Spearman"], rows)
    yield Section("Correlations over runs", caption, table)


def diversity(comparison: Comparison) -> Iterator[Section]:
    """The table of diversity, with the accuracy that it brings."""
    rows = []
    for run in comparison.runs:
        if (diversity := run.results.diversity) is None:
            continue
        numbers = (diversity.disagreement, diversity.kl, diversity.kl_one_way)
        accuracy = run.results.ensemble["accuracy"]
        gain = 100 * (accuracy - run.results.member_mean["accuracy"])
        cells = row(run.name, *((number, ".4f") for number in numbers))
        rows.append([*cells, *row((accuracy, _ACCURACY.form), (gain, "+.2f"))])
    accuracy_title = f"{_ACCURACY.short} {_ACCURACY.arrow}"
    header = ["run", "disagreement ↑", "KL ↑", "KL, i<j", accuracy_title, "gain ↑"]
    caption = (
        "Disagreement is the share of test samples of which two members predict different classes, "
        "the mean over pairs; KL is the mean divergence of members' predictions in nats over "
        "ordered pairs, and over i<j only. Gain: points of accuracy of the ensemble above the mean "
        "of its members."
    )
    yield Section("Diversity of the members", caption, Table(header, rows))


def disagreement(comparison: Comparison) -> Iterator[Section]:
    """Every pair of members."""
    found = {run.name: it for run in comparison.runs if (it := run.results.diversity) is not None}
    panels = disagreement_heatmaps({name: it.disagreement_matrix for name, it in found.items()})
    kl = {name: it.kl_matrix for name, it in found.items()}
    panels += disagreement_heatmaps(kl, what="KL divergence")
    caption = (
        "For each pair of members: the share of test samples of which they predict different "
        "classes, and the mean divergence KL(row || column) of their predictions in nats. Colours "
        "have one scale for all runs."
    )
    yield Section("Pairs of members", caption, Figure(panels))


def classes(comparison: Comparison) -> Iterator[Section]:
    """Scores by true class."""
    scores = comparison.each("classes")
    if not scores:
        return
    count = next(iter(comparison.analyses.values())).ensemble.shape[-1]
    panels = class_breakdown(class_names(comparison.runs[0], count), scores, comparison.names)
    caption = (
        "Accuracy of the ensemble on the test samples of each class, and how often two members "
        "disagree on them (the mean over pairs)."
    )
    yield Section("By class", caption, Figure(panels))


def features(comparison: Comparison) -> Iterator[Section]:
    """How members' feature maps differ, layer by layer."""
    curves = {
        run.name: [(each.layer, each.kl) for each in run.results.features]
        for run in comparison.runs
        if run.results.features
    }
    caption = (
        "KL divergence between the feature maps of two members, layer by layer: a softmax over "
        "channels, summed over positions, the mean over samples and over ordered pairs of members."
    )
    yield Section(
        "Feature maps by layer", caption, Figure(feature_curves(curves, comparison.names))
    )


def trajectories(comparison: Comparison) -> Iterator[Section]:
    """The ways that networks took while they trained."""
    embeddings = []
    for run in comparison.runs if comparison.has_classes else ():
        if trajectory_files(run.folder):
            with damaged(run.folder / "trajectory", REMAKE):
                embeddings.append(embed({run.name: read_trajectory(run.folder)}))
    few = next((f" (of few, {each.note})" for each in embeddings if each.note), "")
    caption = (
        "What a network predicts of a fixed subset of test samples along its training, as "
        "probabilities; all checkpoints of all members of a run laid into the plane together by "
        f"t-SNE of their principal components{few}. "
        "Hollow: the start; diamonds: tickets where they were collected. Only what is near stays "
        "near: coordinates and distances between far points mean nothing. Nothing was chosen by "
        "these samples."
    )
    paths = {name: each for found in embeddings for name, each in found.paths.items()}
    yield Section("Training trajectories (t-SNE)", caption, Figure(points.trajectories(paths)))


def _sparsity(run: RunSummary) -> float:
    return run.ledger.phases[-1].sparsity


def _families(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Groups runs that are the same but for their sparsity."""
    families: list[list[RunSummary]] = []
    for run in runs:
        mine = _without_sparsity(run)
        alike = (it for it in families if not _without_sparsity(it[0]).differences(mine))
        if (family := next(alike, None)) is None:
            families.append([run])
        else:
            family.append(run)
    return families


def _without_sparsity(run: RunSummary) -> Config:
    options = {key: value for key, value in run.config.options.items() if key != "sparsity"}
    return replace(run.config, options=options)
