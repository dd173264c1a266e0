"""Points with names: cost against quality, and the paths of members through predictions."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...evaluation.trajectory import Path2D
from ...metrics.score import Score
from ...reading import printable
from ..run import RunSummary
from . import drawing as draw
from .drawing import colour, series_colour

_GAP = 6.0  # points between a point and its label
_MOST_NAMED = 6  # more runs are numbered, and named in the legend
_STRETCHES = 8  # of a path, each more opaque than the one before
_MOST_DOTS = 300  # of a panel

_Points = Sequence[tuple[float, float]]
_Box = tuple[float, float, float, float]  # left, bottom, right and top, in points


def overlap(box: ArrayLike, others: ArrayLike) -> draw.Floats:
    """The area that a rectangle shares with each of others."""
    one, many = np.asarray(box), np.asarray(others)
    sides = np.minimum(one[2:], many[..., 2:]) - np.maximum(one[:2], many[..., :2])
    return sides.clip(0).prod(-1)


def place_labels(
    points: _Points, widths: Iterable[float], height: float, frame: ArrayLike,
    obstacles: Iterable[_Box],
) -> list[draw.Floats]:  # fmt: skip
    """Finds a place in a frame for the label of each point: beside it, as near as is free."""
    places: list[draw.Floats] = []
    rises = np.repeat(height * np.arange(-16, 17) / 4, 2)
    for (x, y), width in zip(points, widths, strict=True):
        left = np.tile([x + _GAP, x - _GAP - width], 33)
        bottom, top = y + rises - height / 2, y + rises + height / 2
        boxes = np.stack([left, bottom, left + width, top], axis=1)
        # A label may rather cross a thin line than stand far from its point;
        # on another label neither can be read.
        covered: Any = sum(overlap(it, boxes) for it in obstacles)
        covered = covered + 8 * sum(overlap(it, boxes) for it in places)
        outside = (left + width - left) * (top - bottom) - overlap(frame, boxes)
        cost = 2 * abs((bottom + top) / 2 - y) + 4 * outside + covered
        places.append(boxes[cost.argmin()])
    return places


def _name_points(
    figure: draw.Figure, axes: draw.Axes, points: _Points, labels: Sequence[str], size: float,
    line: float, obstacles: Callable[[], Iterable[_Box]], leaders: bool = False,
) -> None:  # fmt: skip
    """Names points by labels a line high, once the layout is settled; leaders lead to far ones."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    places = [tuple(axes.transData.transform(point).tolist()) for point in points]
    widths = [draw.text_width(label, size) for label in labels]
    frame = axes.get_window_extent().extents
    boxes = place_labels(places, widths, line, frame, list(obstacles()))
    style: draw.Style = {"fontsize": size, "va": "center_baseline", "zorder": 5}
    leader: draw.Style = {"arrowstyle": "-", "color": colour("muted"), "linewidth": 0.6}
    for point, label, (x, y), box in zip(points, labels, places, boxes, strict=True):
        left, bottom, right, top = box.tolist()
        on_right, rise = left > x, (bottom + top) / 2 - y
        offset = (left if on_right else right) - x, rise
        if leaders and abs(rise) > draw.FONT_SIZE / 2:
            relative = (0 if on_right else 1, 0.5)
            style["arrowprops"] = {**leader, "relpos": relative, "shrinkA": 0, "shrinkB": 4}
        else:
            style["arrowprops"] = None
        side = "left" if on_right else "right"
        axes.annotate(label, point, offset, textcoords="offset points", ha=side, **style)


class Mark(NamedTuple):
    """What a method cost, and how good its members and their ensemble are."""

    name: str
    cost: float
    mean: float
    ensemble: float


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """Each score against training FLOPs, and beside it against seconds where these are known."""
    panels: list[str] = []
    sides = [("training FLOPs, × one dense model", "one dense model", "relative_flops")]
    if any(run.ledger.seconds > 0 for run in runs):
        sides.append(("training seconds", "", "seconds"))
    for score, (title, line, fact) in itertools.product(runs[0].results.task.scores[:2], sides):
        key, results = score.key, [run.results for run in runs]
        costs = [getattr(run.ledger, fact) for run in runs]
        marks = [
            Mark(run.name, cost, it.member_mean[key], it.ensemble[key])
            for run, cost, it in zip(runs, costs, results, strict=True)
        ]
        panels.append(quality_panel(marks, score, title, line))
    return panels


def quality_panel(marks: Sequence[Mark], score: Score, title: str, line: str = "") -> str:
    """One score against one cost, with the front; `line` is what a cost of 1 is called."""
    panels: list[str] = []
    what = f"{score.name} against {title} of {len(marks)} runs"
    with draw.panel(panels, f"cost-{score.key}", what, 3.3) as (figure, axes):
        _paint_costs(figure, axes, marks, score, title, line)
    return panels[0]


class _Looks(NamedTuple):
    label: str
    shade: str


def _paint_costs(
    figure: draw.Figure,
    axes: draw.Axes,
    given: Sequence[Mark],
    score: Score,
    title: str,
    line: str,
) -> None:
    grey, numbered = colour("muted"), len(given) > _MOST_NAMED
    names = draw.shorten_all([mark.name for mark in given], 20 if numbered else 24)
    marks, looks = [], []
    for number, (name, mark) in enumerate(zip(names, given, strict=True)):
        if math.isfinite(mark.ensemble):
            marks.append(mark._replace(name=name))
            looks.append(_Looks(str(number + 1) if numbered else name, series_colour(number)))
    costs, scores = [mark.cost for mark in marks], [mark.ensemble for mark in marks]
    right = 1.12 * (max([*([1.0] if line else []), *costs], default=0.0) or 1.0)
    several = len(marks) > 1
    front = pareto_front(costs, scores, score.higher_is_better) if several else []
    ends = [*(costs[number] for number in front), right]
    heights = [scores[number] for number in front]
    hollow: draw.Style = {"ls": "", "marker": "o", "markersize": 5}
    diamond: draw.Style = {"ls": "", "marker": "D", "markersize": 5}
    dashed: draw.Style = {"color": grey, "linewidth": 0.8, "linestyle": draw.DASHED}
    stepped: draw.Style = {"color": grey, "linewidth": 3, "alpha": 0.3}
    for mark, (_, shade) in zip(marks, looks, strict=True):
        # Of a single network the two are one, and the diamond covers the rest.
        axes.plot([mark.cost] * 2, [mark.mean, mark.ensemble], linewidth=1.2, color=shade)
        inside = colour("page")
        axes.plot(mark.cost, mark.mean, color=shade, markerfacecolor=inside, **hollow)
        axes.plot(mark.cost, mark.ensemble, "D", markersize=6, color=shade)
    axes.set_xlim(0, right)
    axes.margins(y=0.14)
    if front:
        steps = [*heights, heights[-1]]
        axes.step(ends, steps, where="post", solid_capstyle="butt", zorder=1, **stepped)
    if line:
        axes.axvline(1, zorder=1, **dashed)
    axes.set_xlabel(title)
    draw.score_axis(axes.yaxis, score)
    entries: list[tuple[draw.Style, str]] = [
        ({"color": shade, **diamond}, f"{label} {mark.name}")
        for mark, (label, shade) in zip(marks, looks, strict=True)
        if label != mark.name
    ]
    entries += [
        ({"color": grey, **diamond}, "ensemble"),
        ({"color": grey, **hollow, "markerfacecolor": "none"}, "member mean"),
        *([(stepped, "Pareto front")] if several else ()),
        *([(dashed, line)] if line else ()),
    ]
    draw.legend(figure, entries)

    def covered() -> Iterator[_Box]:
        at = axes.transData.transform
        for mark in marks:
            (x, y), (_, other) = at([(mark.cost, mark.ensemble), (mark.cost, mark.mean)])
            other = other if math.isfinite(other) else y
            yield x - 5, y - 5, x + 5, y + 5
            yield x - 3, other - 3, x + 3, other + 3
            yield x - 1, min(y, other) - 1, x + 1, max(y, other) + 1
        for (start, end), height in zip(itertools.pairwise(ends), heights, strict=True):
            (x, y), (end, _) = at([(start, height), (end, height)])
            yield x, y - 2, end, y + 2

    labels, points = [label for label, _ in looks], list(zip(costs, scores, strict=True))
    _name_points(
        figure, axes, points, labels, draw.FONT_SIZE, 1.3 * draw.FONT_SIZE, covered, leaders=True
    )


def pareto_front(costs: Sequence[float], scores: Sequence[float], rising: bool = True) -> list[int]:
    """The numbers of those that none beats, by rising cost; `rising` is better if higher."""
    sign = -1 if rising else 1
    known = [number for number, score in enumerate(scores) if math.isfinite(score)]
    front: list[int] = []
    for number in sorted(known, key=lambda it: (costs[it], sign * scores[it])):
        if not front or sign * scores[number] < sign * scores[front[-1]]:
            front.append(number)
    return front


def trajectories(runs: Mapping[str, Sequence[Path2D]]) -> list[str]:
    """One panel a run: the path of each member in the plane, from its start to its tickets."""
    panels: list[str] = []
    for name, paths in runs.items():
        what = f"Paths of {len(paths)} members of {name} in the plane of their predictions"
        with draw.panel(panels, "trajectories", what, 3.7) as (figure, axes):
            draw.title(axes, name)
            _paint_paths(figure, axes, paths)
    return panels


def _paint_paths(figure: draw.Figure, axes: draw.Axes, paths: Sequence[Path2D]) -> None:
    drawn: list[draw.Floats] = []
    labels = []
    for number, path in enumerate(paths):
        points = np.asarray(path.points, dtype=np.float64).reshape(-1, 2)
        known = np.isfinite(points).all(axis=1)
        if known.any():
            collected = points[known & np.asarray(path.collected, dtype=bool)]
            drawn.append(points[known])
            labels.append(draw.shorten(printable(path.label), 16))
            _draw_path(axes, points[known], collected, series_colour(number), len(paths))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    axes.spines[:].set(visible=True, color=colour("line"))
    axes.grid(visible=False)
    grey: draw.Style = {"color": colour("muted")}
    start = {"marker": "o", "markersize": 6, "markerfacecolor": colour("page"), "linestyle": ""}
    ticket = {"marker": "D", "markersize": 6, "linestyle": ""}
    later = {"marker": ".", "markersize": 4, "linewidth": 1.2}
    looks = (start, "start"), (ticket, "ticket"), (later, "stronger is later")
    draw.legend(figure, [(grey | look, label) for look, label in looks])
    ends = [tuple(points[-1].tolist()) for points in drawn]

    def covered() -> Iterator[_Box]:
        # The ends reach further than the points before them.
        reaches = [(np.array(ends).reshape(-1, 2), 5), *((points, 2) for points in drawn)]
        for points, reach in reaches:
            for x, y in axes.transData.transform(points).tolist():
                yield x - reach, y - reach, x + reach, y + reach

    _name_points(figure, axes, ends, labels, draw.SMALL, 1.25 * draw.SMALL, covered)


def _draw_path(
    axes: draw.Axes, points: draw.Floats, collected: draw.Floats, shade: str, paths: int
) -> None:
    last = len(points) - 1
    cuts = np.unique(np.linspace(0, last, _STRETCHES + 1).round().astype(int))
    for start, end in itertools.pairwise(cuts.tolist()):
        opacity = 0.2 + 0.7 * end / last
        axes.plot(*points[start : end + 1].T, color=shade, linewidth=1.3, alpha=opacity)
    dots = np.unique(np.linspace(0, last, min(_MOST_DOTS // paths, last + 1)).round().astype(int))
    axes.plot(*points[dots[1:]].T, "o", color=shade, markersize=2.2, markeredgewidth=0)
    style: draw.Style = {"color": shade, "markersize": 6, "markeredgewidth": 1.4, "zorder": 3}
    axes.plot(*points[:1].T, "o", markerfacecolor=colour("page"), **style)
    style = {"color": shade, "markersize": 7, "zorder": 4}
    axes.plot(*collected.T, "D", markeredgecolor=colour("page"), **style)
