"""Trajectories: how the members of a run move through the space of predictions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...reading import printable
from ..colours import colour, series_colour
from .drawing import FONT_SIZE, draw, shorten, text_width
from .labels import Box, place_labels
from .legend import add_legend, legend_height
from .thinning import Floats
from .titles import add_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...evaluation.trajectory import Path2D

_STRETCHES = 8  # of a path, each more opaque than the one before
_MOST_DOTS = 300  # of a panel
_LABELS = ("start", "ticket", "later is stronger")


def trajectories(runs: Mapping[str, Sequence[Path2D]]) -> list[str]:
    """One panel a run: the path of each member in the plane, from its start to its tickets.

    Args:
        runs: Of each run, the paths of its members.
    """
    return [
        draw(
            "trajectories",
            f"Paths of {len(paths)} members of {name} in the plane of their predictions",
            3.7 + legend_height(_LABELS),
            partial(_paint, name=name, paths=paths),
        )
        for name, paths in runs.items()
    ]


def _paint(figure: Figure, name: str, paths: Sequence[Path2D]) -> None:
    from matplotlib.lines import Line2D

    axes = figure.add_subplot()
    ends: list[tuple[str, float, float]] = []
    drawn: list[Floats] = []
    for number, path in enumerate(paths):
        points = np.asarray(path.points, dtype=np.float64).reshape(-1, 2)
        known = np.isfinite(points).all(axis=1)
        points, collected = points[known], np.asarray(path.collected, dtype=bool)[known]
        if len(points) == 0:
            continue
        _draw_path(axes, points, collected, series_colour(number), _MOST_DOTS // len(paths))
        drawn.append(points)
        ends.append((shorten(printable(path.label), 16), *points[-1].tolist()))
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
    add_legend(
        figure,
        [
            Line2D([], [], color=grey, marker="o", markersize=6, **hollow),
            Line2D([], [], color=grey, marker="D", markersize=6, linestyle=""),
            Line2D([], [], color=grey, marker=".", markersize=4, linewidth=1.2),
        ],
        _LABELS,
    )
    _name_ends(figure, axes, ends, drawn)


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


def _name_ends(
    figure: Figure,
    axes: Axes,
    ends: Sequence[tuple[str, float, float]],
    paths: Sequence[Floats],
) -> None:
    """Names the paths where they end and cross no path, once the layout is settled."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    size = FONT_SIZE - 1
    points = [tuple(axes.transData.transform((x, y)).tolist()) for _, x, y in ends]
    frame = axes.get_window_extent()
    places = place_labels(
        points,
        [text_width(label, size) for label, _, _ in ends],
        1.25 * size,
        Box(frame.x0, frame.y0, frame.x1, frame.y1),
        [
            *(Box.around(x, y, y, reach=5) for x, y in points),
            *(
                Box.around(x, y, y, reach=2)
                for path in paths
                for x, y in axes.transData.transform(path).tolist()
            ),
        ],
    )
    for (label, x, y), (left, bottom), place in zip(ends, points, places, strict=True):
        on_right = place.left > left
        rise = (place.bottom + place.top) / 2 - bottom
        axes.annotate(
            label,
            (x, y),
            ((place.left if on_right else place.right) - left, rise),
            textcoords="offset points",
            fontsize=size,
            ha="left" if on_right else "right",
            va="center_baseline",
            zorder=5,
        )
