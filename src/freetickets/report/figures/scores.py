"""Scores of runs: of members, ensembles and under attack, and over size, sparsity or severity."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...evaluation.results import Attack
from ...metrics.score import Score
from ...tasks import CLASSIFICATION
from ..colours import colour, series_colour
from ..run import RunSummary
from . import drawing as draw

_ACCURACY, _NLL = CLASSIFICATION.scores[:2]
_ALONE = (0, (3, 2))


@dataclass(frozen=True)
class EnsembleCurve:
    """How ensembles change with x, their size or sparsity; kl is NaN where one is alone."""

    x: ArrayLike
    accuracy: ArrayLike
    member_accuracy: ArrayLike
    nll: ArrayLike | None = None
    kl: ArrayLike | None = None


def members_and_ensembles(runs: Sequence[RunSummary]) -> list[str]:
    """A panel for each of the first two scores: the members of a run, their mean, the ensemble."""
    panels: list[str] = []
    labels = draw.shorten_all([run.name for run in runs])
    for score in runs[0].results.task.scores[:2]:
        what = f"{score.name} of the members and the ensemble of {len(runs)} runs"
        with draw.panel(panels, f"members-{score.key}", what, 1.0 + 0.5 * len(runs)) as figure:
            from matplotlib.lines import Line2D

            axes = figure.add_subplot()
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
    """Writes what a line of axes shows above it, at their left."""
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
    with draw.panel(panels, "attacks", title, 0.55 + 0.5 * len(attacks)) as figure:
        axes = figure.add_subplot()
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
        draw.legend(figure, [*patches, (whole, "least and most")])
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
    name: str,
    over: str,
    curves: Mapping[str, EnsembleCurve],
    looks: dict[str, draw.Series],
    score: Score,
) -> list[str]:
    panels: list[str] = []
    if not curves:
        return panels
    has_kl = any(
        it.kl is not None and np.isfinite(draw.finite(it.kl)).any() for it in curves.values()
    )
    has_members = any(np.size(it.member_accuracy) for it in curves.values())
    what = f"{score.title} by {over}, of {', '.join(looks[run].label for run in curves)}"
    with draw.panel(panels, name, what, 3.5 if has_kl else 2.9) as figure:
        rows: draw.Style = {"squeeze": False, "height_ratios": [3, 1][: 1 + has_kl]}
        main, *rest = figure.subplots(1 + has_kl, sharex=True, **rows)[:, 0]
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
        figure.align_ylabels()
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
        with draw.panel(panels, f"severity-{score.key}", what, 2.9) as figure:
            axes = figure.add_subplot()
            for name, values in shown.items():
                _plot(axes, looks[name], severities, values, linewidth=1.4)
            axes.set_xticks(severities)
            axes.set_xlabel("severity of corruption")
            draw.score_axis(axes.yaxis, score)
            draw.legend(figure, [(looks[name].handle(), looks[name].label) for name in shown])
    return panels


def _plot(
    axes: draw.Axes, look: draw.Series, x: ArrayLike, values: ArrayLike, **style: Any
) -> None:
    """One curve, from left to right."""
    places, heights = draw.finite(x), draw.finite(values)
    order = np.argsort(places, kind="stable")
    options: dict[str, Any] = look.handle() | style
    axes.plot(places[order], heights[order], **options)
