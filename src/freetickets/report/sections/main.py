"""The main table, what it costs, and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...evaluation.results import TaskFacts, choose_corruptions
from ...metrics import Difference, Interval
from ..figures import cost_against_quality
from ..intervals import ECE_BINS, LEVEL, REPEATS, SCORES, differences, intervals, p_text
from ..parts import Cell, Figure, Section, Table
from ..run import RunSummary
from ..tables import (
    corrupted,
    main_columns,
    main_table,
    make_rows,
    more_columns,
)
from .comparison import Comparison, flops_text

CHAPTER = "Results"

_TITLES = {"accuracy": "Acc", "nll": "NLL", "ece": "ECE"}
_FORMS = {"accuracy": ".2%", "nll": ".4f", "ece": ".4f"}


def main_section(comparison: Comparison) -> list[Section]:
    """The main table, in the paper's form."""
    runs = comparison.runs
    caption = (
        f"Scores of the ensembles on the {runs[0].samples:,} test samples of {runs[0].dataset}. "
        f"{_scores_text(runs[0].task)}↑ higher is better, ↓ lower is. "
        f"{_corruption_text(runs)}{_natural_text(runs)}{flops_text(runs)} Test FLOPs are "
        "those of one prediction by all members. Runs are trainings as the paper counts them: "
        "one-pass methods need one. Seconds are those in training steps. Of several one-pass "
        "methods the best is in bold, of several multi-pass methods in bold and blue; the single "
        "dense model and the dense ensemble are what they are measured against."
    )
    table = main_table(make_rows(runs), main_columns(runs[0].task.scores))
    return [Section("Comparison", caption, table, "main", CHAPTER)]


def more_section(comparison: Comparison) -> list[Section]:
    """What the paper's table does not have."""
    caption = (
        "Member mean: the mean of what the members score alone on the test samples. Growth: the "
        "dense gradients that explorations look at, as a multiple of one dense training; they are "
        "not part of training FLOPs. MB are all members on disk. Marks as above."
    )
    columns = more_columns(comparison.runs[0].task.scores)
    table = main_table(make_rows(comparison.runs), columns)
    return [Section("Member means and sizes", caption, table, "more", CHAPTER)]


def cost_section(comparison: Comparison) -> list[Section]:
    """What each run took to train, and how good it became."""
    caption = (
        "Diamonds are ensembles (or single networks), circles the mean of their members; the line "
        f"between them is what combining the members brings. {flops_text(comparison.runs)} The "
        "dashed line is one dense training"
    )
    if len(comparison.runs) > 1:
        caption += (
            "; the stepped line is the front of the runs that no other run beats in both cost and "
            "quality"
        )
    caption += "."
    figure = Figure(cost_against_quality(comparison.runs), "cost")
    return [Section("Cost against quality", caption, figure, "cost", CHAPTER)]


def intervals_section(comparison: Comparison) -> list[Section]:
    """How sure the scores are."""
    if not comparison.analyses:
        return []
    rows = []
    for name, analysis in comparison.analyses.items():
        found = intervals(analysis.ensemble, analysis.labels)
        cells = [cell for key in SCORES for cell in _cells(found[key], _FORMS[key])]
        rows.append([Cell(name), *cells])
    header = ["run", *(title for _ in SCORES for title in ("value", "low", "high"))]
    caption = (
        f"Percentile intervals at a level of {LEVEL:.0%} from {REPEATS:,} bootstrap resamples of "
        "the test samples: how much the scores would move with other test samples, for these "
        "networks. Other seeds of training move them as well, which this does not show. The ECE of "
        "a resample tends to be higher than that of the samples themselves."
    )
    table = Table(header, rows, [("", 1), *((_TITLES[key], 3) for key in SCORES)])
    return [Section("Confidence intervals", caption, table, "intervals", CHAPTER)]


def differences_section(comparison: Comparison) -> list[Section]:
    """How the runs differ from the reference."""
    reference = comparison.reference
    base = comparison.analyses.get(reference.name)
    if base is None or len(comparison.analyses) < 2:
        return []
    rows = []
    for name, analysis in comparison.analyses.items():
        if name == reference.name:
            continue
        found = differences(analysis.ensemble, base.ensemble, base.labels)
        cells = []
        for key, score in found.scores.items():
            cells += [*_cells(score, "+" + _FORMS[key]), _p_cell(score.p)]
        rows.append([Cell(name), *cells, _p_cell(found.mcnemar)])
    header = [
        "run",
        *(title for _ in SCORES for title in ("Δ", "low", "high", "p")),
        "p",
    ]
    caption = (
        f"What each run's score is above that of {reference.name}, with intervals at {LEVEL:.0%} "
        f"and two-sided p-values from {REPEATS:,} bootstrap resamples, in which both runs see the "
        "same samples. Differences of Acc are points. McNemar: the exact p-value of the samples "
        "that only one of both gets right. No p-value is adjusted for the number of comparisons."
    )
    groups = [("", 1), *((_TITLES[key], 4) for key in SCORES), ("McNemar", 1)]
    title = f"Differences from {reference.name}"
    return [Section(title, caption, Table(header, rows, groups), "differences", CHAPTER)]


def _p_cell(p: float) -> Cell:
    return replace(Cell.of(p, "g"), text=p_text(p))


def _cells(score: Interval | Difference, form: str) -> list[Cell]:
    return [Cell.of(number, form) for number in (score.value, score.low, score.high)]


def _scores_text(task: TaskFacts) -> str:
    """What the scores are, as far as their titles don't say it."""
    if not task.has_classes:
        unclear = [score for score in task.scores if score.name != score.title]
        return "".join(f"{score.title} is the {score.name}; " for score in unclear)
    return (
        "NLL is the mean negative log-likelihood in nats; ECE is the expected calibration error "
        f"over {ECE_BINS} equal bins of confidence; "
    )


def _corruption_text(runs: Sequence[RunSummary]) -> str:
    chosen = choose_corruptions(run.results for run in runs)
    if chosen is None:
        return ""
    types = ", ".join(chosen.types)
    severities = ", ".join(map(str, chosen.severities))
    shown = {row.run for row in make_rows(runs) if row.corruptions is not None}
    shifts = [shift for run in runs if run.name in shown and (shift := corrupted(run)) is not None]
    origins = sorted({f"{shift.origin}, {shift.samples:,} a set" for shift in shifts})
    text = (
        "cAcc, cNLL and cECE are the means over types and severities of corruptions (set "
        f"{chosen.name}{f': {types}' if types else ''}; severities {severities}; samples: "
        f"{' or '.join(origins)}); pooled is the ECE of all corrupted samples together. "
    )
    if len(origins) > 1:
        text += "Not all runs saw the same corrupted samples, so compare these columns with care. "
    return text


def _natural_text(runs: Sequence[RunSummary]) -> str:
    if not any("imagenet-a" in run.results.natural for run in runs):
        return ""
    return (
        "aAcc, aNLL and aECE are those on ImageNet-A, with every member's probabilities restricted "
        "to its 200 classes. "
    )
