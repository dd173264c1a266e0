"""Drawing: what panels share, and from matplotlib to an SVG that takes the page's colours."""

import heapq
import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import MissingExtraError
from ...metrics.score import Score
from ...reading import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis as Axis
    from matplotlib.figure import Figure as Figure
else:
    Axes = Axis = Figure = Any  # matplotlib is an extra

Floats = NDArray[np.float64]
Style = dict[str, Any]

# Of light and dark screens. Figures are drawn with the light ones, which `themed` turns into CSS
# variables: one drawing serves both. The series are told apart by people with any kind of colour
# vision (after Okabe and Ito), at a contrast of at least 3:1 against either background.
PALETTE = {
    "page": ("#ffffff", "#15181c"),
    "text": ("#1c2024", "#e4e7ea"),
    "muted": ("#5c656e", "#9aa4ae"),
    "line": ("#d5dade", "#363d44"),
    "band": ("#f1f3f5", "#1f2429"),
    "blue": ("#0072b2", "#56b4e9"),
    "vermillion": ("#c85200", "#ff8f4d"),
    "green": ("#00825f", "#2cc79a"),
    "purple": ("#ad4f87", "#e29cc6"),
    "ochre": ("#a06c00", "#e6b23a"),
}

SERIES = ("blue", "vermillion", "green", "purple", "ochre")

_NAMES = {light: name for name, (light, _) in PALETTE.items()}


def colour(name: str) -> str:
    """The colour to draw with."""
    return PALETTE[name][0]


def series_colour(number: int) -> str:
    """The colour of a series, counted from 0; they repeat."""
    return colour(SERIES[number % len(SERIES)])


def css_variables(dark: bool) -> str:
    """The palette as CSS declarations."""
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in PALETTE.items())


def themed(style: str) -> str:
    """Turns the palette's colours in a CSS style into variables, with themselves as fallback."""
    return re.sub(
        "#[0-9a-f]{6}",
        lambda found: f"var(--{_NAMES[found[0]]}, {found[0]})" if found[0] in _NAMES else found[0],
        style,
    )


WIDTH = 4.6  # inches; two panels fill a wide page, one a phone, with text of a size in both
FONT_SIZE = 9.0  # points
SMALL = FONT_SIZE - 1
DASHED = (0, (4, 3))
MOST_POINTS = 300
_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
_LINE = 1.5 * SMALL  # points from one entry of a legend to the next
_HANDLE = 3.6 * SMALL  # points of a handle and the gaps around it

STYLE = {
    **dict.fromkeys(("font.size", "axes.labelsize"), FONT_SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SMALL),
    **dict.fromkeys(("text.color", "axes.labelcolor"), colour("text")),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), colour("muted")),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "axes.facecolor": "none",
    "grid.color": colour("line"),
    "grid.linewidth": 0.6,
    "text.parse_math": False,  # a run may be named "$x$"
    # Text stays text: small, searchable, and in the page's own font. DejaVu, in which it is laid
    # out, is wider than what browsers use, so what fits here fits there.
    "font.sans-serif": ["DejaVu Sans"],
    "svg.fonttype": "none",
}


@contextmanager
def panel(
    panels: list[str], name: str, description: str, height: float, ratios: Sequence[float] = (1,)
) -> Iterator[tuple[Any, ...]]:
    """Adds to panels what is painted on this figure, of a height in inches.

    Gives the figure and its axes, one below the other, of heights in these ratios. Equal input
    gives equal bytes; the description is for those who can't see it.
    """
    try:
        import matplotlib.style
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing figures", "report") from None

    # The user's own matplotlib settings would otherwise show through.
    description = printable(description)
    style: Any = ["default", {**STYLE, "svg.hashsalt": f"{name}: {description}"}]
    file = io.BytesIO()
    with matplotlib.style.context(style), warnings.catch_warnings():
        # A name in a script that DejaVu lacks: the browser has fonts of its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # The SVG backend counts 72 dots an inch: with the same here, dots are points throughout.
        figure = Figure((WIDTH, height), dpi=72, layout="constrained", facecolor="none")
        if len(ratios) > 1:
            yield figure, *figure.subplots(len(ratios), sharex=True, height_ratios=ratios)
            figure.align_ylabels()
        else:
            yield figure, *(figure.add_subplot() for _ in ratios)
        # Figure.savefig would draw everything twice.
        FigureCanvasSVG(figure).print_svg(file)  # type: ignore[no-untyped-call]
    panels.append(_inline(file.getvalue(), description))


def _inline(svg: bytes, description: str) -> str:
    """Cleans an SVG of what must not stand in a page: metadata, global styles, clashing names."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
    root.remove(root.findall("metadata")[0])
    root.remove(root.findall("defs")[0])
    for element in root.iter():
        # Only these are referred to, and their names are salted; "axes_1" is in every figure.
        if element.tag not in ("clipPath", "path"):
            element.attrib.pop("id", None)
        if "style" in element.attrib:
            element.set("style", themed(element.attrib["style"]))
        for key in {"d", "x", "y", "width", "height", "transform"} & element.attrib.keys():
            # To a hundredth of a point, which nobody sees.
            text = " ".join(element.attrib[key].split())
            rounded = re.sub(r"-?\d+\.\d{3,}", lambda it: f"{round(float(it[0]), 2):g}", text)
            element.set(key, rounded)
        if element.tag != "text":
            element.text = None
        element.tail = None
    for group in root.iter("g"):
        # Says once how the marks of a curve look; each inherits it.
        styles = {mark.get("style") for mark in group}
        if len(group) > 1 and all(mark.tag == "use" for mark in group) and len(styles) == 1:
            for mark in group:
                group.set("style", mark.attrib.pop("style"))
    box = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "viewBox": box, "role": "img"}
    root.attrib |= {"aria-label": description, "stroke-linejoin": "round"}
    return ElementTree.tostring(root, encoding="unicode")


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """About how many points a text takes: no less than most fonts need."""
    return 0.62 * size * len(text)


def shorten(name: str, length: int = 24, tail: int = 0) -> str:
    """A name cut to what a figure has room for; of its end so many signs are kept."""
    if len(name) <= length:
        return name
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"


def shorten_all(names: Sequence[str], length: int = 24) -> list[str]:
    """Names cut to what a figure has room for, such that they still differ.

    Example:
        >>> shorten_all(["edst-cifar100-seed-0", "edst-cifar100-seed-1"], 12)
        ['edst-c…eed-0', 'edst-c…eed-1']
    """
    clean = [printable(name) for name in names]
    for tail in (0, (length - 1) // 2, length - 1):
        short = [shorten(name, length, tail) for name in clean]
        if len(set(short)) == len(set(names)):
            return short
    return [f"{number} {shorten(name, length - 4)}" for number, name in enumerate(clean, start=1)]


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
    """The look of each run: among all `runs` of the page a colour, then a mark and line."""
    names = list(dict.fromkeys(names))
    page = list(dict.fromkeys([*runs, *names]))
    looks = {}
    for number, (name, label) in enumerate(zip(page, shorten_all(page, length), strict=True)):
        again = number // len(SERIES)
        marker, dash = _MARKERS[again % len(_MARKERS)], _DASHES[again % len(_DASHES)]
        looks[name] = Series(label, series_colour(number), marker, dash)
    return {name: looks[name] for name in names}


def legend(figure: Figure, entries: Sequence[tuple[Style, str]]) -> None:
    """Writes styles and labels below all axes; one with a facecolor is a patch, else a line.

    The figure grows by its height, so that nothing is covered.
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
    style: Style = {"borderaxespad": 0, "handlelength": 2, "handletextpad": 0.5}
    style |= {"columnspacing": 1.1, "labelspacing": 0.3, "ncols": columns}
    figure.legend(handles=handles, labels=labels, loc="outside lower left", **style)


def title(axes: Axes, title: str) -> None:
    """Writes above axes which run or data set they show, flush with their left."""
    text = shorten(printable(title), 40, tail=19)
    axes.set_title(text, loc="left", fontsize=FONT_SIZE, fontweight="bold", pad=5)


def hide_frame(axes: Axes) -> None:
    """Takes the frame, the grid and the ticks away."""
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def score_axis(axis: Axis, score: Score) -> None:
    """Names the axis of a score, and writes it in its unit."""
    better = "higher" if score.higher_is_better else "lower"
    axis.set_label_text(f"{score.title} ({better} is better)")
    if score.is_share:
        percent(axis)


def percent(*axes: Axis) -> None:
    """Writes the shares along an axis in per cent."""
    for axis in axes:
        axis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")


def powers(axes: Axes) -> None:
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

    The point that lies furthest from what is drawn is added next (Ramer, Douglas, Peucker).
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
