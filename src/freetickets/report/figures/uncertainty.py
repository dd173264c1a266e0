"""Whether runs know what they don't know: reliability, risk, and how samples of no class seem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..colours import colour
from .axes import (
    DASHED,
    SMALL,
    Floats,
    Series,
    add_legend,
    add_title,
    finite,
    series,
    thin,
    write_percent,
)
from .drawing import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...metrics import Reliability, RiskCoverage, Roc

_BINS = 40

Novelties = Mapping[str, tuple[ArrayLike, ArrayLike]]


def reliability_diagrams(
    diagrams: Mapping[str, Reliability], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a run: accuracy by confidence, the gap between both, and how many samples."""
    looks = series(diagrams, runs, length=40)
    return [_reliability(name, diagram, looks[name]) for name, diagram in diagrams.items()]


def _reliability(name: str, diagram: Reliability, look: Series) -> str:
    def paint(figure: Figure) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        edges = finite(diagram.edges)
        count = np.nan_to_num(finite(diagram.count))
        confidence, accuracy = finite(diagram.confidence), finite(diagram.accuracy)
        main, small = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        filled = np.isfinite(confidence) & np.isfinite(accuracy)
        left, width = edges[:-1][filled], np.diff(edges)[filled]
        confidence, accuracy = confidence[filled], accuracy[filled]
        box: dict[str, Any] = {"align": "edge", "linewidth": 0.0}
        low, gap = np.minimum(accuracy, confidence), abs(accuracy - confidence)
        diagonal: dict[str, Any] = {"color": colour("muted"), "linewidth": 0.9, "linestyle": DASHED}
        main.bar(left, accuracy, width, color=(look.shade, 0.35), **box)
        main.bar(left, gap, width, bottom=low, color=(colour("text"), 0.22), **box)
        main.hlines(accuracy, left, left + width, color=look.shade, linewidth=2)
        main.plot([0, 1], [0, 1], **diagonal)
        main.text(0.04, 0.93, f"ECE {diagram.ece:.4f}", transform=main.transAxes, va="top")
        main.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
        add_title(main, look.label)
        small.bar(edges[:-1], count / max(count.sum(), 1), np.diff(edges), color=look.shade, **box)
        small.set(ylabel="samples", xlabel="confidence of the ensemble")
        small.locator_params(axis="y", nbins=2)
        for axis in (main.yaxis, small.yaxis, small.xaxis):
            write_percent(axis)
        figure.align_ylabels()
        gaps = Patch(facecolor=(colour("text"), 0.22), linewidth=0)
        entries = [
            (Line2D([], [], color=look.shade, linewidth=2), "accuracy"),
            (gaps, "gap to confidence"),
            (Line2D([], [], **diagonal), "no gap"),
        ]
        add_legend(figure, entries)

    what = f"Accuracy against confidence of {name}; ECE {diagram.ece:.4f}"
    return draw("reliability", what, 3.5, paint)


def risk_curves(curves: Mapping[str, RiskCoverage], runs: Sequence[str] = ()) -> list[str]:
    """One panel: the share of samples answered across, errors among them upwards.

    The area below its curve stands behind the name of each run.
    """
    looks = series(curves, runs, length=18)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for name, curve in curves.items():
            _curve(axes, looks[name], curve.coverage, curve.risk)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set(xlabel="samples answered, the surest first", ylabel="errors among them")
        _finish(figure, axes, looks, {name: curve.area for name, curve in curves.items()})

    what = f"Errors against the share of samples answered, of {len(curves)} runs"
    return [draw("risk", what, 3.0, paint)] if curves else []


def roc_curves(
    sets: Mapping[str, Mapping[str, tuple[Roc, float]]], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a set of samples of no class: the curve of each run, with its AUROC."""
    return [_roc(name, curves, runs) for name, curves in sets.items() if curves]


def _roc(name: str, curves: Mapping[str, tuple[Roc, float]], runs: Sequence[str]) -> str:
    looks = series(curves, runs, length=19)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=colour("muted"), linewidth=0.9, linestyle=DASHED)
        for run, (roc, _) in curves.items():
            _curve(axes, looks[run], roc.false_positive, roc.true_positive)
        axes.set(xlim=(0, 1), ylim=(0, 1.01))
        axes.set(xlabel="test samples flagged as unknown", ylabel="unknown samples flagged")
        add_title(axes, name)
        _finish(figure, axes, looks, {run: area for run, (_, area) in curves.items()})

    return draw("roc", f"ROC curves of {len(curves)} runs against {name}", 3.3, paint)


def _curve(axes: Axes, look: Series, x: ArrayLike, y: ArrayLike) -> None:
    axes.plot(*thin(x, y), color=look.shade, linestyle=look.dash, linewidth=1.5)


def _finish(
    figure: Figure, axes: Axes, looks: Mapping[str, Series], areas: Mapping[str, float]
) -> None:
    write_percent(axes.xaxis)
    write_percent(axes.yaxis)
    entries = [
        (looks[run].handle(marker=False), f"{looks[run].label} {area:.4f}")
        for run, area in areas.items()
    ]
    add_legend(figure, entries)


def novelty_histograms(sets: Mapping[str, Novelties], runs: Sequence[str] = ()) -> list[str]:
    """One panel a set of samples of no class: how novel they and the test samples seem to each run.

    Heights are roots of shares, without which the many certain samples would hide the rest.

    Args:
        sets: Of each set, the scores (inside, outside) of each run.
        runs: All runs of the page, so that each has its colour.
    """
    return [_novelty(name, scores, runs) for name, scores in sets.items() if scores]


def _novelty(name: str, scores: Novelties, runs: Sequence[str]) -> str:
    looks = series(scores, runs, 40)

    def paint(figure: Figure) -> None:
        from matplotlib.patches import Patch

        known = {run: tuple(map(_known, sides)) for run, sides in scores.items()}
        values = np.concatenate([side for pair in known.values() for side in pair])
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
        edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
        panels = figure.subplots(len(known), sharex=True, squeeze=False)[:, 0]
        for axes, (run, (inside, outside)) in zip(panels, known.items(), strict=True):
            _steps(axes, inside, edges, colour("muted"), 0.35)
            _steps(axes, outside, edges, looks[run].shade, 0.3)
            axes.set_yticks([])
            axes.set_ylim(bottom=0)
            axes.margins(x=0, y=0.05)
            axes.spines["left"].set_visible(False)
            axes.set_title(looks[run].label, loc="right", fontsize=SMALL, pad=2)
        add_title(panels[0], name)
        panels[-1].set_xlabel("novelty (higher is more unknown)")
        shade = next(iter(looks.values())).shade if len(looks) == 1 else colour("text")
        sides = (colour("muted"), "test set"), (shade, "unknown set")
        entries = [
            (Patch(facecolor=(side, 0.35), edgecolor=side, linewidth=1.2), label)
            for side, label in sides
        ]
        add_legend(figure, entries)

    what = f"Histograms of novelty of the test set and {name}, for {len(scores)} runs"
    return draw("novelty", what, 0.8 + 0.8 * len(scores), paint)


def _known(values: ArrayLike) -> Floats:
    array = finite(values).ravel()
    return array[np.isfinite(array)]


def _steps(axes: Axes, values: Floats, edges: Floats, shade: str, opacity: float) -> None:
    if values.size:
        height = np.sqrt(np.histogram(values, edges)[0] / values.size)
        style: dict[str, Any] = {"facecolor": (shade, opacity), "edgecolor": shade}
        axes.stairs(height, edges, fill=True, linewidth=1.2, **style)
