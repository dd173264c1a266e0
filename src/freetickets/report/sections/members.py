"""Members alone and together: scores, the size of the ensemble, sparsity, and correlations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...config import Config
from ...metrics import pearson, spearman
from ..comparison import Comparison
from ..figures.scores import EnsembleCurve, members_and_ensembles, size_curves, sparsity_curves
from ..parts import Figure, Section, Table, TableCell, score_cells
from ..run import RunSummary


def members_section(comparison: Comparison) -> Iterator[Section]:
    """What the members score alone and together."""
    caption = (
        f"Each member alone, the mean of the members, and the ensemble, on the "
        f"{comparison.runs[0].results.samples:,} test samples. A run of one network has one point."
    )
    figure = Figure(members_and_ensembles(comparison.runs), "members")
    yield Section("Members and ensemble", caption, figure, "members")


def member_scores_section(comparison: Comparison) -> Iterator[Section]:
    """The same in numbers."""
    rows, shown = [], comparison.runs[0].results.task.scores
    for run in comparison.runs:
        parts = [(f"member {number}", it) for number, it in enumerate(run.results.members, start=1)]
        if len(run.results.members) > 1:
            parts += [("member mean", run.results.member_mean), ("ensemble", run.results.ensemble)]
        rows += [
            [TableCell(run.name), TableCell(name), *score_cells(it, shown)] for name, it in parts
        ]
    caption = "The numbers behind the figure above; members are in the order of their collection."
    table = Table(["run", "predictor", *(score.title for score in shown)], rows)
    yield Section("Scores of every member", caption, table, "member-scores")


def sizes_section(comparison: Comparison) -> Iterator[Section]:
    """What each further member brings."""
    caption = (
        "The ensemble of the first m members, in the order of their collection, and the mean of "
        "those members alone; KL is the mean divergence between ordered pairs of them. From the "
        "saved predictions of the test set, without any temperature of the ensemble."
    )
    figure = Figure(size_curves(comparison.each("sizes"), comparison.names), "ensemble-size")
    yield Section("Size of the ensemble", caption, figure, "ensemble-size")


def sparsity_section(comparison: Comparison) -> Iterator[Section]:
    """How scores change with sparsity."""
    if not comparison.has_classes:
        return
    curves: dict[str, EnsembleCurve] = {}
    for family in _families(comparison.runs):
        if len({_sparsity(run) for run in family}) < 2:
            continue
        method = family[0].config.method
        # One method may have several families: of other sizes, say.
        number = sum(name.partition(" ")[0] == method for name in curves) + 1
        name = method if number == 1 else f"{method} {number}"
        curves[name] = _sparsity_curve(sorted(family, key=_sparsity))
    caption = (
        "Runs that differ in their sparsity only: the ensemble, the mean of its members, and the "
        "mean KL divergence between ordered pairs of members where it was measured."
    )
    figure = Figure(sparsity_curves(curves), "sparsity")
    yield Section("Sparsity", caption, figure, "sparsity")


def correlation_section(comparison: Comparison) -> Iterator[Section]:
    """Whether better members make better ensembles, over the runs."""
    runs = [run for run in comparison.runs if len(run.results.members) > 1]
    shown, *_ = scores = comparison.runs[0].results.task.scores[:2]
    gains = [run.results.ensemble[shown.key] - run.results.member_mean[shown.key] for run in runs]
    differing = [
        run.results.diversity.disagreement if run.results.diversity else math.nan for run in runs
    ]
    pairs = [
        (
            f"{score.title}: member mean and ensemble",
            [run.results.member_mean[score.key] for run in runs],
            [run.results.ensemble[score.key] for run in runs],
        )
        for score in scores
    ]
    pairs.append(
        (f"disagreement, and gain in {shown.title} over the member mean", differing, gains)
    )
    rows = [row for name, x, y in pairs if (row := _correlation_row(name, x, y)) is not None]
    caption = (
        "Over the runs that have several members. Pearson's coefficient is of the values, "
        "Spearman's of their ranks. With few runs neither says much."
    )
    table = Table(["between", "runs", "Pearson", "Spearman"], rows)
    yield Section("Correlations over runs", caption, table, "correlations")


def _correlation_row(name: str, x: Sequence[float], y: Sequence[float]) -> list[TableCell] | None:
    known = np.isfinite(x) & np.isfinite(y)
    first, second = np.array(x)[known], np.array(y)[known]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return [
        TableCell(name),
        TableCell.of(len(first), "d"),
        TableCell.of(pearson(first, second), ".3f"),
        TableCell.of(spearman(first, second), ".3f"),
    ]


def _sparsity(run: RunSummary) -> float:
    return run.ledger.phases[-1].sparsity


def _families(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Groups runs that are the same but for their sparsity."""
    families: list[list[RunSummary]] = []
    for run in runs:
        mine = _without_sparsity(run.config)
        for family in families:
            if not _without_sparsity(family[0].config).differences(mine):
                family.append(run)
                break
        else:
            families.append([run])
    return families


def _without_sparsity(config: Config) -> Config:
    options = {key: value for key, value in config.options.items() if key != "sparsity"}
    return replace(config, options=options)


def _sparsity_curve(family: Sequence[RunSummary]) -> EnsembleCurve:
    diversities = [run.results.diversity for run in family]
    kl = [each.kl if each else math.nan for each in diversities]
    return EnsembleCurve(
        np.array([_sparsity(run) for run in family]),
        np.array([run.results.ensemble["accuracy"] for run in family]),
        np.array([run.results.member_mean["accuracy"] for run in family]),
        kl=np.array(kl) if np.isfinite(kl).any() else None,
    )
