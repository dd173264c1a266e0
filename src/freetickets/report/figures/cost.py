"""Cost against quality: what each run took to train, and how good it became."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..colours import colour, series_colour
from ..run import RunSummary
from .drawing import FONT_SIZE, draw, shorten_all, text_width
from .labels import Box, place_labels
from .legend import add_legend, legend_height
from .scores import QUALITIES, Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = ("ensemble", "member mean", "Pareto front", "one dense model")
_DASH = (0, (4, 3))


@dataclass(frozen=True)
class _Mark:
    """What is drawn of a run."""

    name: str
    shade: str
    cost: float
    mean: float
    ensemble: float


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score: training FLOPs across, the ensemble and its members' mean upwards.

    A line, the Pareto front, joins the ensembles that no other beats in cost and score.
    """
    return [
        draw(
            f"cost-{quality.key}",
            f"{quality.title} against training FLOPs of {len(runs)} runs",
            3.3 + legend_height(_LABELS),
            partial(_paint, runs=runs, quality=quality),
        )
        for quality in QUALITIES
    ]


def _paint(figure: Figure, runs: Sequence[RunSummary], quality: Quality) -> None:
    marks = [
        _Mark(
            label,
            series_colour(number),
            run.ledger.relative_flops,
            quality.of(run.member_mean),
            quality.of(run.ensemble),
        )
        for number, (run, label) in enumerate(
            zip(runs, shorten_all([run.name for run in runs]), strict=True)
        )
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
    right = 1.12 * max([1.0, *(mark.cost for mark in marks)])
    axes.set_xlim(0, right)
    axes.margins(y=0.14)
    _draw_front(axes, marks, quality, right)
    axes.axvline(1, color=colour("muted"), linewidth=0.8, linestyle=_DASH, zorder=1)
    axes.set_xlabel("training FLOPs, × one dense model")
    axes.set_ylabel(quality.label)
    quality.format_axis(axes.yaxis)
    _add_legend(figure)
    _name(figure, axes, marks)


def pareto_front(costs: Sequence[float], scores: Sequence[float], rising: bool = True) -> list[int]:
    """The numbers of those that none beats: none costs no more and scores better, or the reverse.

    Args:
        costs: Of each; lower is better.
        scores: Of each; NaN is on no front.
        rising: Whether higher scores are better.

    Returns:
        By rising cost.

    Example:
        >>> pareto_front([1, 2, 3, 3], [0.5, 0.4, 0.6, 0.7])
        [0, 3]
    """
    sign = -1 if rising else 1
    known = [number for number, score in enumerate(scores) if math.isfinite(score)]
    front: list[int] = []
    for number in sorted(known, key=lambda it: (costs[it], sign * scores[it])):
        if not front or sign * scores[number] < sign * scores[front[-1]]:
            front.append(number)
    return front


def _draw_front(axes: Axes, marks: Sequence[_Mark], quality: Quality, right: float) -> None:
    """A line in steps: from each ensemble of the front to the next that is better."""
    costs, scores = [mark.cost for mark in marks], [mark.ensemble for mark in marks]
    front = pareto_front(costs, scores, quality.rising)
    if not front:
        return
    axes.step(
        [*(costs[number] for number in front), right],
        [*(scores[number] for number in front), scores[front[-1]]],
        where="post",
        color=colour("muted"),
        linewidth=3,
        alpha=0.3,
        solid_capstyle="butt",
        zorder=1,
    )


def _add_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    grey = colour("muted")
    handles = [
        Line2D([], [], ls="", marker="D", color=grey, markersize=5),
        Line2D([], [], ls="", marker="o", color=grey, markersize=5, markerfacecolor="none"),
        Line2D([], [], color=grey, linewidth=3, alpha=0.3),
        Line2D([], [], color=grey, linewidth=0.8, linestyle=_DASH),
    ]
    add_legend(figure, handles, _LABELS)


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
