"""Cost against quality: what each run took to train, and how good it became."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..colours import colour, series_colour
from ..run import RunSummary
from .drawing import FONT_SIZE, draw, shorten_all, text_width
from .labels import Box, place_labels
from .legend import add_legend, legend_height
from .scores import Quality, qualities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMED = 6  # more runs are numbered, and named in the legend
_DASH = (0, (4, 3))

_Legend = list[tuple[dict[str, Any], str]]  # how each handle is drawn, and its label


@dataclass(frozen=True)
class _Mark:
    """What is drawn of a run.

    Attributes:
        name: What the legend calls it.
        label: What stands beside it: its name, or among many its number.
        shade: Its colour.
        cost: Of its training, in dense models.
        mean: The score of its members.
        ensemble: The score of all together.
    """

    name: str
    label: str
    shade: str
    cost: float
    mean: float
    ensemble: float


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score: training FLOPs across, the ensemble and its members' mean upwards.

    A line, the Pareto front, joins the ensembles that no other beats in cost and score.
    """
    panels = []
    for quality in qualities(runs[0].task):
        marks = _marks(runs, quality)
        legend = _legend(marks)
        panels.append(
            draw(
                f"cost-{quality.key}",
                f"{quality.title} against training FLOPs of {len(runs)} runs",
                3.3 + legend_height([label for _, label in legend]),
                partial(_paint, marks=marks, quality=quality, legend=legend),
            )
        )
    return panels


def _marks(runs: Sequence[RunSummary], quality: Quality) -> list[_Mark]:
    numbered = len(runs) > _MOST_NAMED
    names = shorten_all([run.name for run in runs], 20 if numbered else 24)
    return [
        _Mark(
            names[number],
            str(number + 1) if numbered else names[number],
            series_colour(number),
            run.ledger.relative_flops,
            quality.of(run.member_mean),
            quality.of(run.ensemble),
        )
        for number, run in enumerate(runs)
        if math.isfinite(quality.of(run.ensemble))
    ]


def _paint(figure: Figure, marks: Sequence[_Mark], quality: Quality, legend: _Legend) -> None:
    from matplotlib.lines import Line2D

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
    front = _draw_front(axes, marks, quality, right)
    axes.axvline(1, color=colour("muted"), linewidth=0.8, linestyle=_DASH, zorder=1)
    axes.set_xlabel("training FLOPs, × one dense model")
    axes.set_ylabel(quality.label)
    quality.format_axis(axes.yaxis)
    handles = [Line2D([], [], **style) for style, _ in legend]
    add_legend(figure, handles, [label for _, label in legend])
    _name(figure, axes, marks, front)


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


def _draw_front(
    axes: Axes, marks: Sequence[_Mark], quality: Quality, right: float
) -> list[tuple[float, float, float]]:
    """A line in steps, from each ensemble of the front to the next that is better.

    Returns:
        From where to where each step goes, and its height.
    """
    costs, scores = [mark.cost for mark in marks], [mark.ensemble for mark in marks]
    front = pareto_front(costs, scores, quality.rising)
    if len(marks) < 2:
        return []
    ends = [*(costs[number] for number in front), right]
    heights = [scores[number] for number in front]
    axes.step(
        ends,
        [*heights, heights[-1]],
        where="post",
        color=colour("muted"),
        linewidth=3,
        alpha=0.3,
        solid_capstyle="butt",
        zorder=1,
    )
    return list(zip(ends[:-1], ends[1:], heights, strict=True))


def _legend(marks: Sequence[_Mark]) -> _Legend:
    """What each kind of mark and line means, and which run has which number."""
    grey = colour("muted")
    entries: _Legend = [
        (
            {"ls": "", "marker": "D", "color": mark.shade, "markersize": 5},
            f"{mark.label} {mark.name}",
        )
        for mark in marks
        if mark.label != mark.name
    ]
    hollow = {"marker": "o", "markersize": 5, "markerfacecolor": "none"}
    entries += [
        ({"ls": "", "color": grey, "marker": "D", "markersize": 5}, "ensemble"),
        ({"ls": "", "color": grey, **hollow}, "member mean"),
    ]
    if len(marks) > 1:
        entries.append(({"color": grey, "linewidth": 3, "alpha": 0.3}, "Pareto front"))
    entries.append(({"color": grey, "linewidth": 0.8, "linestyle": _DASH}, "one dense model"))
    return entries


def _name(
    figure: Figure,
    axes: Axes,
    marks: Sequence[_Mark],
    front: Sequence[tuple[float, float, float]],
) -> None:
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
    for left, right, height in front:
        (x, y), (end, _) = axes.transData.transform([(left, height), (right, height)])
        covered.append(Box(x, y - 2, end, y + 2))
    frame = axes.get_window_extent()
    places = place_labels(
        points,
        [text_width(mark.label) for mark in marks],
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
            mark.label,
            (mark.cost, mark.ensemble),
            ((place.left if on_right else place.right) - x, rise),
            textcoords="offset points",
            ha="left" if on_right else "right",
            va="center_baseline",
            arrowprops=leader if abs(rise) > FONT_SIZE / 2 else None,
        )
