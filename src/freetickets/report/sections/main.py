"""The main table, what it costs, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ... import metrics
from ...evaluation.results import TaskFacts, choose_corruptions
from ...metrics.score import MAIN_SCORES, p_text
from ..analysis import LEVEL, REPEATS, differences
from ..comparison import Comparison, flops_text
from ..figures.points import cost_against_quality
from ..parts import Figure, Section, Table, TableCell
from ..run import RunSummary
from ..tables import main_columns, main_table, make_rows, more_columns


def main_section(comparison: Comparison) -> Iterator[Section]:
    """The main table, in the paper's form."""
    runs, first = comparison.runs, comparison.runs[0].results
    caption = (
        f"Scores of the ensembles on the {first.samples:,} test samples of {first.dataset}. "
        f"{_scores_text(first.task)}↑ higher is better, ↓ lower is. "
        f"{_corruption_text(runs)}{_natural_text(runs)}{flops_text(runs)} Test FLOPs are "
        "those of one prediction by all members. Runs are trainings as the paper counts them: "
        "one-pass methods need one. Seconds are those in training steps. Of several one-pass "
        "methods the best is in bold, of several multi-pass methods in bold and blue; the single "
        "dense model and the dense ensemble are what they are measured against."
    )
    table = main_table(make_rows(runs), main_columns(first.task.scores))
    yield Section("Comparison", caption, table, "main")


def more_section(comparison: Comparison) -> Iterator[Section]:
    """What the paper's table does not have."""
    caption = (
        "Member mean: the mean of what the members score alone on the test samples. Growth: the "
        "dense gradients that explorations look at, as a multiple of one dense training; they are "
        "not part of training FLOPs. MB are all members on disk. Marks as above."
    )
    columns = more_columns(comparison.runs[0].results.task.scores)
    table = main_table(make_rows(comparison.runs), columns)
    yield Section("Member means and sizes", caption, table, "more")


def cost_section(comparison: Comparison) -> Iterator[Section]:
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
    yield Section("Cost against quality", caption, figure, "cost")


def intervals_section(comparison: Comparison) -> Iterator[Section]:
    """How sure the scores are."""
    rows = []
    for name, analysis in comparison.analyses.items():
        cells = [TableCell(name)]
        for score in MAIN_SCORES:
            found = metrics.bootstrap(score, analysis.ensemble, analysis.labels)
            cells += [TableCell.of(it, score.form) for it in (found.value, found.low, found.high)]
        rows.append(cells)
    header = ["run", *(["value", "low", "high"] * len(MAIN_SCORES))]
    caption = (
        f"Percentile intervals at a level of {LEVEL:.0%} from {REPEATS:,} bootstrap resamples of "
        "the test samples: how much the scores would move with other test samples, for these "
        "networks. Other seeds of training move them as well, which this does not show. The ECE of "
        "a resample tends to be higher than that of the samples themselves."
    )
    table = Table(header, rows, [("", 1), *((score.short, 3) for score in MAIN_SCORES)])
    yield Section("Confidence intervals", caption, table, "intervals")


def differences_section(comparison: Comparison) -> Iterator[Section]:
    """How the runs differ from the reference."""
    reference = comparison.reference
    base = comparison.analyses.get(reference.name)
    if base is None:
        return
    rows = []
    for name, analysis in comparison.analyses.items():
        if name == reference.name:
            continue
        found = differences(analysis.ensemble, base.ensemble, base.labels)
        cells = [TableCell(name)]
        for score in MAIN_SCORES:
            it = found.scores[score.key]
            cells += [TableCell.of(each, f"+{score.form}") for each in (it.value, it.low, it.high)]
            cells.append(_p_cell(it.p))
        rows.append([*cells, _p_cell(found.mcnemar)])
    header = ["run", *(["Δ", "low", "high", "p"] * len(MAIN_SCORES)), "p"]
    caption = (
        f"What each run's score is above that of {reference.name}, with intervals at {LEVEL:.0%} "
        f"and two-sided p-values from {REPEATS:,} bootstrap resamples, in which both runs see the "
        "same samples. Differences of Acc are points. McNemar: the exact p-value of the samples "
        "that only one of both gets right. No p-value is adjusted for the number of comparisons."
    )
    groups = [("", 1), *((score.short, 4) for score in MAIN_SCORES), ("McNemar", 1)]
    title = f"Differences from {reference.name}"
    yield Section(title, caption, Table(header, rows, groups), "differences")


def _p_cell(p: float) -> TableCell:
    return replace(TableCell.of(p, "g"), text=p_text(p))


def _scores_text(task: TaskFacts) -> str:
    """What the scores are, as far as their titles don't say it."""
    if not task.has_classes:
        unclear = [score for score in task.scores if score.name != score.title]
        return "".join(f"{score.title} is the {score.name}; " for score in unclear)
    return "".join(f"{it.title} is {it.caption}; " for it in MAIN_SCORES if it.caption)


def _corruption_text(runs: Sequence[RunSummary]) -> str:
    chosen = choose_corruptions(run.results for run in runs)
    if chosen is None:
        return ""
    types = ", ".join(chosen.types)
    severities = ", ".join(map(str, chosen.severities))
    shown = {row.run for row in make_rows(runs) if row.corruptions is not None}
    shifts = [run.results.corrupted for run in runs if run.name in shown]
    origins = sorted({f"{it.origin}, {it.samples:,} a set" for it in shifts if it is not None})
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
