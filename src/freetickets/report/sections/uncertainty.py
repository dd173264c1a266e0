"""Whether predictions know what they don't know: calibration, risk, and samples of no class."""

from __future__ import annotations

from collections.abc import Iterator

from ...metrics.calibration import DEFAULT_BINS
from ...metrics.score import MORE_SCORES, column_of
from ..analysis import Unfamiliar
from ..comparison import Comparison
from ..figures.uncertainty import (
    novelty_histograms,
    reliability_diagrams,
    risk_curves,
    roc_curves,
)
from ..parts import Figure, Section, Table, TableCell, score_cells

_NOVELTY = {
    "max_probability": "1 − highest probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
}


def more_section(comparison: Comparison) -> Iterator[Section]:
    """Further scores of the ensembles."""
    measured = [run for run in comparison.runs if run.results.more]
    shown = [it for it in MORE_SCORES if any(it.key in run.results.more for run in measured)]
    if not shown:
        return
    rows = [[TableCell(run.name), *score_cells(run.results.more, shown)] for run in measured]
    texts = (f"{it.title[:1].upper()}{it.title[1:]}: {it.caption}." for it in shown)
    table = Table(["run", *(f"{it.title} {it.arrow}" for it in shown)], rows)
    yield Section("More scores", " ".join(texts), table, "scores")


def reliability_section(comparison: Comparison) -> Iterator[Section]:
    """Accuracy by confidence."""
    caption = (
        f"Accuracy of the ensemble against its confidence, in {DEFAULT_BINS} equal bins of "
        "confidence, and how many test samples fall into each. On the diagonal it is right as "
        "often as it says; the ECE is the mean distance from it, weighted by the samples."
    )
    panels = reliability_diagrams(comparison.each("reliability"), comparison.names)
    yield Section("Reliability", caption, Figure(panels, "reliability"), "reliability")


def risk_section(comparison: Comparison) -> Iterator[Section]:
    """Risk by coverage."""
    caption = (
        "If an ensemble answers only the share of test samples that it is most confident of "
        "(coverage), this share of its answers is wrong (risk). Lower is better; "
        "behind the name: the area under the curve (AURC)."
    )
    panels = risk_curves(comparison.each("risk"), comparison.names)
    yield Section("Risk and coverage", caption, Figure(panels, "risk-coverage"), "risk-coverage")


def unknown_section(comparison: Comparison) -> Iterator[Section]:
    """Telling samples of no class: the table."""
    found = [
        (name, run, run.results.ood[name])
        for name in _sets(comparison)
        for run in comparison.runs
        if name in run.results.ood
    ]
    scores = [score for score in _NOVELTY if any(score in it.scores for _, _, it in found)]
    rows = []
    for name, run, unknown in found if scores else ():
        cells = [TableCell(name), TableCell(run.name), TableCell.of(unknown.samples, ",d")]
        for score in scores:
            # Of one network the mutual information is 0, whatever it sees.
            told = score != "mutual_information" or len(run.results.members) > 1
            detection = unknown.scores.get(score) if told else None
            for key in ("auroc", "aupr", "fpr95"):
                cells.append(TableCell.of(getattr(detection, key, None), ".4f"))
        rows.append(cells)
    titles = []
    for key in ("auroc", "aupr", "fpr95"):
        column = column_of(f"ood.x.{key}")
        assert column is not None
        titles.append(f"{key.upper()} {column.arrow}")
    groups = [("", 3), *((_NOVELTY[score], 3) for score in scores)]
    caption = (
        "How well a score of the ensemble tells the samples of a set that holds none of its "
        "classes from test samples; those of the set count as positive. AUROC is exact, ties count "
        "half; AUPR is the average precision, and depends on the sizes of both sets; FPR95 is the "
        "share of test samples flagged where 95% of the set are. Where only the first samples of a "
        "set were predicted, they are told from as many of the first test samples."
    )
    table = Table(["set", "run", "samples", *(titles * len(scores))], rows, groups)
    yield Section("Out-of-distribution detection", caption, table, "ood")


def roc_section(comparison: Comparison) -> Iterator[Section]:
    """Telling samples of no class: the curves."""
    curves = {
        name: {run: (each.roc, each.auroc) for run, each in runs.items()}
        for name, runs in _unfamiliar(comparison).items()
    }
    caption = (
        "The share of the set that is flagged against the share of test samples that is, for every "
        "threshold of 1 − the highest probability of the ensemble; behind the name: "
        "the area (AUROC)."
    )
    figure = Figure(roc_curves(curves, comparison.names), "roc")
    yield Section("ROC curves", caption, figure, "roc")


def histograms_section(comparison: Comparison) -> Iterator[Section]:
    """How novel samples seem."""
    scores = {
        name: {run: (each.inside, each.outside) for run, each in runs.items()}
        for name, runs in _unfamiliar(comparison).items()
    }
    caption = (
        "How 1 − the highest probability of the ensemble is distributed, over the test samples and "
        "over those of the set; the curves above compare the same samples. Heights are square "
        "roots of shares, without which the many certain samples would hide the rest."
    )
    figure = Figure(novelty_histograms(scores, comparison.names), "novelty")
    yield Section("Novelty of known and unknown samples", caption, figure, "novelty")


def _sets(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(name for run in comparison.runs for name in run.results.ood))


def _unfamiliar(comparison: Comparison) -> dict[str, dict[str, Unfamiliar]]:
    """What was found of each set, by run."""
    return {
        name: {
            run: found[name]
            for run, found in comparison.each("unfamiliar").items()
            if name in found
        }
        for name in _sets(comparison)
    }
