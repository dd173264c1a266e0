"""Scores of runs, over size, sparsity, severity and confidence, and what runs know of unknowns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...evaluation.results import Attack
from ...metrics import Reliability, RiskCoverage
from ...metrics.score import Score
from ...tasks import CLASSIFICATION
from ..comparison import EnsembleCurve, Unfamiliar
from ..run import RunSummary
from . import drawing as draw
from .drawing import colour, series_colour

_ACCURACY, _NLL = CLASSIFICATION.scores[:2]
_ALONE = (0, (3, 2))
_BINS = 40
_DIAGONAL: draw.Style = {"color": colour("muted"), "linewidth": 0.9, "linestyle": draw.DASHED}

Unknown = Mapping[str, Mapping[str, Unfamiliar]]  # by the set of no class, then by run
_Curve = tuple[draw.Series, ArrayLike, ArrayLike, float]  # its look, x, y and the area below


def members_and_ensembles(runs: Sequence[RunSummary]) -> list[str]:
    """A panel for each of the first two scores: the members of a run, their mean, the ensemble."""
    panels: list[str] = []
    labels = draw.shorten_all([run.name for run in runs])
    for score in runs[0].results.task.scores[:2]:
        what = f"{score.name} of the members and the ensemble of {len(runs)} runs"
        with draw.panel(panels, f"members-{score.key}", what, 1.0 + 0.5 * len(runs)) as (_, axes):
            from matplotlib.lines import Line2D

            for line, (run, label) in enumerate(zip(runs, labels, strict=True)):
                axes.axhline(line, color=colour("line"), linewidth=0.6, zorder=0)
                texts = filter(None, [label, draw.shorten(run.description, 28)])
                _write_above(axes, line - 0.3, " · ".join(texts))
                marks: list[tuple[Sequence[Mapping[str, float]], str, dict[str, Any]]] = [
                    (run.results.members, "o", {"markersize": 6, "markerfacecolor": "none"}),
                    ([run.results.member_mean], "|", {"markersize": 14, "markeredgewidth": 1.6}),
                    ([run.results.ensemble], "D", {"markersize": 6}),
                ]
                for found, marker, style in marks if len(run.results.members) > 1 else marks[-1:]:
                    values = [it[score.key] for it in found if math.isfinite(it[score.key])]
                    style |= {"color": series_colour(line)}
                    axes.plot(values, [line] * len(values), marker, **style)
            _line_up(axes, len(runs))
            axes.margins(x=0.06)
            axes.locator_params(axis="x", nbins=6)
            draw.score_axis(axes.xaxis, score)
            grey: draw.Style = {"ls": "", "color": colour("muted")}
            handles = [
                Line2D([], [], marker="o", markerfacecolor="none", label="member", **grey),
                Line2D([], [], marker="|", markersize=10, label="member mean", **grey),
                Line2D([], [], marker="D", markersize=5, label="ensemble", **grey),
            ]
            gaps: draw.Style = {"borderaxespad": 0, "handletextpad": 0.2, "columnspacing": 1.2}
            axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, **gaps)
    return panels


def _line_up(axes: draw.Axes, lines: int) -> None:
    axes.set(ylim=(lines - 0.5, -0.65), yticks=[])
    axes.spines["left"].set_visible(False)


def _write_above(axes: draw.Axes, line: float, text: str) -> None:
    box = {"facecolor": colour("page"), "edgecolor": "none", "pad": 1}
    style: draw.Style = {"color": colour("muted"), "fontsize": draw.SMALL, "va": "center"}
    axes.text(0, line, text, transform=axes.get_yaxis_transform(), bbox=box, **style)


def attack_bars(attacks: Mapping[str, Attack], what: str, runs: Sequence[str] = ()) -> list[str]:
    """One panel: the accuracy of each run, clean, and under attacks with their range."""
    panels: list[str] = []
    if not attacks:
        return panels
    looks = draw.series(attacks, runs)
    whole: draw.Style = {"color": colour("text"), "marker": "|", "markersize": 7, "lw": 1.2}
    title = f"Accuracy of {len(attacks)} runs, clean and under {what}"
    with draw.panel(panels, "attacks", title, 0.55 + 0.5 * len(attacks)) as (figure, axes):
        for line, (name, it) in enumerate(attacks.items()):
            look, values = looks[name], (it.clean, it.mean, it.min, it.max)
            told = [f"{100 * value:.1f}" if math.isfinite(value) else "?" for value in values]
            text = "{}  {}% → {}% ({}–{})".format(look.label, *told)
            _write_above(axes, line - 0.34, text)
            if math.isfinite(it.clean):
                axes.barh(line + 0.1, it.clean, 0.44, color=(look.shade, 0.25), linewidth=0)
            if math.isfinite(it.mean):
                axes.barh(line + 0.1, it.mean, 0.26, color=look.shade, linewidth=0)
            if math.isfinite(it.min) and math.isfinite(it.max):
                axes.plot([it.min, it.max], [line + 0.1] * 2, **whole)
        _line_up(axes, len(attacks))
        axes.set(xlim=(0, 1.02), xlabel=f"accuracy under {what}")
        draw.percent(axes.xaxis)
        shades = ((colour("muted"), 0.3), "clean"), (colour("muted"), "attacked: mean")
        patches = [({"facecolor": shade, "linewidth": 0}, label) for shade, label in shades]
        draw.legend(figure, [*patches, (whole, "lowest to highest")])
    return panels


def size_curves(curves: Mapping[str, EnsembleCurve], runs: Sequence[str] = ()) -> list[str]:
    """Two panels over the size of the ensemble: accuracy with the divergence below, and NLL."""
    looks = draw.series(curves, runs)
    told = {name: it.nll for name, it in curves.items() if it.nll is not None}
    nll = {name: EnsembleCurve(curves[name].x, values, ()) for name, values in told.items()}
    return [
        *_ensembles("size-accuracy", "members", curves, looks, _ACCURACY),
        *_ensembles("size-nll", "members", nll, looks, _NLL),
    ]


def sparsity_curves(curves: Mapping[str, EnsembleCurve]) -> list[str]:
    """One panel over sparsity: accuracy of each method, with the divergence of members below."""
    return _ensembles("sparsity", "sparsity", curves, draw.series(curves), _ACCURACY)


def _ensembles(
    name: str, over: str, curves: Mapping[str, EnsembleCurve], looks: dict[str, draw.Series],
    score: Score,
) -> list[str]:  # fmt: skip
    panels: list[str] = []
    if not curves:
        return panels
    has_kl = any(it.kl is not None and np.isfinite(it.kl).any() for it in curves.values())
    has_members = any(np.size(it.member_accuracy) for it in curves.values())
    what = f"{score.title} by {over}, of {', '.join(looks[run].label for run in curves)}"
    height, ratios = (3.5, (3, 1)) if has_kl else (2.9, (1,))
    with draw.panel(panels, name, what, height, ratios) as (figure, main, *rest):
        for run, curve in curves.items():
            _plot(main, looks[run], curve.x, curve.accuracy, linewidth=1.6)
            if has_members:
                hollow = {"markerfacecolor": colour("page"), "linestyle": _ALONE}
                _plot(main, looks[run], curve.x, curve.member_accuracy, linewidth=1, **hollow)
            if has_kl and curve.kl is not None:
                _plot(rest[0], looks[run], curve.x, curve.kl, linewidth=1.3)
        draw.score_axis(main.yaxis, score)
        for small in rest:
            small.set_ylabel("KL")
            small.margins(y=0.15)
            small.locator_params(axis="y", nbins=3)
        last = [main, *rest][-1]
        last.set_xlabel(over)
        if over == "sparsity":
            draw.percent(last.xaxis)
        else:
            last.locator_params(axis="x", integer=True, nbins=10)
        entries: list[tuple[draw.Style, str]] = [
            (looks[it].handle(), looks[it].label) for it in curves
        ]
        if has_members:
            grey = {"color": colour("muted")}
            alone = grey | {"linewidth": 1, "linestyle": _ALONE}
            entries += [(grey | {"linewidth": 1.6}, "ensemble"), (alone, "members' mean")]
        draw.legend(figure, entries)
    return panels


def severity_curves(
    severities: Sequence[int],
    curves: Mapping[str, Mapping[str, ArrayLike]],
    runs: Sequence[str] = (),
) -> list[str]:
    """One panel for each score that curves have: severity of corruption across, a curve a run."""
    panels: list[str] = []
    looks = draw.series(curves, runs)
    for score in CLASSIFICATION.scores:
        shown = {name: it[score.key] for name, it in curves.items() if score.key in it}
        if not shown:
            continue
        what = f"{score.name} by severity of corruption, of {len(shown)} runs"
        with draw.panel(panels, f"severity-{score.key}", what, 2.9) as (figure, axes):
            for name, values in shown.items():
                _plot(axes, looks[name], severities, values, linewidth=1.4)
            axes.set(xticks=severities, xlabel="severity of corruption")
            draw.score_axis(axes.yaxis, score)
            draw.legend(figure, [(looks[name].handle(), looks[name].label) for name in shown])
    return panels


def _plot(axes: draw.Axes, look: draw.Series, x: ArrayLike, y: ArrayLike, **style: Any) -> None:
    places, heights = draw.finite(x), draw.finite(y)
    order = np.argsort(places, kind="stable")
    options: dict[str, Any] = look.handle() | style
    axes.plot(places[order], heights[order], **options)


def reliability_diagrams(
    diagrams: Mapping[str, Reliability], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a run: accuracy by confidence, the gap between both, and how many samples."""
    panels: list[str] = []
    looks = draw.series(diagrams, runs, length=40)
    box: draw.Style = {"align": "edge", "linewidth": 0.0}
    grey = (colour("text"), 0.22)
    for name, it in diagrams.items():
        edges, count = draw.finite(it.edges), np.nan_to_num(draw.finite(it.count))
        confidence, accuracy = draw.finite(it.confidence), draw.finite(it.accuracy)
        filled = np.isfinite(confidence) & np.isfinite(accuracy)
        left, width = edges[:-1][filled], np.diff(edges)[filled]
        confidence, accuracy = confidence[filled], accuracy[filled]
        low, gap = np.minimum(accuracy, confidence), abs(accuracy - confidence)
        shade, ece = looks[name].shade, f"ECE {it.ece:.4f}"
        what = f"Accuracy against confidence of {name}; {ece}"
        with draw.panel(panels, "reliability", what, 3.5, (4, 1)) as (figure, main, small):
            main.bar(left, accuracy, width, color=(shade, 0.35), **box)
            main.bar(left, gap, width, bottom=low, color=grey, **box)
            main.hlines(accuracy, left, left + width, color=shade, linewidth=2)
            main.plot([0, 1], [0, 1], **_DIAGONAL)
            main.text(0.04, 0.93, ece, transform=main.transAxes, va="top")
            main.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
            draw.title(main, looks[name].label)
            small.bar(edges[:-1], count / max(count.sum(), 1), np.diff(edges), color=shade, **box)
            small.set(ylabel="samples", xlabel="confidence of the ensemble")
            small.locator_params(axis="y", nbins=2)
            draw.percent(main.yaxis, small.yaxis, small.xaxis)
            line, gaps = {"color": shade, "linewidth": 2}, {"facecolor": grey, "linewidth": 0}
            entries = (line, "accuracy"), (gaps, "gap to confidence"), (_DIAGONAL, "no gap")
            draw.legend(figure, entries)
    return panels


def risk_curves(curves: Mapping[str, RiskCoverage], runs: Sequence[str] = ()) -> list[str]:
    """One panel: the share of samples answered across, errors among them upwards."""
    if not curves:
        return []
    panels: list[str] = []
    looks = draw.series(curves, runs, length=18)
    what = f"Errors against the share of samples answered, of {len(curves)} runs"
    with draw.panel(panels, "risk", what, 3.0) as (figure, axes):
        found = [(looks[run], it.coverage, it.risk, it.area) for run, it in curves.items()]
        _plot_areas(figure, axes, found)
        axes.set(xlim=(0, 1), ylim=(0, None), ylabel="errors among these")
        axes.set_xlabel("samples answered, most confident first")
    return panels


def roc_curves(sets: Unknown, runs: Sequence[str] = ()) -> list[str]:
    """One panel a set of samples of no class: the curve of each run, with its AUROC."""
    panels: list[str] = []
    for name, curves in sets.items():
        if not curves:
            continue
        looks = draw.series(curves, runs, length=19)
        found = [
            (looks[run], it.roc.false_positive, it.roc.true_positive, it.auroc)
            for run, it in curves.items()
        ]
        what = f"ROC curves of {len(curves)} runs against {name}"
        with draw.panel(panels, "roc", what, 3.3) as (figure, axes):
            axes.plot([0, 1], [0, 1], **_DIAGONAL)
            _plot_areas(figure, axes, found)
            axes.set(xlim=(0, 1), ylim=(0, 1.01))
            axes.set(xlabel="test samples flagged as unknown", ylabel="unknown samples flagged")
            draw.title(axes, name)
    return panels


def _plot_areas(figure: draw.Figure, axes: draw.Axes, curves: Iterable[_Curve]) -> None:
    entries = []
    for look, x, y, area in curves:
        axes.plot(*draw.thin(x, y), color=look.shade, linestyle=look.dash, linewidth=1.5)
        entries.append((look.handle(marker=False), f"{look.label} {area:.4f}"))
    draw.percent(axes.xaxis, axes.yaxis)
    draw.legend(figure, entries)


def novelty_histograms(sets: Unknown, runs: Sequence[str] = ()) -> list[str]:
    """One panel a set of no class: how novel it and the test set seem, as roots of shares."""
    drawn: list[str] = []
    for name, scores in sets.items():
        if not scores:
            continue
        looks = draw.series(scores, runs, 40)
        known = {}
        for run, it in scores.items():
            arrays = [draw.finite(side).ravel() for side in (it.inside, it.outside)]
            known[run] = [array[np.isfinite(array)] for array in arrays]
        values = np.concatenate([side for sides in known.values() for side in sides])
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
        what = f"Histograms of novelty of the test set and {name}, for {len(scores)} runs"
        tall, ratios = 0.8 + 0.8 * len(scores), [1] * len(scores)
        with draw.panel(drawn, "novelty", what, tall, ratios) as (figure, *panels):
            for axes, (run, both) in zip(panels, known.items(), strict=True):
                shades = (colour("muted"), 0.35), (looks[run].shade, 0.3)
                for side, shade in zip(both, shades, strict=True):
                    if side.size:
                        height = np.sqrt(np.histogram(side, edges)[0] / side.size)
                        style: draw.Style = {"facecolor": shade, "edgecolor": shade[0]}
                        axes.stairs(height, edges, fill=True, linewidth=1.2, **style)
                axes.set(yticks=[], ylim=(0, None))
                axes.margins(x=0, y=0.05)
                axes.spines["left"].set_visible(False)
                axes.set_title(looks[run].label, loc="right", fontsize=draw.SMALL, pad=2)
            draw.title(panels[0], name)
            panels[-1].set_xlabel("novelty (higher is more unknown)")
            outside = next(iter(looks.values())).shade if len(looks) == 1 else colour("text")
            entries = [
                ({"facecolor": (shade, 0.35), "edgecolor": shade, "linewidth": 1.2}, label)
                for shade, label in ((colour("muted"), "test set"), (outside, "unknown set"))
            ]
            draw.legend(figure, entries)
    return drawn
