"""What becomes of the scores where samples are corrupted, or made to deceive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...evaluation.results import Attack, Shift
from ...tasks import CLASSIFICATION
from ..comparison import Comparison
from ..figures.heatmaps import corruption_heatmaps, transfer_heatmaps
from ..figures.scores import attack_bars, severity_curves
from ..parts import ABSENT, Figure, Folded, Section, Table, TableCell, score_cells
from ..tables import shift_columns

_SCORES = CLASSIFICATION.scores


def corruptions_section(comparison: Comparison) -> Iterator[Section]:
    """The means over sets of corruptions."""
    shown = [*_SCORES, replace(_SCORES[-1], key="ece_pooled")]
    rows = [
        [
            TableCell(name),
            TableCell(of),
            TableCell(shift.origin),
            TableCell.of(shift.samples, ",d"),
            *score_cells(means, shown),
        ]
        for name, shift in _shifts(comparison).items()
        for of, means in shift.means.items()
    ]
    header = ["run", "set", "samples from", "samples", *(it.heading for it in shift_columns())]
    caption = (
        "Means over all types of a set and all severities. all19: every type of CIFAR-10-C and its "
        "like; common15: without the four extra types; ub: what Uncertainty Baselines average "
        "over; given: the types that were asked for. cECE is the mean of the sets' own, pooled "
        "that of all samples together. Samples is the size of each set."
    )
    yield Section("Corruptions", caption, Table(header, rows), "corruptions")


def severity_section(comparison: Comparison) -> Iterator[Section]:
    """Scores by severity."""
    shifts = _shifts(comparison)
    found = [shift.severities for shift in shifts.values()]
    severities = max(found, key=found.count, default=())  # of equals, the first
    others = [name for name, shift in shifts.items() if shift.severities != severities]
    shifts = {name: shift for name, shift in shifts.items() if name not in others}
    first = next((shift.types for shift in shifts.values()), ())
    alike = [kind for kind in first if all(kind in shift.types for shift in shifts.values())]
    curves = {}
    for name, shift in shifts.items() if alike else ():
        lines = [shift.types.index(kind) for kind in alike]
        curves[name] = {key: values[lines].mean(0) for key, values in shift.scores.items()}
    caption = (
        f"The mean over {len(alike)} types of corruption that all of these runs were tested on, "
        "by severity."
    )
    if others:
        caption += f" Left out, because they were tested at other severities: {', '.join(others)}."
    figure = Figure(severity_curves(severities, curves, comparison.names), "severity")
    yield Section("Corruptions by severity", caption, figure, "severity")


def types_section(comparison: Comparison) -> Iterator[Section]:
    """Accuracy by type and severity."""
    shifts = _shifts(comparison)
    score = _SCORES[0]
    maps = {name: (it.types, it.severities, it.scores[score.key]) for name, it in shifts.items()}
    caption = (
        "Accuracy of the ensemble on each corrupted set, by type and severity; colours have one "
        "scale for all runs."
    )
    if any(shift.frost == "synthetic" for shift in shifts.values()):
        caption += " Frost was generated from synthetic textures, not from the original pictures."
    figure = Figure(corruption_heatmaps(maps, score), "corruption-types")
    yield Section("Corruptions by type", caption, figure, "corruption-types")


def corruption_scores_section(comparison: Comparison) -> Iterator[Section]:
    """The same in numbers, all scores."""
    rows = [
        [
            TableCell(name),
            TableCell(kind),
            TableCell.of(severity, "d"),
            *score_cells({key: float(it[i, j]) for key, it in shift.scores.items()}, _SCORES),
        ]
        for name, shift in _shifts(comparison).items()
        for i, kind in enumerate(shift.types)
        for j, severity in enumerate(shift.severities)
    ]
    header = ["run", "type", "severity", *(score.title for score in _SCORES)]
    caption = "What the ensembles score on every set; the report command saves the same as a file."
    table = Folded(f"{len(rows):,} rows", Table(header, rows))
    yield Section("Every corrupted set", caption, table, "corruption-scores")


def natural_section(comparison: Comparison) -> Iterator[Section]:
    """Natural shifts, such as ImageNet-A."""
    rows = [
        [TableCell(run.name), TableCell(name), TableCell(way), *score_cells(scores, _SCORES)]
        for run in comparison.runs
        for name, ways in run.results.natural.items()
        for way, scores in ways.items()
    ]
    caption = (
        "Pictures that were not made but found. 1000-way: as the ensemble predicts; 200-way: every "
        "member's probabilities restricted to the 200 classes that the set has, then averaged."
    )
    header = ["run", "set", "classes", *(f"{score.short} {score.arrow}" for score in _SCORES)]
    yield Section("Natural shifts", caption, Table(header, rows), "natural")


def attacks_section(comparison: Comparison) -> Iterator[Section]:
    """Accuracy under attack: the table."""
    rows = [
        [
            TableCell(run.name),
            TableCell(kind),
            replace(TableCell.of(it.epsilon, "g"), text=_over_255(it.epsilon)),
            TableCell.of(it.steps, "d"),
            TableCell.of(it.samples, ",d"),
            *(TableCell.of(each, _SCORES[0].form) for each in (it.clean, it.min, it.mean, it.max)),
        ]
        for run in comparison.runs
        for kind, it in run.results.attacks.items()
    ]
    header = ["run", "attack", "ε", "steps", "samples", "clean ↑", "min ↑", "mean ↑", "max ↑"]
    caption = (
        "Accuracy of the ensemble on samples that were changed to deceive one member, by at most ε "
        "a pixel; lowest, mean and highest over the members that they were made for. Clean: on the "
        "same samples untouched."
    )
    yield Section("Attacks", caption, Table(header, rows), "attacks")


def attack_bars_sections(comparison: Comparison) -> Iterator[Section]:
    """Accuracy under each kind of attack: the bars."""
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            panels += attack_bars(attacks, what, comparison.names)
        caption = (
            f"{kind.upper()}: accuracy of the ensemble on untouched samples, and its mean over the "
            "attacks made for each member, with whiskers from the lowest to the highest."
        )
        key = f"attack-{_slug(kind)}"
        yield Section(f"Accuracy under {kind.upper()}", caption, Figure(panels, key), key)


def transfer_sections(comparison: Comparison) -> Iterator[Section]:
    """Whether what deceives one member deceives the others."""
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            several = {name: it.transfer for name, it in attacks.items() if len(it.transfer) > 1}
            panels += transfer_heatmaps(several, what)
        caption = (
            f"{kind.upper()}: accuracy of each member (columns) on the samples that were made to "
            "deceive another (rows); on the diagonal, itself."
        )
        key = f"transfer-{_slug(kind)}"
        title = f"Transfer of {kind.upper()} between members"
        yield Section(title, caption, Figure(panels, key), key)


def _shifts(comparison: Comparison) -> dict[str, Shift]:
    found = {run.name: run.results.corrupted for run in comparison.runs}
    return {name: shift for name, shift in found.items() if shift is not None}


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
