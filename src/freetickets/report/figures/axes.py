"""What panels share: how runs are told apart, legends, titles, axes, and curves of few points."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...metrics.score import Score
from ...reading import printable
from ..colours import SERIES, colour, series_colour
from .drawing import FONT_SIZE, SMALL, WIDTH, shorten, shorten_all, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Style = Mapping[str, Any]

DASHED = (0, (4, 3))
MOST_POINTS = 300
_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_LINE = 1.5 * SMALL  # points from one entry of a legend to the next
_HANDLE = 3.6 * SMALL  # points of a handle and the gaps around it


class Series(NamedTuple):
    """How a run is drawn in every figure of a page: curves of few points have marks, not dashes."""

    label: str
    shade: str
    marker: str
    dash: Any

    def handle(self, marker: bool = True) -> dict[str, Any]:
        """The line that stands for it in a legend."""
        if marker:
            return {"color": self.shade, "marker": self.marker, "markersize": 4.5}
        return {"color": self.shade, "linestyle": self.dash, "linewidth": 1.6}


def series(names: Iterable[str], runs: Sequence[str] = (), length: int = 24) -> dict[str, Series]:
    """The look of each run of a figure; among all `runs` of the page it keeps its colour.

    Colours come first; when they are used up, they come again with another mark and line.

    Example:
        >>> [look.shade for look in series(["b"], runs=["a", "b"]).values()]
        ['#c85200']
    """
    names = list(dict.fromkeys(names))
    page = list(dict.fromkeys([*runs, *names]))
    looks = {}
    for number, (name, label) in enumerate(zip(page, shorten_all(page, length), strict=True)):
        again = number // len(SERIES)
        marker, dash = _MARKERS[again % len(_MARKERS)], _DASHES[again % len(_DASHES)]
        looks[name] = Series(label, series_colour(number), marker, dash)
    return {name: looks[name] for name in names}


def add_legend(figure: Figure, entries: Sequence[tuple[Style, str]]) -> None:
    """Writes styles and labels below all axes, in as many columns as fit.

    A style with a facecolor is a patch, any other a line. The figure grows by the height of the
    legend, so that nothing is covered.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    labels = [label for _, label in entries]
    widths = [text_width(label, SMALL) + _HANDLE for label in labels]
    columns = len(labels)
    # Each column is as wide as its longest label; entries fill them in turn.
    while columns > 1 and sum(map(max, np.array_split(widths, columns))) > 72 * WIDTH - 10:
        columns -= 1
    height = (math.ceil(len(labels) / max(1, columns)) * _LINE + 6) / 72
    figure.set_figheight(figure.get_figheight() + height)
    handles = [
        (Patch if "facecolor" in style else partial(Line2D, [], []))(**style)
        for style, _ in entries
    ]
    style: dict[str, Any] = {"borderaxespad": 0, "handlelength": 2, "handletextpad": 0.5}
    style |= {"columnspacing": 1.1, "labelspacing": 0.3, "ncols": columns}
    figure.legend(handles=handles, labels=labels, loc="outside lower left", **style)


def add_title(axes: Axes, title: str) -> None:
    """Writes above axes which run or data set they show, flush with their left."""
    text = shorten(printable(title), 40, tail=19)
    axes.set_title(text, loc="left", fontsize=FONT_SIZE, fontweight="bold", pad=5)


def write_above(axes: Axes, line: float, text: str) -> None:
    """Writes what a line of axes shows above it, at their left."""
    box = {"facecolor": colour("page"), "edgecolor": "none", "pad": 1}
    style: dict[str, Any] = {"color": colour("muted"), "fontsize": SMALL, "va": "center"}
    axes.text(0, line, text, transform=axes.get_yaxis_transform(), bbox=box, **style)


def write_score(axis: Axis, score: Score) -> None:
    """Names the axis of a score, and writes it in its unit."""
    better = "higher" if score.higher_is_better else "lower"
    axis.set_label_text(f"{score.title} ({better} is better)")
    if score.is_share:
        write_percent(axis)


def write_percent(*axes: Axis) -> None:
    """Writes the shares along an axis in per cent."""
    for axis in axes:
        axis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")


def write_powers(axes: Axes) -> None:
    """Makes the upward axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")


def finite(values: ArrayLike) -> Floats:
    """Values as floats, NaN where they are not finite: what drawing leaves out."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def thin(x: ArrayLike, y: ArrayLike, most: int = MOST_POINTS) -> tuple[Floats, Floats]:
    """The finite points of a curve that matter most, ends included: it looks the same.

    The point that lies furthest from the curve drawn so far is added next (after Ramer, Douglas
    and Peucker), both axes counted in shares of their range.

    Example:
        >>> x, y = thin([0, 1, 2, 3], [0, 0, 0, 1])
        >>> x.tolist(), y.tolist()
        ([0.0, 2.0, 3.0], [0.0, 0.0, 1.0])
    """
    points = np.stack([finite(x), finite(y)])
    points = points[:, np.isfinite(points).all(axis=0)]
    if points.shape[1] <= 2:
        return points[0], points[1]
    extent = np.ptp(points, axis=1, keepdims=True)
    scaled = points / np.where(extent > 0, extent, 1.0)
    last = points.shape[1] - 1
    kept = {0, last}
    worst = [_worst(scaled, 0, last)]
    while len(kept) < most and worst[0][0] < -1e-5:
        _, middle, start, end = heapq.heappop(worst)
        kept.add(middle)
        heapq.heappush(worst, _worst(scaled, start, middle))
        heapq.heappush(worst, _worst(scaled, middle, end))
    order = sorted(kept)
    return points[0, order], points[1, order]


def _worst(points: Floats, start: int, end: int) -> tuple[float, int, int, int]:
    """Minus the distance, and the number, of the point furthest from the chord of a stretch."""
    if end - start < 2:
        return 0.0, start, start, end
    chord = points[:, end] - points[:, start]
    offset = points[:, start + 1 : end] - points[:, [start]]
    length = float(np.hypot(*chord))
    away = np.hypot(*offset) if length == 0 else abs(chord[0] * offset[1] - chord[1] * offset[0])
    furthest = int(away.argmax())
    return -float(away[furthest]) / (length or 1.0), start + 1 + furthest, start, end
