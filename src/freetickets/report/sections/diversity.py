"""How members differ: in what they predict, by class, in their features, and along training."""

from __future__ import annotations

from ...evaluation.trajectory import embed, read_trajectory
from ...predictions import REMAKE, trajectory_files
from ...reading import damaged
from ..analysis import class_names
from ..figures import class_breakdown, disagreement_heatmaps, feature_curves, trajectories
from ..parts import Cell, Figure, Section, Table
from .comparison import Comparison

CHAPTER = "Diversity"


def diversity_section(comparison: Comparison) -> list[Section]:
    """The table of diversity, with the accuracy that it brings."""
    rows = [
        [
            Cell(run.name),
            Cell.of(diversity.disagreement, ".4f"),
            Cell.of(diversity.kl, ".4f"),
            Cell.of(diversity.kl_one_way, ".4f"),
            Cell.of(run.ensemble["accuracy"], ".2%"),
            Cell.of(100 * (run.ensemble["accuracy"] - run.member_mean["accuracy"]), "+.2f"),
        ]
        for run in comparison.runs
        if (diversity := run.results.diversity) is not None
    ]
    if not rows:
        return []
    header = ["run", "disagreement ↑", "KL ↑", "KL, i<j", "Acc ↑", "gain ↑"]
    caption = (
        "Disagreement is the share of test samples of which two members predict different classes, "
        "the mean over pairs; KL is the mean divergence of members' predictions in nats over "
        "ordered pairs, and over i<j only. Gain: points of accuracy of the ensemble above the mean "
        "of its members."
    )
    return [Section("Diversity of the members", caption, Table(header, rows), "diversity", CHAPTER)]


def heatmaps_section(comparison: Comparison) -> list[Section]:
    """Every pair of members."""
    matrices = {
        run.name: run.results.diversity
        for run in comparison.runs
        if run.results.diversity is not None
    }
    if not matrices:
        return []
    panels = disagreement_heatmaps({name: m.disagreement_matrix for name, m in matrices.items()})
    panels += disagreement_heatmaps(
        {name: m.kl_matrix for name, m in matrices.items()}, what="KL divergence"
    )
    caption = (
        "For each pair of members: the share of test samples of which they predict different "
        "classes, and the mean divergence KL(row || column) of their predictions in nats. Colours "
        "have one scale for all runs."
    )
    figure = Figure(panels, "disagreement")
    return [Section("Pairs of members", caption, figure, "disagreement", CHAPTER)]


def classes_section(comparison: Comparison) -> list[Section]:
    """Scores by true class."""
    scores = {name: analysis.classes for name, analysis in comparison.analyses.items()}
    if not scores:
        return []
    count = next(iter(comparison.analyses.values())).ensemble.shape[-1]
    panels = class_breakdown(class_names(comparison.runs[0], count), scores, comparison.names)
    caption = (
        "Accuracy of the ensemble on the test samples of each class, and how often two members "
        "disagree on them (the mean over pairs)."
    )
    return [Section("By class", caption, Figure(panels, "classes"), "classes", CHAPTER)]


def features_section(comparison: Comparison) -> list[Section]:
    """How members' feature maps differ, layer by layer."""
    curves = {
        run.name: [(each.layer, each.kl) for each in run.results.features]
        for run in comparison.runs
        if run.results.features
    }
    if not curves:
        return []
    caption = (
        "KL divergence between the feature maps of two members, layer by layer: a softmax over "
        "channels, summed over positions, the mean over samples and over ordered pairs of members."
    )
    figure = Figure(feature_curves(curves, comparison.names), "features")
    return [Section("Feature maps by layer", caption, figure, "features", CHAPTER)]


def trajectories_section(comparison: Comparison) -> list[Section]:
    """The ways that networks took while they trained."""
    embeddings = []
    for run in comparison.runs if comparison.has_classes else ():
        if trajectory_files(run.folder):
            with damaged(run.folder / "trajectory", REMAKE):
                embeddings.append(embed({run.name: read_trajectory(run.folder)}))
    if not embeddings:
        return []
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
    return [Section("Training trajectories (t-SNE)", caption, figure, "trajectories", CHAPTER)]
