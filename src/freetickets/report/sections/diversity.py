"""How members differ: in what they predict, by class, in their features, and along training."""

from __future__ import annotations

from collections.abc import Iterator

from ...evaluation.trajectory import embed, read_trajectory
from ...predictions import REMAKE, trajectory_files
from ...reading import damaged
from ...tasks import CLASSIFICATION
from ..analysis import class_names
from ..comparison import Comparison
from ..figures.breakdowns import class_breakdown, feature_curves
from ..figures.heatmaps import disagreement_heatmaps
from ..figures.points import trajectories
from ..parts import Figure, Section, Table, TableCell

_ACCURACY = CLASSIFICATION.scores[0]


def diversity_section(comparison: Comparison) -> Iterator[Section]:
    """The table of diversity, with the accuracy that it brings."""
    rows = []
    for run in comparison.runs:
        if (diversity := run.results.diversity) is None:
            continue
        numbers = (diversity.disagreement, diversity.kl, diversity.kl_one_way)
        accuracy = run.results.ensemble["accuracy"]
        gain = 100 * (accuracy - run.results.member_mean["accuracy"])
        rows.append(
            [
                TableCell(run.name),
                *(TableCell.of(number, ".4f") for number in numbers),
                TableCell.of(accuracy, _ACCURACY.form),
                TableCell.of(gain, "+.2f"),
            ]
        )
    accuracy_title = f"{_ACCURACY.short} {_ACCURACY.arrow}"
    header = ["run", "disagreement ↑", "KL ↑", "KL, i<j", accuracy_title, "gain ↑"]
    caption = (
        "Disagreement is the share of test samples of which two members predict different classes, "
        "the mean over pairs; KL is the mean divergence of members' predictions in nats over "
        "ordered pairs, and over i<j only. Gain: points of accuracy of the ensemble above the mean "
        "of its members."
    )
    yield Section("Diversity of the members", caption, Table(header, rows), "diversity")


def heatmaps_section(comparison: Comparison) -> Iterator[Section]:
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
    yield Section("Pairs of members", caption, Figure(panels, "disagreement"), "disagreement")


def classes_section(comparison: Comparison) -> Iterator[Section]:
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
    yield Section("By class", caption, Figure(panels, "classes"), "classes")


def features_section(comparison: Comparison) -> Iterator[Section]:
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
    figure = Figure(feature_curves(curves, comparison.names), "features")
    yield Section("Feature maps by layer", caption, figure, "features")


def trajectories_section(comparison: Comparison) -> Iterator[Section]:
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
    figure = Figure(trajectories(paths), "trajectories")
    yield Section("Training trajectories (t-SNE)", caption, figure, "trajectories")
