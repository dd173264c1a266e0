"""Cost against quality: what each run took to train, and how good it became."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..colours import colour, series_colour
from ..run import RunSummary
from .drawing import FONT_SIZE, draw, shorten, text_width
from .labels import Box, place_labels
from .scores import QUALITIES, Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class _Mark:
    """What is drawn of a run."""

    name: str
    shade: str
    cost: float
    mean: float
    ensemble: float


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score: training FLOPs across, the ensemble and its members' mean upwards."""
    return [
        draw(
            f"cost-{quality.key}",
            f"{quality.title} against training FLOPs of {len(runs)} runs",
            3.3,
            partial(_paint, runs=runs, quality=quality),
        )
        for quality in QUALITIES
    ]


def _paint(figure: Figure, runs: Sequence[RunSummary], quality: Quality) -> None:
    marks = [
        _Mark(
            shorten(run.name),
            series_colour(number),
            run.ledger.relative_flops,
            quality.of(run.member_mean),
            quality.of(run.ensemble),
        )
        for number, run in enumerate(runs)
        if math.isfinite(quality.of(run.ensemble))
    ]
    axes = figure.add_subplot()
    for mark in marks:
        # Of a single network the two are one, and the diamond covers the rest.
        axes.plot([mark.cost] * 2, [mark.mean, mark.ensemble], color=mark.shade, linewidth=1.2)
        axes.plot(
            mark.cost,
            mark.mean,
            "o",
            color=mark.shade,
            markersize=5,
            markerfacecolor=colour("page"),
        )
        axes.plot(mark.cost, mark.ensemble, "D", color=mark.shade, markersize=6)
    axes.set_xlim(0, 1.12 * max([1.0, *(mark.cost for mark in marks)]))
    axes.margins(y=0.14)
    axes.axvline(1, color=colour("muted"), linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlabel("training FLOPs, × one dense model")
    axes.set_ylabel(quality.label)
    quality.format_axis(axes.yaxis)
    _name(figure, axes, marks)


def _name(figure: Figure, axes: Axes, marks: Sequence[_Mark]) -> None:
    """Names the marks once the layout is settled, for only then is it known where they are."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    points, covered = [], []
    for mark in marks:
        x, y = axes.transData.transform((mark.cost, mark.ensemble))
        _, other = axes.transData.transform((mark.cost, mark.mean))
        if not math.isfinite(other):
            other = y
        points.append((x, y))
        covered += [
            Box.around(x, y, y, reach=5),
            Box.around(x, other, other, reach=3),
            Box.around(x, min(y, other), max(y, other), reach=1),
        ]
    frame = axes.get_window_extent()
    places = place_labels(
        points,
        [text_width(mark.name) for mark in marks],
        1.3 * FONT_SIZE,
        Box(frame.x0, frame.y0, frame.x1, frame.y1),
        covered,
    )
    for mark, (x, y), place in zip(marks, points, places, strict=True):
        on_right = place.left > x
        rise = (place.bottom + place.top) / 2 - y
        leader = {
            "arrowstyle": "-",
            "color": colour("muted"),
            "linewidth": 0.6,
            "relpos": (0 if on_right else 1, 0.5),
            "shrinkA": 0,
            "shrinkB": 4,
        }
        axes.annotate(
            mark.name,
            (mark.cost, mark.ensemble),
            ((place.left if on_right else place.right) - x, rise),
            textcoords="offset points",
            ha="left" if on_right else "right",
            va="center_baseline",
            arrowprops=leader if abs(rise) > FONT_SIZE / 2 else None,
        )
