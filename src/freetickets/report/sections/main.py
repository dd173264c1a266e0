"""The main table, what it costs and how sure it is, and how the runs were trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean

from ... import metrics
from ...evaluation.results import choose_corruptions
from ...metrics.score import MAIN_SCORES, p_text
from ..analysis import LEVEL, REPEATS
from ..analysis import differences as compare
from ..comparison import Comparison, flops_text
from ..figures.breakdowns import layer_densities
from ..figures.points import cost_against_quality
from ..figures.training import training_curves
from ..parts import Details, Figure, Section, Table, TableCell, row
from ..tables import main_columns, main_table, make_rows, more_columns


def main(comparison: Comparison) -> Iterator[Section]:
    """The main table, in the paper's form."""
    runs, first = comparison.runs, comparison.runs[0].results
    if first.task.has_classes:
        scores = [f"{it.title} is {it.caption}; " for it in MAIN_SCORES if it.caption]
    else:  # as far as titles don't say it
        unclear = [score for score in first.task.scores if score.name != score.title]
        scores = [f"{score.title} is the {score.name}; " for score in unclear]
    natural = ""
    if any("imagenet-a" in run.results.natural for run in runs):
        natural = (
            "aAcc, aNLL and aECE are those on ImageNet-A, with every member's probabilities "
            "restricted to its 200 classes. "
        )
    caption = (
        f"Scores of the ensembles on the {first.samples:,} test samples of {first.dataset}. "
        f"{''.join(scores)}↑ higher is better, ↓ lower is. "
        f"{_corruption_text(comparison)}{natural}{flops_text(runs)} Test FLOPs are "
        "those of one prediction by all members. Runs are trainings as the paper counts them: "
        "one-pass methods need one. Seconds are those in training steps. Of several one-pass "
        "methods the best is in bold, of several multi-pass methods in bold and blue; the single "
        "dense model and the dense ensemble are what they are measured against."
    )
    table = main_table(make_rows(runs), main_columns(first.task.scores))
    yield Section("Comparison", caption, table)


def more(comparison: Comparison) -> Iterator[Section]:
    """What the paper's table does not have."""
    caption = (
        "Member mean: the mean of what the members score alone on the test samples. Growth: the "
        "dense gradients that explorations look at, as a multiple of one dense training; they are "
        "not part of training FLOPs. MB are all members on disk. Marks as above."
    )
    columns = more_columns(comparison.runs[0].results.task.scores)
    table = main_table(make_rows(comparison.runs), columns)
    yield Section("Member means and sizes", caption, table)


def cost(comparison: Comparison) -> Iterator[Section]:
    """What each run took to train, and how good it became."""
    caption = (
        "Diamonds are ensembles (or single networks), circles the mean of their members; the line "
        f"between them is what combining the members brings. {flops_text(comparison.runs)} The "
        "dashed line is one dense training"
    )
    if len(comparison.runs) > 1:
        caption += "; the stepped line is the front of the runs that no other run beats in both "
        caption += "cost and quality"
    figure = Figure(cost_against_quality(comparison.runs))
    yield Section("Cost against quality", f"{caption}.", figure)


def intervals(comparison: Comparison) -> Iterator[Section]:
    """How sure the scores are."""
    rows = []
    for name, it in comparison.analyses.items():
        cells = row(name)
        for score in MAIN_SCORES:
            found = metrics.bootstrap(score, it.ensemble, it.labels)
            cells += row(*((each, score.form) for each in (found.value, found.low, found.high)))
        rows.append(cells)
    header = ["run", *(["value", "low", "high"] * len(MAIN_SCORES))]
    caption = (
        f"Percentile intervals at a level of {LEVEL:.0%} from {REPEATS:,} bootstrap resamples of "
        "the test samples: how much the scores would move with other test samples, for these "
        "networks. Other seeds of training move them as well, which this does not show. The ECE of "
        "a resample tends to be higher than that of the samples themselves."
    )
    table = Table(header, rows, [("", 1), *((score.short, 3) for score in MAIN_SCORES)])
    yield Section("Confidence intervals", caption, table)


def differences(comparison: Comparison) -> Iterator[Section]:
    """How the runs differ from the reference."""
    reference = comparison.reference
    rows, others = [], dict(comparison.analyses)
    base = others.pop(reference.name, None)
    if base is None:
        return
    for name, it in others.items():
        found = compare(it.ensemble, base.ensemble, base.labels)
        cells = row(name)
        for score in MAIN_SCORES:
            gap, form = found.scores[score.key], f"+{score.form}"
            cells += row((gap.value, form), (gap.low, form), (gap.high, form), _p_cell(gap.p))
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
    yield Section(title, caption, Table(header, rows, groups))


def training(comparison: Comparison) -> Iterator[Section]:
    """How each run was trained."""
    for number, run in enumerate(comparison.runs):
        caption = (
            f"{run.description}: loss and {run.results.task.running.title} at the end of each "
            "epoch, on the training samples as they were seen and on the held-out samples. Shading "
            "and names show the phases, diamonds the tickets where they were collected"
        )
        if any(it.has("escape") for it in run.log):
            caption += ", dashed lines the escapes"
        caption += ". Below: the learning rate (lr)"
        if any(it.itop_rate is not None for it in run.log):
            caption += ", and the share of all weights that were active at any time so far"
            caption += " (explored)"
        figure, key = Figure(training_curves(run, number)), f"training-{number + 1}"
        yield Section(f"Training of {run.name}", f"{caption}.", figure, key)


def layers(comparison: Comparison) -> Iterator[Section]:
    """Which layers hold the weights."""
    layers = {
        run.name: [(each.name, fmean(each.density)) for each in run.results.layers]
        for run in comparison.runs
        if run.results.layers
    }
    caption = (
        "The share of its weights that each layer keeps, the mean over tickets. Layers that the "
        "distribution leaves dense have 100%."
    )
    yield Section(
        "Density of the layers", caption, Figure(layer_densities(layers, comparison.names))
    )


def phases(comparison: Comparison) -> Iterator[Section]:
    """What each phase of each run cost."""
    header = ["run", "network", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs ×"]
    rows = [
        [
            *row(run.name, (it.run, "d"), it.phase, (it.epochs, "g"), (it.steps, ",d")),
            *row((it.sparsity, "g"), (it.explorations, ",d")),
            *row((it.flops / run.ledger.dense_flops, ".3f"), (it.seconds, ",.1f")),
        ]
        for run in comparison.runs
        for it in run.ledger.phases
    ]
    caption = (
        f"{flops_text(comparison.runs)} Explorations leave out the escapes between phases. "
        "Networks are those that a run trains from scratch, one after the other."
    )
    yield Section("Phases and their cost", caption, Table([*header, "seconds"], rows))


def settings(comparison: Comparison) -> Iterator[Section]:
    """What each run was."""
    items = [
        (f"{run.name}: {run.description}, {run.config.model}", run.config.as_yaml())
        for run in comparison.runs
    ]
    caption = "All settings of each run; saved as a file, they repeat it: train --config FILE."
    yield Section("Settings", caption, Details(items))


def _p_cell(p: float) -> TableCell:
    return replace(TableCell.of(p, "g"), text=p_text(p))


def _corruption_text(comparison: Comparison) -> str:
    chosen = choose_corruptions(run.results for run in comparison.runs)
    if chosen is None:
        return ""
    types, severities = ", ".join(chosen.types), ", ".join(map(str, chosen.severities))
    shown = {it.run for it in make_rows(comparison.runs) if it.corruptions is not None}
    shifts = [run.results.corrupted for run in comparison.runs if run.name in shown]
    origins = sorted({f"{it.origin}, {it.samples:,} a set" for it in shifts if it is not None})
    text = (
        "cAcc, cNLL and cECE are the means over types and severities of corruptions (set "
        f"{chosen.name}{f': {types}' if types else ''}; severities {severities}; samples: "
        f"{' or '.join(origins)}); pooled is the ECE of all corrupted samples together. "
    )
    if len(origins) > 1:
        text += "Not all runs saw the same corrupted samples, so compare these columns with care. "
    return text
