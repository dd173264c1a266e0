"""What becomes of scores where samples are corrupted, made to deceive, or of no class at all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ...evaluation.results import Attack, Shift
from ...metrics.calibration import DEFAULT_BINS
from ...metrics.score import MORE_SCORES, column_of
from ...tasks import CLASSIFICATION
from ..analysis import Unfamiliar
from ..comparison import Comparison
from ..figures import uncertainty
from ..figures.heatmaps import corruption_heatmaps, transfer_heatmaps
from ..figures.scores import attack_bars, severity_curves
from ..parts import ABSENT, Figure, Folded, Section, Table, TableCell, row, score_cells
from ..tables import shift_columns

_SCORES = CLASSIFICATION.scores
_NOVELTY = {
    "max_probability": "1 − highest probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
}


def corruptions(comparison: Comparison) -> Iterator[Section]:
    """The means over sets of corruptions."""
    shown = [*_SCORES, replace(_SCORES[-1], key="ece_pooled")]
    rows = [
        row(name, of, shift.origin, (shift.samples, ",d"), *score_cells(means, shown))
        for name, shift in _shifts(comparison).items()
        for of, means in shift.means.items()
    ]
    header = [
        "run",
        "set",
        "samples from",
        "samples",
        *(f"{it.title} {it.arrow}" for it in shift_columns()),
    ]
    caption = (
        "Means over all types of a set and all severities. all19: every type of CIFAR-10-C and its "
        "like; common15: without the four extra types; ub: what Uncertainty Baselines average "
        "over; given: the types that were asked for. cECE is the mean of the sets' own, pooled "
        "that of all samples together. Samples is the size of each set."
    )
    yield Section("Corruptions", caption, Table(header, rows))


def severity(comparison: Comparison) -> Iterator[Section]:
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
    yield Section(
        "Corruptions by severity",
        caption,
        Figure(severity_curves(severities, curves, comparison.names)),
    )


def corruption_types(comparison: Comparison) -> Iterator[Section]:
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
    yield Section("Corruptions by type", caption, Figure(corruption_heatmaps(maps, score)))


def corruption_scores(comparison: Comparison) -> Iterator[Section]:
    """The same in numbers, all scores."""
    rows = [
        [
            *row(name, kind, (severity, "d")),
            *score_cells({key: float(it[i, j]) for key, it in shift.scores.items()}, _SCORES),
        ]
        for name, shift in _shifts(comparison).items()
        for i, kind in enumerate(shift.types)
        for j, severity in enumerate(shift.severities)
    ]
    header = ["run", "type", "severity", *(score.title for score in _SCORES)]
    caption = "What the ensembles score on every set; the report command saves the same as a file."
    table = Folded(f"{len(rows):,} rows", Table(header, rows))
    yield Section("Every corrupted set", caption, table)


def natural(comparison: Comparison) -> Iterator[Section]:
    """Natural shifts, such as ImageNet-A."""
    rows = [
        row(run.name, name, way, *score_cells(scores, _SCORES))
        for run in comparison.runs
        for name, ways in run.results.natural.items()
        for way, scores in ways.items()
    ]
    caption = (
        "Pictures that were not made but found. 1000-way: as the ensemble predicts; 200-way: every "
        "member's probabilities restricted to the 200 classes that the set has, then averaged."
    )
    header = ["run", "set", "classes", *(f"{score.short} {score.arrow}" for score in _SCORES)]
    yield Section("Natural shifts", caption, Table(header, rows))


def attacks(comparison: Comparison) -> Iterator[Section]:
    """Accuracy under attack: the table."""
    rows = [
        [
            *row(
                run.name, kind, replace(TableCell.of(it.epsilon, "g"), text=_over_255(it.epsilon))
            ),
            *row((it.steps, "d"), (it.samples, ",d")),
            *row(*((each, _SCORES[0].form) for each in (it.clean, it.min, it.mean, it.max))),
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
    yield Section("Attacks", caption, Table(header, rows))


def attack(comparison: Comparison) -> Iterator[Section]:
    """Accuracy under each kind of attack: the bars."""
    for kind, settings in _attacks(comparison).items():
        names, bars = comparison.names, attack_bars
        panels = [it for what, found in settings.items() for it in bars(found, what, names)]
        caption = (
            f"{kind.upper()}: accuracy of the ensemble on untouched samples, and its mean over the "
            "attacks made for each member, with whiskers from the lowest to the highest."
        )
        title, key = f"Accuracy under {kind.upper()}", f"attack-{_slug(kind)}"
        yield Section(title, caption, Figure(panels), key)


def transfer(comparison: Comparison) -> Iterator[Section]:
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
        title, key = f"Transfer of {kind.upper()} between members", f"transfer-{_slug(kind)}"
        yield Section(title, caption, Figure(panels), key)


def scores(comparison: Comparison) -> Iterator[Section]:
    """Further scores of the ensembles."""
    measured = [run for run in comparison.runs if run.results.more]
    shown = [it for it in MORE_SCORES if any(it.key in run.results.more for run in measured)]
    rows = [row(run.name, *score_cells(run.results.more, shown)) for run in measured if shown]
    texts = (f"{it.title[:1].upper()}{it.title[1:]}: {it.caption}." for it in shown)
    table = Table(["run", *(f"{it.title} {it.arrow}" for it in shown)], rows)
    yield Section("More scores", " ".join(texts), table)


def reliability(comparison: Comparison) -> Iterator[Section]:
    """Accuracy by confidence."""
    caption = (
        f"Accuracy of the ensemble against its confidence, in {DEFAULT_BINS} equal bins of "
        "confidence, and how many test samples fall into each. On the diagonal it is right as "
        "often as it says; the ECE is the mean distance from it, weighted by the samples."
    )
    panels = uncertainty.reliability_diagrams(comparison.each("reliability"), comparison.names)
    yield Section("Reliability", caption, Figure(panels))


def risk_coverage(comparison: Comparison) -> Iterator[Section]:
    """Risk by coverage."""
    caption = (
        "If an ensemble answers only the share of test samples that it is most confident of "
        "(coverage), this share of its answers is wrong (risk). Lower is better; "
        "behind the name: the area under the curve (AURC)."
    )
    panels = uncertainty.risk_curves(comparison.each("risk"), comparison.names)
    yield Section("Risk and coverage", caption, Figure(panels))


def ood(comparison: Comparison) -> Iterator[Section]:
    """Telling samples of no class: the table."""
    found = [
        (name, run, run.results.ood[name])
        for name in _sets(comparison)
        for run in comparison.runs
        if name in run.results.ood
    ]
    keys = ("auroc", "aupr", "fpr95")
    scores = [score for score in _NOVELTY if any(score in it.scores for _, _, it in found)]
    rows = []
    for name, run, unknown in found if scores else ():
        cells = row(name, run.name, (unknown.samples, ",d"))
        for score in scores:
            # Of one network the mutual information is 0, whatever it sees.
            told = score != "mutual_information" or len(run.results.members) > 1
            detection = unknown.scores.get(score) if told else None
            cells += row(*((getattr(detection, key, None), ".4f") for key in keys))
        rows.append(cells)
    columns = {key: column_of(f"ood.x.{key}") for key in keys}
    titles = [f"{key.upper()} {column.arrow}" for key, column in columns.items() if column]
    groups = [("", 3), *((_NOVELTY[score], 3) for score in scores)]
    caption = (
        "How well a score of the ensemble tells the samples of a set that holds none of its "
        "classes from test samples; those of the set count as positive. AUROC is exact, ties count "
        "half; AUPR is the average precision, and depends on the sizes of both sets; FPR95 is the "
        "share of test samples flagged where 95% of the set are. Where only the first samples of a "
        "set were predicted, they are told from as many of the first test samples."
    )
    table = Table(["set", "run", "samples", *(titles * len(scores))], rows, groups)
    yield Section("Out-of-distribution detection", caption, table)


def roc(comparison: Comparison) -> Iterator[Section]:
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
    yield Section("ROC curves", caption, Figure(uncertainty.roc_curves(curves, comparison.names)))


def novelty(comparison: Comparison) -> Iterator[Section]:
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
    yield Section(
        "Novelty of known and unknown samples",
        caption,
        Figure(uncertainty.novelty_histograms(scores, comparison.names)),
    )


def _shifts(comparison: Comparison) -> dict[str, Shift]:
    return {run.name: it for run in comparison.runs if (it := run.results.corrupted) is not None}


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


def _sets(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(name for run in comparison.runs for name in run.results.ood))


def _unfamiliar(comparison: Comparison) -> dict[str, dict[str, Unfamiliar]]:
    """What was found of each set, by run."""
    found = comparison.each("unfamiliar").items()
    return {
        name: {run: sets[name] for run, sets in found if name in sets} for name in _sets(comparison)
    }
