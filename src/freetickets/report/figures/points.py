"""Points with names: cost against quality, and the paths of members through predictions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...metrics.score import Score
from ...reading import printable
from ..colours import colour, series_colour
from ..run import RunSummary
from .axes import DASHED, Floats, Style, add_legend, add_title, write_score
from .drawing import FONT_SIZE, SMALL, draw, shorten, shorten_all, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...evaluation.trajectory import Path2D

_GAP = 6.0  # points between a point and its label
_MOST_NAMED = 6  # more runs are numbered, and named in the legend
_STRETCHES = 8  # of a path, each more opaque than the one before
_MOST_DOTS = 300  # of a panel

_Points = Sequence[tuple[float, float]]


class Box(NamedTuple):
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, low: float, high: float, reach: float) -> Box:
        """What a mark covers that goes from (x, low) to (x, high) and reaches to all sides."""
        return cls(x - reach, low - reach, x + reach, high + reach)

    def overlap(self, other: Box) -> float:
        """The area that two rectangles share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def excess(self, frame: Box) -> float:
        """The area that lies outside a frame."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(frame)


def place_labels(
    points: _Points, widths: Iterable[float], height: float, frame: Box, obstacles: Sequence[Box]
) -> list[Box]:
    """Finds a place in a frame for the label of each point: beside it, as near as is free.

    Example:
        >>> place_labels([(10, 50)], [30], 8, Box(0, 0, 100, 100), [])
        [Box(left=16.0, bottom=46.0, right=46.0, top=54.0)]
    """
    places: list[Box] = []
    for (x, y), width in zip(points, widths, strict=True):

        def cost(box: Box, y: float = y) -> float:
            # A label may rather cross a thin line than stand far from its point;
            # on another label neither can be read.
            distance = abs((box.bottom + box.top) / 2 - y)
            covered = sum(map(box.overlap, obstacles)) + 8 * sum(map(box.overlap, places))
            return 2 * distance + 4 * box.excess(frame) + covered

        candidates = [
            Box(left, y + rise - height / 2, left + width, y + rise + height / 2)
            for rise in (height * step / 4 for step in range(-16, 17))
            for left in (x + _GAP, x - _GAP - width)
        ]
        places.append(min(candidates, key=cost))
    return places


def _name_points(
    figure: Figure,
    axes: Axes,
    points: _Points,
    labels: Sequence[str],
    size: float,
    line: float,
    obstacles: Callable[[], Iterable[Box]],
    leaders: bool = False,
) -> None:
    """Names points once the layout is settled, for only then is it known where they are.

    A label is a line high, in points; with leaders, a line leads to it where it stands off.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    places = [tuple(axes.transData.transform(point).tolist()) for point in points]
    widths = [text_width(label, size) for label in labels]
    frame = Box(*axes.get_window_extent().extents)
    boxes = place_labels(places, widths, line, frame, list(obstacles()))
    for point, label, (x, y), box in zip(points, labels, places, boxes, strict=True):
        on_right = box.left > x
        rise = (box.bottom + box.top) / 2 - y
        leader: dict[str, Any] = {"arrowstyle": "-", "color": colour("muted"), "linewidth": 0.6}
        leader |= {"relpos": (0 if on_right else 1, 0.5), "shrinkA": 0, "shrinkB": 4}
        axes.annotate(
            label,
            point,
            ((box.left if on_right else box.right) - x, rise),
            textcoords="offset points",
            fontsize=size,
            ha="left" if on_right else "right",
            va="center_baseline",
            zorder=5,
            arrowprops=leader if leaders and abs(rise) > FONT_SIZE / 2 else None,
        )


class _Mark(NamedTuple):
    """What is drawn of a run; beside it stands its name, or among many its number."""

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
    return [_cost(runs, score) for score in runs[0].results.task.scores[:2]]


def _cost(runs: Sequence[RunSummary], score: Score) -> str:
    numbered = len(runs) > _MOST_NAMED
    marks = []
    names = shorten_all([run.name for run in runs], 20 if numbered else 24)
    for number, (name, run) in enumerate(zip(names, runs, strict=True)):
        mean, together = run.results.member_mean[score.key], run.results.ensemble[score.key]
        label, cost = str(number + 1) if numbered else name, run.ledger.relative_flops
        if math.isfinite(together):
            marks.append(_Mark(name, label, series_colour(number), cost, mean, together))
    costs, scores = [mark.cost for mark in marks], [mark.ensemble for mark in marks]
    right = 1.12 * max([1.0, *costs])
    several = len(marks) > 1
    front = pareto_front(costs, scores, score.higher_is_better) if several else []
    ends = [*(costs[number] for number in front), right]
    heights = [scores[number] for number in front]

    def covered(axes: Axes) -> Iterator[Box]:
        at = axes.transData.transform
        for mark in marks:
            (x, y), (_, other) = at([(mark.cost, mark.ensemble), (mark.cost, mark.mean)])
            other = other if math.isfinite(other) else y
            yield Box.around(x, y, y, reach=5)
            yield Box.around(x, other, other, reach=3)
            yield Box.around(x, min(y, other), max(y, other), reach=1)
        for (start, end), height in zip(itertools.pairwise(ends), heights, strict=True):
            (x, y), (end, _) = at([(start, height), (end, height)])
            yield Box(x, y - 2, end, y + 2)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        grey = colour("muted")
        hollow = {"ls": "", "marker": "o", "markersize": 5}
        for mark in marks:
            # Of a single network the two are one, and the diamond covers the rest.
            axes.plot([mark.cost] * 2, [mark.mean, mark.ensemble], linewidth=1.2, color=mark.shade)
            inside: dict[str, Any] = {**hollow, "markerfacecolor": colour("page")}
            axes.plot(mark.cost, mark.mean, color=mark.shade, **inside)
            axes.plot(mark.cost, mark.ensemble, "D", markersize=6, color=mark.shade)
        axes.set_xlim(0, right)
        axes.margins(y=0.14)
        dashed: dict[str, Any] = {"color": grey, "linewidth": 0.8, "linestyle": DASHED}
        stepped: dict[str, Any] = {"color": grey, "linewidth": 3, "alpha": 0.3}
        if front:
            steps = [*heights, heights[-1]]
            axes.step(ends, steps, where="post", solid_capstyle="butt", zorder=1, **stepped)
        axes.axvline(1, zorder=1, **dashed)
        axes.set_xlabel("training FLOPs, × one dense model")
        write_score(axes.yaxis, score)
        diamond = {"ls": "", "marker": "D", "markersize": 5}
        entries: list[tuple[Style, str]] = [
            ({"color": mark.shade, **diamond}, f"{mark.label} {mark.name}")
            for mark in marks
            if mark.label != mark.name
        ]
        entries += [
            ({"color": grey, **diamond}, "ensemble"),
            ({"color": grey, **hollow, "markerfacecolor": "none"}, "member mean"),
            *([(stepped, "Pareto front")] if several else ()),
            (dashed, "one dense model"),
        ]
        add_legend(figure, entries)
        labels, line = [mark.label for mark in marks], 1.3 * FONT_SIZE
        points = list(zip(costs, scores, strict=True))
        _name_points(figure, axes, points, labels, FONT_SIZE, line, lambda: covered(axes), True)

    what = f"{score.name} against training FLOPs of {len(runs)} runs"
    return draw(f"cost-{score.key}", what, 3.3, paint)


def pareto_front(costs: Sequence[float], scores: Sequence[float], rising: bool = True) -> list[int]:
    """The numbers of those that none beats, by rising cost; `rising` scores are better if higher.

    None costs no more and scores better, or the reverse; a score of NaN is on no front.

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


def trajectories(runs: Mapping[str, Sequence[Path2D]]) -> list[str]:
    """One panel a run: the path of each member in the plane, from its start to its tickets."""

    def panel(name: str, paths: Sequence[Path2D]) -> str:
        what = f"Paths of {len(paths)} members of {name} in the plane of their predictions"
        return draw("trajectories", what, 3.7, lambda figure: _paint_paths(figure, name, paths))

    return [panel(name, paths) for name, paths in runs.items()]


def _paint_paths(figure: Figure, name: str, paths: Sequence[Path2D]) -> None:
    axes = figure.add_subplot()
    drawn: list[Floats] = []
    labels = []
    for number, path in enumerate(paths):
        points = np.asarray(path.points, dtype=np.float64).reshape(-1, 2)
        known = np.isfinite(points).all(axis=1)
        if known.any():
            collected = points[known & np.asarray(path.collected, dtype=bool)]
            drawn.append(points[known])
            labels.append(shorten(printable(path.label), 16))
            _draw_path(axes, points[known], collected, series_colour(number), len(paths))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour("line"))
    axes.grid(visible=False)
    add_title(axes, name)
    grey: dict[str, Any] = {"color": colour("muted")}
    start = {"marker": "o", "markersize": 6, "markerfacecolor": colour("page"), "linestyle": ""}
    ticket = {"marker": "D", "markersize": 6, "linestyle": ""}
    later = {"marker": ".", "markersize": 4, "linewidth": 1.2}
    looks = (start, "start"), (ticket, "ticket"), (later, "later is stronger")
    add_legend(figure, [(grey | look, label) for look, label in looks])
    ends = [tuple(points[-1].tolist()) for points in drawn]

    def covered() -> Iterator[Box]:
        # The ends reach further than the points before them.
        reaches = [(np.array(ends).reshape(-1, 2), 5), *((points, 2) for points in drawn)]
        for points, reach in reaches:
            for x, y in axes.transData.transform(points).tolist():
                yield Box.around(x, y, y, reach)

    _name_points(figure, axes, ends, labels, SMALL, 1.25 * SMALL, covered)


def _draw_path(axes: Axes, points: Floats, collected: Floats, shade: str, paths: int) -> None:
    last = len(points) - 1
    cuts = np.unique(np.linspace(0, last, _STRETCHES + 1).round().astype(int))
    for start, end in itertools.pairwise(cuts.tolist()):
        opacity = 0.2 + 0.7 * end / last
        axes.plot(*points[start : end + 1].T, color=shade, linewidth=1.3, alpha=opacity)
    dots = np.unique(np.linspace(0, last, min(_MOST_DOTS // paths, last + 1)).round().astype(int))
    axes.plot(*points[dots[1:]].T, "o", color=shade, markersize=2.2, markeredgewidth=0)
    style: dict[str, Any] = {"color": shade, "markersize": 6, "markeredgewidth": 1.4, "zorder": 3}
    axes.plot(*points[:1].T, "o", markerfacecolor=colour("page"), **style)
    style = {"color": shade, "markersize": 7, "zorder": 4}
    axes.plot(*collected.T, "D", markeredgecolor=colour("page"), **style)
