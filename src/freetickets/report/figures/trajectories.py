"""Trajectories: how the members of a run move through the space of predictions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...reading import printable
from ..colours import colour, series_colour
from .axes import SMALL, Floats, add_legend, add_title
from .drawing import draw, shorten
from .labels import Box, name_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...evaluation.trajectory import Path2D

_STRETCHES = 8  # of a path, each more opaque than the one before
_MOST_DOTS = 300  # of a panel


def trajectories(runs: Mapping[str, Sequence[Path2D]]) -> list[str]:
    """One panel a run: the path of each member in the plane, from its start to its tickets.

    Args:
        runs: Of each run, the paths of its members.
    """

    def panel(name: str, paths: Sequence[Path2D]) -> str:
        what = f"Paths of {len(paths)} members of {name} in the plane of their predictions"
        return draw("trajectories", what, 3.7, lambda figure: _paint(figure, name, paths))

    return [panel(name, paths) for name, paths in runs.items()]


def _paint(figure: Figure, name: str, paths: Sequence[Path2D]) -> None:
    from matplotlib.lines import Line2D

    axes = figure.add_subplot()
    drawn: dict[int, Floats] = {}
    for number, path in enumerate(paths):
        points = np.asarray(path.points, dtype=np.float64).reshape(-1, 2)
        known = np.isfinite(points).all(axis=1)
        points, collected = points[known], np.asarray(path.collected, dtype=bool)[known]
        if len(points) == 0:
            continue
        _draw_path(axes, points, collected, series_colour(number), _MOST_DOTS // len(paths))
        drawn[number] = points
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    axes.tick_params(labelbottom=False, labelleft=False, length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for spine in axes.spines.values():
        spine.set_color(colour("line"))
    axes.grid(visible=False)
    add_title(axes, name)
    grey = colour("muted")
    hollow: dict[str, Any] = {"markerfacecolor": colour("page"), "linestyle": ""}
    entries = [
        (Line2D([], [], color=grey, marker="o", markersize=6, **hollow), "start"),
        (Line2D([], [], color=grey, marker="D", markersize=6, linestyle=""), "ticket"),
        (Line2D([], [], color=grey, marker=".", markersize=4, linewidth=1.2), "later is stronger"),
    ]
    add_legend(figure, entries)
    ends = [tuple(points[-1].tolist()) for points in drawn.values()]
    labels = [shorten(printable(paths[number].label), 16) for number in drawn]

    def covered() -> list[Box]:
        # The ends reach further than the points before them.
        reaches = [(np.array(ends).reshape(-1, 2), 5), *((points, 2) for points in drawn.values())]
        return [
            Box.around(x, y, y, reach)
            for points, reach in reaches
            for x, y in axes.transData.transform(points).tolist()
        ]

    name_points(figure, axes, ends, labels, SMALL, 1.25 * SMALL, covered)


def _draw_path(
    axes: Axes, points: Floats, collected: NDArray[np.bool_], shade: str, most_dots: int
) -> None:
    last = len(points) - 1
    cuts = np.unique(np.linspace(0, last, _STRETCHES + 1).round().astype(int))
    for start, end in itertools.pairwise(cuts.tolist()):
        opacity = 0.2 + 0.7 * end / last
        axes.plot(*points[start : end + 1].T, color=shade, linewidth=1.3, alpha=opacity)
    dots = np.unique(np.linspace(0, last, min(most_dots, last + 1)).round().astype(int))
    axes.plot(*points[dots[1:]].T, "o", color=shade, markersize=2.2, markeredgewidth=0)
    hollow: dict[str, Any] = {"markerfacecolor": colour("page"), "markeredgewidth": 1.4}
    axes.plot(*points[:1].T, "o", color=shade, markersize=6, zorder=3, **hollow)
    axes.plot(
        *points[collected].T,
        "D",
        color=shade,
        markersize=7,
        markeredgecolor=colour("page"),
        zorder=4,
    )
