"""Whether runs know what they don't know: reliability, risk, and how samples of no class seem."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...metrics import Reliability, RiskCoverage, Roc
from ..colours import colour
from . import drawing as draw

_BINS = 40
_DIAGONAL: draw.Style = {"color": colour("muted"), "linewidth": 0.9, "linestyle": draw.DASHED}

Novelties = Mapping[str, tuple[ArrayLike, ArrayLike]]


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
        with draw.panel(panels, "reliability", what, 3.5) as figure:
            main, small = figure.subplots(2, sharex=True, height_ratios=[4, 1])
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
            figure.align_ylabels()
            line, gaps = {"color": shade, "linewidth": 2}, {"facecolor": grey, "linewidth": 0}
            entries = (line, "accuracy"), (gaps, "gap to confidence"), (_DIAGONAL, "no gap")
            draw.legend(figure, entries)
    return panels


def risk_curves(curves: Mapping[str, RiskCoverage], runs: Sequence[str] = ()) -> list[str]:
    """One panel: the share of samples answered across, errors among them upwards.

    The area below its curve stands behind the name of each run.
    """
    if not curves:
        return []
    panels: list[str] = []
    looks = draw.series(curves, runs, length=18)
    what = f"Errors against the share of samples answered, of {len(curves)} runs"
    with draw.panel(panels, "risk", what, 3.0) as figure:
        axes = figure.add_subplot()
        found = [(looks[run], it.coverage, it.risk, it.area) for run, it in curves.items()]
        _plot_areas(figure, axes, found)
        axes.set_ylim(bottom=0)
        axes.set(xlim=(0, 1), ylabel="errors among them")
        axes.set_xlabel("samples answered, the surest first")
    return panels


def roc_curves(
    sets: Mapping[str, Mapping[str, tuple[Roc, float]]], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a set of samples of no class: the curve of each run, with its AUROC."""
    panels: list[str] = []
    for name, curves in sets.items():
        if not curves:
            continue
        looks = draw.series(curves, runs, length=19)
        found = [
            (looks[run], roc.false_positive, roc.true_positive, area)
            for run, (roc, area) in curves.items()
        ]
        what = f"ROC curves of {len(curves)} runs against {name}"
        with draw.panel(panels, "roc", what, 3.3) as figure:
            axes = figure.add_subplot()
            axes.plot([0, 1], [0, 1], **_DIAGONAL)
            _plot_areas(figure, axes, found)
            axes.set(xlim=(0, 1), ylim=(0, 1.01))
            axes.set(xlabel="test samples flagged as unknown", ylabel="unknown samples flagged")
            draw.title(axes, name)
    return panels


def _plot_areas(
    figure: draw.Figure,
    axes: draw.Axes,
    curves: Iterable[tuple[draw.Series, ArrayLike, ArrayLike, float]],
) -> None:
    """Curves of shares, and a legend of the areas below them."""
    entries = []
    for look, x, y, area in curves:
        axes.plot(*draw.thin(x, y), color=look.shade, linestyle=look.dash, linewidth=1.5)
        entries.append((look.handle(marker=False), f"{look.label} {area:.4f}"))
    draw.percent(axes.xaxis, axes.yaxis)
    draw.legend(figure, entries)


def novelty_histograms(sets: Mapping[str, Novelties], runs: Sequence[str] = ()) -> list[str]:
    """One panel a set of samples of no class: how novel they and the test samples seem to each run.

    Given are scores (inside, outside). Heights are roots of shares, without which the many certain
    samples would hide the rest.
    """
    drawn: list[str] = []
    for name, scores in sets.items():
        if not scores:
            continue
        looks = draw.series(scores, runs, 40)
        known = {}
        for run, sides in scores.items():
            arrays = [draw.finite(side).ravel() for side in sides]
            known[run] = [array[np.isfinite(array)] for array in arrays]
        values = np.concatenate([side for sides in known.values() for side in sides])
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
        what = f"Histograms of novelty of the test set and {name}, for {len(scores)} runs"
        with draw.panel(drawn, "novelty", what, 0.8 + 0.8 * len(scores)) as figure:
            panels = figure.subplots(len(known), sharex=True, squeeze=False)[:, 0]
            for axes, (run, both) in zip(panels, known.items(), strict=True):
                shades = (colour("muted"), 0.35), (looks[run].shade, 0.3)
                for side, shade in zip(both, shades, strict=True):
                    if side.size:
                        height = np.sqrt(np.histogram(side, edges)[0] / side.size)
                        style: draw.Style = {"facecolor": shade, "edgecolor": shade[0]}
                        axes.stairs(height, edges, fill=True, linewidth=1.2, **style)
                axes.set_yticks([])
                axes.set_ylim(bottom=0)
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
