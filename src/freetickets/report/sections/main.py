"""The main table, what it costs and how sure it is, and how the runs were trained."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from ... import metrics
from ...evaluation.results import choose_corruptions
from ...metrics.score import MAIN_SCORES, p_text
from .. import comparison as comparing
from ..comparison import LEVEL, REPEATS, Comparison
from ..figures.breakdowns import layer_densities
from ..figures.points import cost_against_quality
from ..figures.training import training_curves
from ..parts import Details, Figure, Shown, Table, TableCell, row
from ..tables import main_columns, main_table, make_rows, more_columns


def main(comparison: Comparison) -> Iterator[Shown]:
    """The main table, in the paper's form."""
    runs, first = comparison.runs, comparison.runs[0].results
    if first.task.has_classes:
        scores = [f"{it.title} is {it.caption}; " for it in MAIN_SCORES if it.caption]
    else:  # as far as titles don't say it
        unclear = [score for score in first.task.scores if score.name != score.title]
        scores = [f"{score.title} is the {score.name}; " for score in unclear]
    words: dict[str, Any] = {
        "samples": first.samples,
        "dataset": first.dataset,
        "scores": "".join(scores),
    }
    words["natural"] = any("imagenet-a" in run.results.natural for run in runs)
    words["corruptions"] = _corruption_text(comparison)
    table = main_table(make_rows(runs), main_columns(first.task.scores))
    yield Shown(table, words | {"flops": _flops_text(comparison)})


def more(comparison: Comparison) -> Iterator[Shown]:
    """What the paper's table does not have."""
    columns = more_columns(comparison.runs[0].results.task.scores)
    yield Shown(main_table(make_rows(comparison.runs), columns))


def cost(comparison: Comparison) -> Iterator[Shown]:
    """What each run took to train, and how good it became."""
    words = {"front": len(comparison.runs) > 1, "flops": _flops_text(comparison)}
    yield Shown(Figure(cost_against_quality(comparison.runs)), words)


def intervals(comparison: Comparison) -> Iterator[Shown]:
    """How sure the scores are."""
    rows = []
    for name, it in comparison.analyses.items():
        found = [(score, metrics.bootstrap(score, it.ensemble, it.labels)) for score in MAIN_SCORES]
        numbers = [
            (each, score.form) for score, of in found for each in (of.value, of.low, of.high)
        ]
        rows.append(row(name, *numbers))
    header = ["run", *(["value", "low", "high"] * len(MAIN_SCORES))]
    groups = [("", 1), *((score.short, 3) for score in MAIN_SCORES)]
    yield Shown(Table(header, rows, groups), {"level": LEVEL, "repeats": REPEATS})


def differences(comparison: Comparison) -> Iterator[Shown]:
    """How the runs differ from the reference."""
    reference, rows, others = comparison.reference.name, [], dict(comparison.analyses)
    base = others.pop(reference, None)
    if base is None:
        return
    for name, it in others.items():
        found = comparing.differences(it.ensemble, base.ensemble, base.labels)
        cells = row(name)
        for score in MAIN_SCORES:
            gap, form = found.scores[score.key], f"+{score.form}"
            cells += row((gap.value, form), (gap.low, form), (gap.high, form), _p_cell(gap.p))
        rows.append([*cells, _p_cell(found.mcnemar)])
    header = ["run", *(["Δ", "low", "high", "p"] * len(MAIN_SCORES)), "p"]
    groups = [("", 1), *((score.short, 4) for score in MAIN_SCORES), ("McNemar", 1)]
    words = {"reference": reference, "level": LEVEL, "repeats": REPEATS}
    yield Shown(Table(header, rows, groups), words)


def training(comparison: Comparison) -> Iterator[Shown]:
    """How each run was trained."""
    for number, run in enumerate(comparison.runs):
        words: dict[str, Any] = {"run": run.name, "description": run.description}
        words |= {"score": run.results.task.running.title}
        words |= {"escapes": any(it.has("escape") for it in run.log)}
        words |= {"explored": any(it.itop_rate is not None for it in run.log)}
        yield Shown(Figure(training_curves(run, number)), words, f"training-{number + 1}")


def layers(comparison: Comparison) -> Iterator[Shown]:
    """Which layers hold the weights."""
    found = {
        run.name: [(each.name, fmean(each.density)) for each in run.results.layers]
        for run in comparison.runs
    }
    yield Shown(Figure(layer_densities(found, comparison.names)))


def phases(comparison: Comparison) -> Iterator[Shown]:
    """What each phase of each run cost."""
    header = ["run", "network", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs ×"]
    rows = [
        row(
            *(run.name, (it.run, "d"), it.phase, (it.epochs, "g"), (it.steps, ",d")),
            *((it.sparsity, "g"), (it.explorations, ",d")),
            *((it.flops / run.ledger.dense_flops, ".3f"), (it.seconds, ",.1f")),
        )
        for run in comparison.runs
        for it in run.ledger.phases
    ]
    yield Shown(Table([*header, "seconds"], rows), {"flops": _flops_text(comparison)})


def settings(comparison: Comparison) -> Iterator[Shown]:
    """What each run was."""
    items = [
        (f"{run.name}: {run.description}, {run.config.model}", run.config.as_yaml())
        for run in comparison.runs
    ]
    yield Shown(Details(items))


def _p_cell(p: float) -> TableCell:
    return replace(TableCell.of(p, "g"), text=p_text(p))


def _flops_text(comparison: Comparison) -> str:
    """What FLOPs count, and what they are a multiple of."""
    counted = "FLOPs are counted as RigL does (3 × forward a sample, each layer by its density)"
    first = comparison.runs[0]
    # A product of fractions of epochs: its last digits depend on the plan.
    if len({f"{run.ledger.dense_flops:.6g}" for run in comparison.runs}) == 1:
        return (
            f"{counted}, as multiples of one dense training of {first.config.model} for "
            f"{first.ledger.dense_epochs:g} epochs ({first.ledger.dense_flops:.2g} FLOPs)."
        )
    return (
        f"{counted}, as multiples of one dense training of each run's own model and length: these "
        "differ here, so that multiples of different runs can't be compared."
    )


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
