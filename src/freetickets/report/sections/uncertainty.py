"""Whether predictions know what they don't know: calibration, risk, and samples of no class."""

from __future__ import annotations

from collections.abc import Mapping

from ...evaluation.results import Unknown
from ..analysis import Unfamiliar
from ..figures import novelty_histograms, reliability_diagrams, risk_curves, roc_curves
from ..intervals import ECE_BINS
from ..parts import Cell, Figure, Section, Table
from ..run import RunSummary
from .comparison import Comparison

CHAPTER = "Uncertainty"

_MORE = {
    "brier": "Brier ↓",
    "adaptive_ece": "adaptive ECE ↓",
    "classwise_ece": "classwise ECE ↓",
    "aurc": "AURC ↓",
    "member_nll": "member NLL ↓",
}
_NOVELTY = {
    "max_probability": "1 − highest probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
}


def more_section(comparison: Comparison) -> list[Section]:
    """Further scores of the ensembles."""
    measured = [run for run in comparison.runs if run.results.more]
    keys = [key for key in _MORE if any(key in run.results.more for run in measured)]
    if not keys:
        return []
    rows = [
        [Cell(run.name), *(Cell.of(run.results.more.get(key), ".4f") for key in keys)]
        for run in measured
    ]
    caption = (
        "Brier: the mean squared distance between the predicted probabilities and the truth. "
        f"Adaptive ECE has {ECE_BINS} bins of equally many samples, classwise ECE is the mean over "
        "classes and counts the probability of every class. AURC: the area under the risk-coverage "
        "curve. Member NLL: the mean of the members' own; what the ensemble's is below it is what "
        "their diversity brings."
    )
    table = Table(["run", *(_MORE[key] for key in keys)], rows)
    return [Section("More scores", caption, table, "scores", CHAPTER)]


def reliability_section(comparison: Comparison) -> list[Section]:
    """Accuracy by confidence."""
    diagrams = {name: analysis.reliability for name, analysis in comparison.analyses.items()}
    if not diagrams:
        return []
    caption = (
        f"Accuracy of the ensemble against its confidence, in {ECE_BINS} equal bins of confidence, "
        "and how many test samples fall into each. On the diagonal it is right as often as it "
        "says; the ECE is the mean distance from it, weighted by the samples."
    )
    figure = Figure(reliability_diagrams(diagrams, comparison.names), "reliability")
    return [Section("Reliability", caption, figure, "reliability", CHAPTER)]


def risk_section(comparison: Comparison) -> list[Section]:
    """Risk by coverage."""
    curves = {name: analysis.risk for name, analysis in comparison.analyses.items()}
    if not curves:
        return []
    caption = (
        "If an ensemble answers only the share of test samples that it is most confident of "
        "(coverage), this share of its answers is wrong (risk). Lower is better; "
        "behind the name: the area under the curve (AURC)."
    )
    figure = Figure(risk_curves(curves, comparison.names), "risk-coverage")
    return [Section("Risk and coverage", caption, figure, "risk-coverage", CHAPTER)]


def unknown_section(comparison: Comparison) -> list[Section]:
    """Telling samples of no class: the table."""
    names = _names(comparison)
    scores = [
        score
        for score in _NOVELTY
        if any(score in found.scores for run in comparison.runs for found in _found(run).values())
    ]
    rows = []
    for name in names:
        for run in comparison.runs:
            found = _found(run).get(name)
            if found is None:
                continue
            cells = [Cell(name), Cell(run.name), Cell(f"{found.samples:,}", found.samples)]
            for score in scores:
                # Of one network the mutual information is 0, whatever it sees.
                told = score != "mutual_information" or len(run.members) > 1
                detection = found.scores.get(score) if told else None
                cells += [
                    Cell.of(getattr(detection, key, None), ".4f")
                    for key in ("auroc", "aupr", "fpr95")
                ]
            rows.append(cells)
    if not rows or not scores:
        return []
    header = ["set", "run", "samples", *(["AUROC ↑", "AUPR ↑", "FPR95 ↓"] * len(scores))]
    groups = [("", 3), *((_NOVELTY[score], 3) for score in scores)]
    caption = (
        "How well a score of the ensemble tells the samples of a set that holds none of its "
        "classes from test samples; those of the set count as positive. AUROC is exact, ties count "
        "half; AUPR is the average precision, and depends on the sizes of both sets; FPR95 is the "
        "share of test samples flagged where 95% of the set are. Where only the first samples of a "
        "set were predicted, they are told from as many of the first test samples."
    )
    table = Table(header, rows, groups)
    return [Section("Out-of-distribution detection", caption, table, "ood", CHAPTER)]


def roc_section(comparison: Comparison) -> list[Section]:
    """Telling samples of no class: the curves."""
    found = _unfamiliar(comparison)
    if not found:
        return []
    panels = roc_curves(
        {
            name: {run: (each.roc, each.auroc) for run, each in runs.items()}
            for name, runs in found.items()
        },
        comparison.names,
    )
    caption = (
        "The share of the set that is flagged against the share of test samples that is, for every "
        "threshold of 1 − the highest probability of the ensemble; behind the name: "
        "the area (AUROC)."
    )
    return [Section("ROC curves", caption, Figure(panels, "roc"), "roc", CHAPTER)]


def histograms_section(comparison: Comparison) -> list[Section]:
    """How novel samples seem."""
    found = _unfamiliar(comparison)
    if not found:
        return []
    panels = novelty_histograms(
        {
            name: {run: (each.inside, each.outside) for run, each in runs.items()}
            for name, runs in found.items()
        },
        runs=comparison.names,
    )
    caption = (
        "How 1 − the highest probability of the ensemble is distributed, over the test samples and "
        "over those of the set; the curves above compare the same samples. Heights are square "
        "roots of shares, without which the many certain samples would hide the rest."
    )
    figure = Figure(panels, "novelty")
    return [Section("Novelty of known and unknown samples", caption, figure, "novelty", CHAPTER)]


def _names(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(name for run in comparison.runs for name in _found(run)))


def _found(run: RunSummary) -> Mapping[str, Unknown]:
    return run.results.ood


def _unfamiliar(comparison: Comparison) -> dict[str, dict[str, Unfamiliar]]:
    """What was found of each set, by run."""
    found = {
        name: {
            run: analysis.unfamiliar[name]
            for run, analysis in comparison.analyses.items()
            if name in analysis.unfamiliar
        }
        for name in _names(comparison)
    }
    return {name: runs for name, runs in found.items() if runs}
