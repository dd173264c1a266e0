"""What becomes of scores where samples are corrupted, made to deceive, or of no class at all."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from ...evaluation.results import Attack, Shift
from ...metrics.calibration import DEFAULT_BINS
from ...metrics.score import MORE_SCORES, column_of
from ...tasks import CLASSIFICATION
from ..comparison import Comparison, Unfamiliar
from ..figures import uncertainty
from ..figures.heatmaps import corruption_heatmaps, transfer_heatmaps
from ..figures.scores import attack_bars, severity_curves
from ..parts import ABSENT, Figure, Folded, Shown, Table, TableCell, row, score_cells
from ..tables import shift_columns

_SCORES = CLASSIFICATION.scores
_NOVELTY = {
    "max_probability": "1 − highest probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
}


def corruptions(comparison: Comparison) -> Iterator[Shown]:
    """The means over sets of corruptions."""
    shown = [*_SCORES, replace(_SCORES[-1], key="ece_pooled")]
    rows = [
        row(name, of, shift.origin, (shift.samples, ",d"), *score_cells(means, shown))
        for name, shift in _shifts(comparison).items()
        for of, means in shift.means.items()
    ]
    titles = [f"{it.title} {it.arrow}" for it in shift_columns()]
    yield Shown(Table(["run", "set", "samples from", "samples", *titles], rows))


def severity(comparison: Comparison) -> Iterator[Shown]:
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
    words = {"types": len(alike), "others": ", ".join(others), "left_out": bool(others)}
    yield Shown(Figure(severity_curves(severities, curves, comparison.names)), words)


def corruption_types(comparison: Comparison) -> Iterator[Shown]:
    """Accuracy by type and severity."""
    shifts, score = _shifts(comparison), _SCORES[0]
    maps = {name: (it.types, it.severities, it.scores[score.key]) for name, it in shifts.items()}
    synthetic = any(shift.frost == "synthetic" for shift in shifts.values())
    yield Shown(Figure(corruption_heatmaps(maps, score)), {"frost": synthetic})


def corruption_scores(comparison: Comparison) -> Iterator[Shown]:
    """The same in numbers, all scores."""
    rows = []
    for name, shift in _shifts(comparison).items():
        for (i, kind), (j, severity) in product(
            enumerate(shift.types), enumerate(shift.severities)
        ):
            scores = {key: float(it[i, j]) for key, it in shift.scores.items()}
            rows.append(row(name, kind, (severity, "d"), *score_cells(scores, _SCORES)))
    header = ["run", "type", "severity", *(score.title for score in _SCORES)]
    yield Shown(Folded(f"{len(rows):,} rows", Table(header, rows)))


def natural(comparison: Comparison) -> Iterator[Shown]:
    """Natural shifts, such as ImageNet-A."""
    rows = [
        row(run.name, name, way, *score_cells(scores, _SCORES))
        for run in comparison.runs
        for name, ways in run.results.natural.items()
        for way, scores in ways.items()
    ]
    header = ["run", "set", "classes", *(f"{score.short} {score.arrow}" for score in _SCORES)]
    yield Shown(Table(header, rows))


def attacks(comparison: Comparison) -> Iterator[Shown]:
    """Accuracy under attack: the table."""
    rows = []
    for run in comparison.runs:
        for kind, it in run.results.attacks.items():
            size = replace(TableCell.of(it.epsilon, "g"), text=_over_255(it.epsilon))
            told = [(each, _SCORES[0].form) for each in (it.clean, it.min, it.mean, it.max)]
            rows.append(row(run.name, kind, size, (it.steps, "d"), (it.samples, ",d"), *told))
    header = "run", "attack", "ε", "steps", "samples", "clean ↑", "min ↑", "mean ↑", "max ↑"
    yield Shown(Table(header, rows))


def attack(comparison: Comparison) -> Iterator[Shown]:
    """Accuracy under each kind of attack: the bars."""
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            panels += attack_bars(attacks, what, comparison.names)
        yield Shown(Figure(panels), {"kind": kind.upper()}, f"attack-{_slug(kind)}")


def transfer(comparison: Comparison) -> Iterator[Shown]:
    """Whether what deceives one member deceives the others."""
    for kind, settings in _attacks(comparison).items():
        panels = []
        for what, attacks in settings.items():
            several = {name: it.transfer for name, it in attacks.items() if len(it.transfer) > 1}
            panels += transfer_heatmaps(several, what)
        yield Shown(Figure(panels), {"kind": kind.upper()}, f"transfer-{_slug(kind)}")


def scores(comparison: Comparison) -> Iterator[Shown]:
    """Further scores of the ensembles."""
    measured = [run for run in comparison.runs if run.results.more]
    shown = [it for it in MORE_SCORES if any(it.key in run.results.more for run in measured)]
    rows = [row(run.name, *score_cells(run.results.more, shown)) for run in measured if shown]
    texts = (f"{it.title[:1].upper()}{it.title[1:]}: {it.caption}." for it in shown)
    table = Table(["run", *(f"{it.title} {it.arrow}" for it in shown)], rows)
    yield Shown(table, {"definitions": " ".join(texts)})


def reliability(comparison: Comparison) -> Iterator[Shown]:
    """Accuracy by confidence."""
    panels = uncertainty.reliability_diagrams(comparison.each("reliability"), comparison.names)
    yield Shown(Figure(panels), {"bins": DEFAULT_BINS})


def risk_coverage(comparison: Comparison) -> Iterator[Shown]:
    """Risk by coverage."""
    yield Shown(Figure(uncertainty.risk_curves(comparison.each("risk"), comparison.names)))


def ood(comparison: Comparison) -> Iterator[Shown]:
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
    yield Shown(Table(["set", "run", "samples", *(titles * len(scores))], rows, groups))


def roc(comparison: Comparison) -> Iterator[Shown]:
    """Telling samples of no class: the curves."""
    curves = {
        name: {run: (each.roc, each.auroc) for run, each in runs.items()}
        for name, runs in _unfamiliar(comparison).items()
    }
    yield Shown(Figure(uncertainty.roc_curves(curves, comparison.names)))


def novelty(comparison: Comparison) -> Iterator[Shown]:
    """How novel samples seem."""
    scores = {
        name: {run: (each.inside, each.outside) for run, each in runs.items()}
        for name, runs in _unfamiliar(comparison).items()
    }
    yield Shown(Figure(uncertainty.novelty_histograms(scores, comparison.names)))


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
