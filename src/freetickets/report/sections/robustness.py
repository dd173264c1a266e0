"""What becomes of the scores where samples are corrupted, or made to deceive."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...evaluation.results import Array, Attack, Shift
from ..figures import (
    AttackBar,
    attack_bars,
    corruption_heatmap,
    severity_curves,
    transfer_heatmaps,
)
from ..parts import ABSENT, Cell, Figure, Folded, Section, Table
from ..tables import corrupted
from .comparison import Comparison

CHAPTER = "Robustness"


def corruptions_section(comparison: Comparison) -> list[Section]:
    """The means over sets of corruptions."""
    shifts = _shifts(comparison)
    rows = [
        [
            Cell(name),
            Cell(of),
            Cell(shift.origin),
            Cell(f"{shift.samples:,}", shift.samples),
            Cell.of(means["accuracy"], ".2%"),
            Cell.of(means["nll"], ".4f"),
            Cell.of(means["ece"], ".4f"),
            Cell.of(means.get("ece_pooled"), ".4f"),
        ]
        for name, shift in shifts.items()
        for of, means in shift.means.items()
    ]
    if not rows:
        return []
    header = ["run", "set", "samples from", "samples", "cAcc ↑", "cNLL ↓", "cECE ↓", "pooled ↓"]
    caption = (
        "Means over all types of a set and all severities. all19: every type of CIFAR-10-C and its "
        "like; common15: without the four extra types; ub: what Uncertainty Baselines average "
        "over; given: the types that were asked for. cECE is the mean of the sets' own, pooled "
        "that of all samples together. Samples is the size of each set."
    )
    section = Section("Corruptions", caption, Table(header, rows), "corruptions", CHAPTER)
    return [section]


def severity_section(comparison: Comparison) -> list[Section]:
    """Scores by severity."""
    shifts = _shifts(comparison)
    if not shifts:
        return []
    found = [shift.severities for shift in shifts.values()]
    severities = max(found, key=found.count)  # of equals, the first
    others = [name for name, shift in shifts.items() if shift.severities != severities]
    shifts = {name: shift for name, shift in shifts.items() if name not in others}
    alike = [
        kind
        for kind in next(iter(shifts.values())).types
        if all(kind in shift.types for shift in shifts.values())
    ]
    if not alike:
        return []
    curves = {
        name: {
            "accuracy": _mean(shift, shift.scores["accuracy"], alike),
            "nll": _mean(shift, shift.scores["nll"], alike),
            "ece": _mean(shift, shift.scores["ece"], alike),
        }
        for name, shift in shifts.items()
    }
    caption = (
        f"The mean over {len(alike)} types of corruption that all of these runs were tested on, "
        "by severity."
    )
    if others:
        caption += f" Left out, because they were tested at other severities: {', '.join(others)}."
    figure = Figure(severity_curves(severities, curves, comparison.names), "severity")
    return [Section("Corruptions by severity", caption, figure, "severity", CHAPTER)]


def types_section(comparison: Comparison) -> list[Section]:
    """Accuracy by type and severity."""
    shifts = _shifts(comparison)
    if not shifts:
        return []
    known = np.concatenate([shift.scores["accuracy"].ravel() for shift in shifts.values()])
    known = known[np.isfinite(known)]
    scale = (float(known.min()), float(known.max())) if len(known) else None
    panels = [
        panel
        for name, shift in shifts.items()
        for panel in corruption_heatmap(
            name, shift.types, shift.severities, shift.scores["accuracy"], scale=scale
        )
    ]
    caption = (
        "Accuracy of the ensemble on each corrupted set, by type and severity; colours have one "
        "scale for all runs."
    )
    if any(shift.frost == "synthetic" for shift in shifts.values()):
        caption += " Frost was generated from synthetic textures, not from the original pictures."
    figure = Figure(panels, "corruption-types")
    return [Section("Corruptions by type", caption, figure, "corruption-types", CHAPTER)]


def corruption_scores_section(comparison: Comparison) -> list[Section]:
    """The same in numbers, all scores."""
    rows = [
        [
            Cell(name),
            Cell(kind),
            Cell(str(severity), severity),
            *(
                Cell.of(float(table[i, j]), form)
                for table, form in zip(shift.scores.values(), (".2%", ".4f", ".4f"), strict=True)
            ),
        ]
        for name, shift in _shifts(comparison).items()
        for i, kind in enumerate(shift.types)
        for j, severity in enumerate(shift.severities)
    ]  # fmt: skip
    if not rows:
        return []
    header = ["run", "type", "severity", "accuracy", "NLL", "ECE"]
    caption = "What the ensembles score on every set; the report command saves the same as a file."
    table = Folded(f"{len(rows):,} rows", Table(header, rows))
    title = "Every corrupted set"
    return [Section(title, caption, table, "corruption-scores", CHAPTER)]


def natural_section(comparison: Comparison) -> list[Section]:
    """Natural shifts, such as ImageNet-A."""
    rows = [
        [
            Cell(run.name),
            Cell(name),
            Cell(way),
            Cell.of(scores["accuracy"], ".2%"),
            Cell.of(scores["nll"], ".4f"),
            Cell.of(scores["ece"], ".4f"),
        ]
        for run in comparison.runs
        for name, ways in run.results.natural.items()
        for way, scores in ways.items()
    ]
    if not rows:
        return []
    caption = (
        "Pictures that were not made but found. 1000-way: as the ensemble predicts; 200-way: every "
        "member's probabilities restricted to the 200 classes that the set has, then averaged."
    )
    table = Table(["run", "set", "classes", "Acc ↑", "NLL ↓", "ECE ↓"], rows)
    return [Section("Natural shifts", caption, table, "natural", CHAPTER)]


def attacks_section(comparison: Comparison) -> list[Section]:
    """Accuracy under attack: the table."""
    rows = [
        [
            Cell(run.name),
            Cell(kind),
            replace(Cell.of(attack.epsilon, "g"), text=_over_255(attack.epsilon)),
            Cell.of(attack.steps, "d"),
            Cell(f"{attack.samples:,}", attack.samples),
            *(
                Cell.of(value, ".2%")
                for value in (attack.clean, attack.min, attack.mean, attack.max)
            ),
        ]
        for run in comparison.runs
        for kind, attack in run.results.attacks.items()
    ]
    if not rows:
        return []
    header = ["run", "attack", "ε", "steps", "samples", "clean ↑", "min ↑", "mean ↑", "max ↑"]
    caption = (
        "Accuracy of the ensemble on samples that were changed to deceive one member, by at most ε "
        "a pixel; lowest, mean and highest over the members that they were made for. Clean: on the "
        "same samples untouched."
    )
    return [Section("Attacks", caption, Table(header, rows), "attacks", CHAPTER)]


def attack_bars_section(comparison: Comparison) -> list[Section]:
    """Accuracy under attack: the bars."""
    sections = []
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            bars = {
                name: AttackBar(each.clean, each.min, each.mean, each.max)
                for name, each in attacks.items()
            }
            panels += attack_bars(bars, what, comparison.names)
        caption = (
            f"{kind.upper()}: accuracy of the ensemble on untouched samples, and its mean over the "
            "attacks made for each member, with whiskers from the lowest to the highest."
        )
        key = f"attack-{_slug(kind)}"
        title = f"Accuracy under {kind.upper()}"
        sections.append(Section(title, caption, Figure(panels, key), key, CHAPTER))
    return sections


def transfer_section(comparison: Comparison) -> list[Section]:
    """Whether what deceives one member deceives the others."""
    sections = []
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            several = {name: it.transfer for name, it in attacks.items() if len(it.transfer) > 1}
            panels += transfer_heatmaps(several, what)
        if not panels:
            continue
        caption = (
            f"{kind.upper()}: accuracy of each member (columns) on the samples that were made to "
            "deceive another (rows); on the diagonal, itself."
        )
        key = f"transfer-{_slug(kind)}"
        title = f"Transfer of {kind.upper()} between members"
        sections.append(Section(title, caption, Figure(panels, key), key, CHAPTER))
    return sections


def _shifts(comparison: Comparison) -> dict[str, Shift]:
    return {run.name: shift for run in comparison.runs if (shift := corrupted(run)) is not None}


def _attacks(comparison: Comparison) -> dict[str, dict[str, dict[str, Attack]]]:
    """By kind of attack, then by how it was made, for only such can be compared, then by run."""
    kinds: dict[str, dict[str, dict[str, Attack]]] = {}
    for run in comparison.runs:
        for kind, attack in run.results.attacks.items():
            what = f"{kind.upper()}, ε {_over_255(attack.epsilon)}"
            if attack.steps is not None and attack.steps != 1:
                what += f", {attack.steps} steps"
            what += f", {attack.samples:,} samples"
            kinds.setdefault(kind, {}).setdefault(what, {})[run.name] = attack
    return kinds


def _mean(shift: Shift, scores: Array, types: list[str]) -> Array:
    mean: Array = scores[[shift.types.index(kind) for kind in types]].mean(0)
    return mean


def _slug(text: str) -> str:
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in text.lower())


def _over_255(epsilon: float) -> str:
    """A share of the range of a pixel as it is usually written.

    Example:
        >>> _over_255(8 / 255), _over_255(0.1)
        ('8/255', '0.1')
    """
    if not math.isfinite(epsilon):
        return ABSENT
    steps = 255 * epsilon
    return f"{steps:.0f}/255" if math.isclose(steps, round(steps)) else f"{epsilon:.3g}"
