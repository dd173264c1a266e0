"""Whether runs know what they don't know: reliability, risk, and how samples of no class seem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..colours import colour
from .axes import DASHED, Series, add_legend, add_title, finite, series, thin, write_percent
from .drawing import SMALL, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...metrics import Reliability, RiskCoverage, Roc

_BINS = 40
_DIAGONAL: dict[str, Any] = {"color": colour("muted"), "linewidth": 0.9, "linestyle": DASHED}

Novelties = Mapping[str, tuple[ArrayLike, ArrayLike]]


def reliability_diagrams(
    diagrams: Mapping[str, Reliability], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a run: accuracy by confidence, the gap between both, and how many samples."""
    looks = series(diagrams, runs, length=40)
    return [_reliability(name, diagram, looks[name]) for name, diagram in diagrams.items()]


def _reliability(name: str, diagram: Reliability, look: Series) -> str:
    def paint(figure: Figure) -> None:
        edges = finite(diagram.edges)
        count = np.nan_to_num(finite(diagram.count))
        confidence, accuracy = finite(diagram.confidence), finite(diagram.accuracy)
        main, small = figure.subplots(2, sharex=True, height_ratios=[4, 1])
        filled = np.isfinite(confidence) & np.isfinite(accuracy)
        left, width = edges[:-1][filled], np.diff(edges)[filled]
        confidence, accuracy = confidence[filled], accuracy[filled]
        box: dict[str, Any] = {"align": "edge", "linewidth": 0.0}
        low, gap = np.minimum(accuracy, confidence), abs(accuracy - confidence)
        main.bar(left, accuracy, width, color=(look.shade, 0.35), **box)
        main.bar(left, gap, width, bottom=low, color=(colour("text"), 0.22), **box)
        main.hlines(accuracy, left, left + width, color=look.shade, linewidth=2)
        main.plot([0, 1], [0, 1], **_DIAGONAL)
        main.text(0.04, 0.93, f"ECE {diagram.ece:.4f}", transform=main.transAxes, va="top")
        main.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
        add_title(main, look.label)
        small.bar(edges[:-1], count / max(count.sum(), 1), np.diff(edges), color=look.shade, **box)
        small.set(ylabel="samples", xlabel="confidence of the ensemble")
        small.locator_params(axis="y", nbins=2)
        write_percent(main.yaxis, small.yaxis, small.xaxis)
        figure.align_ylabels()
        line = {"color": look.shade, "linewidth": 2}, "accuracy"
        gaps = {"facecolor": (colour("text"), 0.22), "linewidth": 0}, "gap to confidence"
        add_legend(figure, [line, gaps, (_DIAGONAL, "no gap")])

    what = f"Accuracy against confidence of {name}; ECE {diagram.ece:.4f}"
    return draw("reliability", what, 3.5, paint)


def risk_curves(curves: Mapping[str, RiskCoverage], runs: Sequence[str] = ()) -> list[str]:
    """One panel: the share of samples answered across, errors among them upwards.

    The area below its curve stands behind the name of each run.
    """
    looks = series(curves, runs, length=18)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        found = [(looks[run], it.coverage, it.risk, it.area) for run, it in curves.items()]
        _plot_areas(figure, axes, found)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set(xlabel="samples answered, the surest first", ylabel="errors among them")

    what = f"Errors against the share of samples answered, of {len(curves)} runs"
    return [draw("risk", what, 3.0, paint)] if curves else []


def roc_curves(
    sets: Mapping[str, Mapping[str, tuple[Roc, float]]], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a set of samples of no class: the curve of each run, with its AUROC."""

    def panel(name: str, curves: Mapping[str, tuple[Roc, float]]) -> str:
        looks = series(curves, runs, length=19)

        def paint(figure: Figure) -> None:
            axes = figure.add_subplot()
            axes.plot([0, 1], [0, 1], **_DIAGONAL)
            found = [
                (looks[run], roc.false_positive, roc.true_positive, area)
                for run, (roc, area) in curves.items()
            ]
            _plot_areas(figure, axes, found)
            axes.set(xlim=(0, 1), ylim=(0, 1.01))
            axes.set(xlabel="test samples flagged as unknown", ylabel="unknown samples flagged")
            add_title(axes, name)

        return draw("roc", f"ROC curves of {len(curves)} runs against {name}", 3.3, paint)

    return [panel(name, curves) for name, curves in sets.items() if curves]


def _plot_areas(
    figure: Figure, axes: Axes, curves: Iterable[tuple[Series, ArrayLike, ArrayLike, float]]
) -> None:
    """Curves of shares, and a legend of the areas below them."""
    entries = []
    for look, x, y, area in curves:
        axes.plot(*thin(x, y), color=look.shade, linestyle=look.dash, linewidth=1.5)
        entries.append((look.handle(marker=False), f"{look.label} {area:.4f}"))
    write_percent(axes.xaxis, axes.yaxis)
    add_legend(figure, entries)


def novelty_histograms(sets: Mapping[str, Novelties], runs: Sequence[str] = ()) -> list[str]:
    """One panel a set of samples of no class: how novel they and the test samples seem to each run.

    Given are scores (inside, outside). Heights are roots of shares, without which the many certain
    samples would hide the rest.
    """
    return [_novelty(name, scores, runs) for name, scores in sets.items() if scores]


def _novelty(name: str, scores: Novelties, runs: Sequence[str]) -> str:
    looks = series(scores, runs, 40)
    known = {}
    for run, sides in scores.items():
        arrays = [finite(side).ravel() for side in sides]
        known[run] = [array[np.isfinite(array)] for array in arrays]
    values = np.concatenate([side for sides in known.values() for side in sides])
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(known), sharex=True, squeeze=False)[:, 0]
        for axes, (run, sides) in zip(panels, known.items(), strict=True):
            shades = (colour("muted"), 0.35), (looks[run].shade, 0.3)
            for side, shade in zip(sides, shades, strict=True):
                if side.size:
                    height = np.sqrt(np.histogram(side, edges)[0] / side.size)
                    style: dict[str, Any] = {"facecolor": shade, "edgecolor": shade[0]}
                    axes.stairs(height, edges, fill=True, linewidth=1.2, **style)
            axes.set_yticks([])
            axes.set_ylim(bottom=0)
            axes.margins(x=0, y=0.05)
            axes.spines["left"].set_visible(False)
            axes.set_title(looks[run].label, loc="right", fontsize=SMALL, pad=2)
        add_title(panels[0], name)
        panels[-1].set_xlabel("novelty (higher is more unknown)")
        outside = next(iter(looks.values())).shade if len(looks) == 1 else colour("text")
        entries = [
            ({"facecolor": (shade, 0.35), "edgecolor": shade, "linewidth": 1.2}, label)
            for shade, label in ((colour("muted"), "test set"), (outside, "unknown set"))
        ]
        add_legend(figure, entries)

    what = f"Histograms of novelty of the test set and {name}, for {len(scores)} runs"
    return draw("novelty", what, 0.8 + 0.8 * len(scores), paint)
