"""What makes sections, each by the function of its key; `texts.yaml` says what it shows."""
# ruff: noqa: D103

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ... import metrics
from ...config import Config
from ...evaluation.results import Attack, choose_corruptions
from ...evaluation.trajectory import embed, read_trajectory
from ...metrics import pearson, spearman
from ...metrics.resampling import Interval
from ...metrics.score import MAIN_SCORES, MORE_SCORES, column_of, p_text
from ...predictions import REMAKE, trajectory_files
from ...reading import damaged
from ...tasks import CLASSIFICATION
from ..comparison import Comparison, EnsembleCurve, Unfamiliar, class_names, each_part
from ..figures import breakdowns, points
from ..figures import scores as figures
from ..figures.training import training_curves
from ..parts import ABSENT, Figure, Folded, Shown, Stack, Table, TableCell, Text, row, score_cells
from ..run import RunSummary
from ..tables import main_columns, main_table, make_rows, more_columns, shift_columns

_SCORES = CLASSIFICATION.scores
_NOVELTY = {
    "max_probability": "1 − highest probability",
    "entropy": "entropy",
    "mutual_information": "mutual information",
}


def main(comparison: Comparison) -> Iterator[Shown]:
    runs, first = comparison.runs, comparison.runs[0].results
    if first.task.has_classes:
        scores = [f"{it.title} is {it.caption}; " for it in MAIN_SCORES if it.caption]
    else:  # as far as titles don't say it
        unclear = [score for score in first.task.scores if score.name != score.title]
        scores = [f"{score.title} is the {score.name}; " for score in unclear]
    words: dict[str, Any] = {"scores": "".join(scores)}
    words["natural"] = any("imagenet-a" in run.results.natural for run in runs)
    words["corruptions"] = _corruption_text(comparison)
    yield Shown(main_table(make_rows(runs), main_columns(first.task.scores)), words)


def more(comparison: Comparison) -> Iterator[Shown]:
    columns = more_columns(comparison.runs[0].results.task.scores)
    yield Shown(main_table(make_rows(comparison.runs), columns))


def cost(comparison: Comparison) -> Iterator[Shown]:
    words = {"front": len(comparison.runs) > 1}
    yield Shown(Figure(points.cost_against_quality(comparison.runs)), words)


def cascade(comparison: Comparison) -> Iterator[Shown]:
    runs = [(run, it) for run in comparison.runs if (it := run.results.adjusted) and it.in_turn]
    most = max((len(it.asked) for _, it in runs), default=0)
    header = ["run", *(str(m) for m in range(1, most + 1)), "mean", "FLOPs ×", "of all ×"]
    header += ["ms", "of all, ms"]
    rows = []
    for run, it in runs:
        shares = [count / sum(it.asked) for count in it.asked]
        members, cost = len(run.results.members), run.ledger.relative_test_flops
        milliseconds = [1000 * each for each in it.seconds] or (None, None)
        costs = [count / members * cost for count in (it.mean_asked, len(it.asked))]
        rows.append(
            [
                *row(run.name, *((share, ".1%") for share in [*shares, *[None] * most][:most])),
                *row((it.mean_asked, ".2f"), *((each, ".3f") for each in costs)),
                *row(*((each, ".3g") for each in milliseconds)),
                *score_cells(it.in_turn, _SCORES),
                *score_cells(it.ensemble, _SCORES),
            ]
        )
    titles = [score.short for score in _SCORES]
    groups = [("", 1), ("members asked", most + 1), ("cost", 4)]
    groups += [(title, len(titles)) for title in ("in turn", "all members")]
    yield Shown(Table([*header, *titles, *titles], rows, groups))


def intervals(comparison: Comparison) -> Iterator[Shown]:
    rows = []
    for name, it in comparison.analyses.items():
        found = [(metrics.bootstrap(score, it.ensemble, it.labels), score) for score in MAIN_SCORES]
        rows.append(sum((_interval(of, score.form) for of, score in found), row(name)))
    header = ["run", *(["value", "low", "high"] * len(MAIN_SCORES))]
    yield Shown(Table(header, rows, [("", 1), *((score.short, 3) for score in MAIN_SCORES)]))


def differences(comparison: Comparison) -> Iterator[Shown]:
    rows = []
    for name, found in comparison.differences.items():
        cells = row(name)
        for score in MAIN_SCORES:
            gap = found.scores[score.key]
            cells += [*_interval(gap, f"+{score.form}"), _told(gap.p, p_text(gap.p))]
        rows.append([*cells, _told(found.mcnemar, p_text(found.mcnemar))])
    header = ["run", *(["Δ", "low", "high", "p"] * len(MAIN_SCORES)), "p"]
    groups = [("", 1), *((score.short, 4) for score in MAIN_SCORES), ("McNemar", 1)]
    yield Shown(Table(header, rows, groups))


def training(comparison: Comparison) -> Iterator[Shown]:
    for number, run in enumerate(comparison.runs):
        words: dict[str, Any] = {"run": run.name, "description": run.description}
        words |= {"score": run.results.task.running.title}
        words |= {"escapes": any(it.has("escape") for it in run.log)}
        words |= {"explored": any(it.itop_rate is not None for it in run.log)}
        yield Shown(Figure(training_curves(run, number)), words, f"training-{number + 1}")


def phases(comparison: Comparison) -> Iterator[Shown]:
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
    yield Shown(Table([*header, "seconds"], rows))


def settings(comparison: Comparison) -> Iterator[Shown]:
    folds = [
        Folded(f"{it.name}: {it.description}, {it.config.model}", Text(it.config.as_yaml(), "pre"))
        for it in comparison.runs
    ]
    yield Shown(Stack(folds))


def _corruption_text(comparison: Comparison) -> str:
    chosen = choose_corruptions(run.results for run in comparison.runs)
    if chosen is None:
        return ""
    types, severities = ", ".join(chosen.types), ", ".join(map(str, chosen.severities))
    shown = {it.run for it in make_rows(comparison.runs) if it.corruptions is not None}
    shifts = [run.results.corrupted for run in comparison.runs if run.name in shown]
    origins = sorted({f"{it.origin}, {it.samples:,} a set" for it in shifts if it is not None})
    mixed = "Not all runs saw the same corrupted samples, so compare these columns with care. "
    return (
        "cAcc, cNLL and cECE are the means over types and severities of corruptions (set "
        f"{chosen.name}{f': {types}' if types else ''}; severities {severities}; samples: "
        f"{' or '.join(origins)}); pooled is the ECE of all corrupted samples together. "
        f"{mixed if len(origins) > 1 else ''}"
    )


def member_scores(comparison: Comparison) -> Iterator[Shown]:
    rows, shown = [], comparison.runs[0].results.task.scores
    for run, it in comparison.results.items():
        rows += [row(run, name, *score_cells(of, shown)) for name, of in it.predictors.items()]
    yield Shown(Table(["run", "predictor", *(score.title for score in shown)], rows))


def sparsity(comparison: Comparison) -> Iterator[Shown]:
    families: list[list[RunSummary]] = []  # the same but for their sparsity
    for run in comparison.runs if comparison.has_classes else ():
        alike = (it for it in families if not _but_sparsity(it[0]).differences(_but_sparsity(run)))
        if (family := next(alike, None)) is None:
            families.append(family := [])
        family.append(run)
    curves: dict[str, EnsembleCurve] = {}
    for family in families:
        family.sort(key=_sparsity)
        if _sparsity(family[0]) == _sparsity(family[-1]):
            continue
        method = family[0].config.method
        # One method may have several families: of other sizes, say.
        number = sum(name.partition(" ")[0] == method for name in curves) + 1
        results = [run.results for run in family]
        kl = [it.diversity.kl if it.diversity else math.nan for it in results]
        curves[method if number == 1 else f"{method} {number}"] = EnsembleCurve(
            list(map(_sparsity, family)),
            [it.ensemble["accuracy"] for it in results],
            [it.member_mean["accuracy"] for it in results],
            kl=kl if np.isfinite(kl).any() else None,
        )
    yield Shown(Figure(figures.sparsity_curves(curves)))


def correlations(comparison: Comparison) -> Iterator[Shown]:
    found = [run.results for run in comparison.runs if len(run.results.members) > 1]
    differing = [it.diversity.disagreement if it.diversity else math.nan for it in found]
    shown = comparison.runs[0].results.task.scores[:2]
    means = [np.array([it.member_mean[score.key] for it in found]) for score in shown]
    together = [np.array([it.ensemble[score.key] for it in found]) for score in shown]
    titles = [f"{score.title}: member mean and ensemble" for score in shown]
    titles.append(f"disagreement, and gain in {shown[0].title} over the member mean")
    pairs = [*zip(means, together, strict=True), (np.array(differing), together[0] - means[0])]
    rows = []
    for title, (x, y) in zip(titles, pairs, strict=True):
        known = np.isfinite(x) & np.isfinite(y)
        one, other = x[known], y[known]
        if len(one) > 2 and np.ptp(one) > 0 and np.ptp(other) > 0:
            both = (pearson(one, other), ".3f"), (spearman(one, other), ".3f")
            rows.append(row(title, (len(one), "d"), *both))
    yield Shown(Table(["between", "runs", "Pearson", "Spearman"], rows))


def diversity(comparison: Comparison) -> Iterator[Shown]:
    rows = []
    for name, found in each_part(comparison.results, "diversity").items():
        results = comparison.results[name]
        share = results.ensemble["accuracy"]
        gain = 100 * (share - results.member_mean["accuracy"])
        numbers = [(it, ".4f") for it in (found.disagreement, found.kl, found.kl_one_way)]
        rows.append(row(name, *numbers, (share, _SCORES[0].form), (gain, "+.2f")))
    accuracy = f"{_SCORES[0].short} {_SCORES[0].arrow}"
    yield Shown(Table(["run", "disagreement ↑", "KL ↑", "KL, i<j", accuracy, "gain ↑"], rows))


def disagreement(comparison: Comparison) -> Iterator[Shown]:
    found, draw = each_part(comparison.results, "diversity"), breakdowns.disagreement_heatmaps
    panels = draw(each_part(found, "disagreement_matrix"))
    yield Shown(Figure([*panels, *draw(each_part(found, "kl_matrix"), what="KL divergence")]))


def classes(comparison: Comparison) -> Iterator[Shown]:
    if found := each_part(comparison.analyses, "classes"):
        count = next(iter(comparison.analyses.values())).ensemble.shape[-1]
        names = class_names(comparison.runs[0], count)
        yield Shown(Figure(breakdowns.class_breakdown(names, found, comparison.names)))


def trajectories(comparison: Comparison) -> Iterator[Shown]:
    embeddings = []
    for run in comparison.runs if comparison.has_classes else ():
        if trajectory_files(run.folder):
            with damaged(run.folder / "trajectory", REMAKE):
                embeddings.append(embed({run.name: read_trajectory(run.folder)}))
    few = next((f" (or, for few checkpoints, {each.note})" for each in embeddings if each.note), "")
    paths = {name: each for found in embeddings for name, each in found.paths.items()}
    yield Shown(Figure(points.trajectories(paths)), {"few": few})


def _sparsity(run: RunSummary) -> float:
    return run.ledger.phases[-1].sparsity


def _but_sparsity(run: RunSummary) -> Config:
    options = {key: value for key, value in run.config.options.items() if key != "sparsity"}
    return replace(run.config, options=options)


def corruptions(comparison: Comparison) -> Iterator[Shown]:
    shown = [*_SCORES, replace(_SCORES[-1], key="ece_pooled")]
    rows = [
        row(name, of, shift.origin, (shift.samples, ",d"), *score_cells(means, shown))
        for name, shift in each_part(comparison.results, "corrupted").items()
        for of, means in shift.means.items()
    ]
    titles = [f"{it.title} {it.arrow}" for it in shift_columns()]
    yield Shown(Table(["run", "set", "samples from", "samples", *titles], rows))


def severity(comparison: Comparison) -> Iterator[Shown]:
    shifts = each_part(comparison.results, "corrupted")
    found = [shift.severities for shift in shifts.values()]
    severities = max(found, key=found.count, default=())  # of equals, the first
    others = [name for name, shift in shifts.items() if shift.severities != severities]
    shifts = {name: shift for name, shift in shifts.items() if name not in others}
    first = next((shift.types for shift in shifts.values()), ())
    alike = [kind for kind in first if all(kind in shift.types for shift in shifts.values())]
    curves = {}
    for name, shift in shifts.items() if alike else ():
        lines = list(map(shift.types.index, alike))
        curves[name] = {key: values[lines].mean(0) for key, values in shift.scores.items()}
    words = {"types": len(alike), "others": ", ".join(others), "left_out": bool(others)}
    yield Shown(Figure(figures.severity_curves(severities, curves, comparison.names)), words)


def corruption_types(comparison: Comparison) -> Iterator[Shown]:
    shifts, score = each_part(comparison.results, "corrupted"), _SCORES[0]
    maps = {name: (it.types, it.severities, it.scores[score.key]) for name, it in shifts.items()}
    synthetic = any(shift.frost == "synthetic" for shift in shifts.values())
    yield Shown(Figure(breakdowns.corruption_heatmaps(maps, score)), {"frost": synthetic})


def corruption_scores(comparison: Comparison) -> Iterator[Shown]:
    rows = []
    for name, shift in each_part(comparison.results, "corrupted").items():
        for i, kind in enumerate(shift.types):
            for j, severity in enumerate(shift.severities):
                scores = {key: float(it[i, j]) for key, it in shift.scores.items()}
                rows.append(row(name, kind, (severity, "d"), *score_cells(scores, _SCORES)))
    header = ["run", "type", "severity", *(score.title for score in _SCORES)]
    yield Shown(Folded(f"{len(rows):,} rows", Table(header, rows)))


def natural(comparison: Comparison) -> Iterator[Shown]:
    rows = [
        row(run, name, way, *score_cells(scores, _SCORES))
        for run, results in comparison.results.items()
        for name, ways in results.natural.items()
        for way, scores in ways.items()
    ]
    header = ["run", "set", "classes", *(f"{score.short} {score.arrow}" for score in _SCORES)]
    yield Shown(Table(header, rows))


def attacks(comparison: Comparison) -> Iterator[Shown]:
    rows = []
    for run, results in comparison.results.items():
        for kind, it in results.attacks.items():
            size = _told(it.epsilon, _over_255(it.epsilon))
            told = [(each, _SCORES[0].form) for each in (it.clean, it.min, it.mean, it.max)]
            rows.append(row(run, kind, size, (it.steps, "d"), (it.samples, ",d"), *told))
    header = "run", "attack", "ε", "steps", "samples", "clean ↑", "min ↑", "mean ↑", "max ↑"
    yield Shown(Table(header, rows))


def attack(comparison: Comparison) -> Iterator[Shown]:
    return _by_attack(
        comparison, "attack", lambda what, it: figures.attack_bars(it, what, comparison.names)
    )


def transfer(comparison: Comparison) -> Iterator[Shown]:
    def maps(what: str, attacks: Mapping[str, Attack]) -> list[str]:
        several = {name: it.transfer for name, it in attacks.items() if len(it.transfer) > 1}
        return breakdowns.transfer_heatmaps(several, what)

    return _by_attack(comparison, "transfer", maps)


def scores(comparison: Comparison) -> Iterator[Shown]:
    found = {run: results.more for run, results in comparison.results.items() if results.more}
    shown = [it for it in MORE_SCORES if any(it.key in more for more in found.values())]
    rows = [row(run, *score_cells(more, shown)) for run, more in found.items() if shown]
    texts = (f"{it.title[:1].upper()}{it.title[1:]}: {it.caption}." for it in shown)
    table = Table(["run", *(f"{it.title} {it.arrow}" for it in shown)], rows)
    yield Shown(table, {"definitions": " ".join(texts)})


def ood(comparison: Comparison) -> Iterator[Shown]:
    found = [
        (name, run, results.ood[name])
        for name in _sets(comparison)
        for run, results in comparison.results.items()
        if name in results.ood
    ]
    keys = ("auroc", "aupr", "fpr95")
    scores = [score for score in _NOVELTY if any(score in it.scores for _, _, it in found)]
    rows = []
    for name, run, unknown in found if scores else ():
        cells = row(name, run, (unknown.samples, ",d"))
        for score in scores:
            # Of one network the mutual information is 0, whatever it sees.
            told = score != "mutual_information" or len(comparison.results[run].members) > 1
            detection = unknown.scores.get(score) if told else None
            cells += row(*((getattr(detection, key, None), ".4f") for key in keys))
        rows.append(cells)
    columns = {key: column_of(f"ood.x.{key}") for key in keys}
    titles = [f"{key.upper()} {column.arrow}" for key, column in columns.items() if column]
    groups = [("", 3), *((_NOVELTY[score], 3) for score in scores)]
    yield Shown(Table(["set", "run", "samples", *(titles * len(scores))], rows, groups))


def _by_attack(
    comparison: Comparison, key: str, paint: Callable[[str, Mapping[str, Attack]], list[str]]
) -> Iterator[Shown]:
    """A figure of each kind of attack; only attacks that were made alike share panels."""
    kinds: dict[str, dict[str, dict[str, Attack]]] = {}
    for run, results in comparison.results.items():
        for kind, attack in results.attacks.items():
            what = f"{kind.upper()}, ε {_over_255(attack.epsilon)}"
            if attack.steps is not None and attack.steps != 1:
                what += f", {attack.steps} steps"
            what += f", {attack.samples:,} samples"
            kinds.setdefault(kind, {}).setdefault(what, {})[run] = attack
    for kind, alike in kinds.items():
        panels = [panel for what, attacks in alike.items() for panel in paint(what, attacks)]
        slug = re.sub("[^a-z0-9]", "-", kind.lower())
        yield Shown(Figure(panels), {"kind": kind.upper()}, f"{key}-{slug}")


def _interval(of: Interval, form: str) -> list[TableCell]:
    return row((of.value, form), (of.low, form), (of.high, form))


def _told(value: float, text: str) -> TableCell:
    """A number in words of its own, by which its column is sorted all the same."""
    return replace(TableCell.of(value, "g"), text=text)


def _over_255(epsilon: float) -> str:
    if not math.isfinite(epsilon):
        return ABSENT
    steps = 255 * epsilon
    return f"{steps:.0f}/255" if math.isclose(steps, round(steps)) else f"{epsilon:.3g}"


def _sets(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(name for it in comparison.results.values() for name in it.ood))


def unfamiliar(comparison: Comparison) -> dict[str, dict[str, Unfamiliar]]:
    """What was found of each set, by run."""
    found = each_part(comparison.analyses, "unfamiliar").items()
    return {
        name: {run: sets[name] for run, sets in found if name in sets} for name in _sets(comparison)
    }
