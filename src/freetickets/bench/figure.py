"""The figure of the crossover: how much faster than dense training is, against sparsity."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FreeTicketsError, MissingExtraError
from ..report.colours import colour, series_colour
from ..report.figures.drawing import FONT_SIZE, STYLE
from .curve import Point, crossover_sparsity, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".svg", ".png")


def check_path(path: Path) -> None:
    """Raises unless a figure can be drawn there: measuring takes long, so this comes first.

    Raises:
        FreeTicketsError: The suffix is of no format that there is.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix not in _FORMATS:
        raise FreeTicketsError(f"--figure must end in {' or '.join(_FORMATS)}, not {path.name!r}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError("drawing figures", "report") from None


def draw_crossover(points: Sequence[Point], title: str, suffix: str) -> bytes:
    """Draws one line for each curve, and marks where it crosses the speed of dense.

    Args:
        points: The curves.
        title: Where they were measured.
        suffix: ".svg" or ".png".
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    file = io.BytesIO()
    style: Any = ["default", {**STYLE, "svg.hashsalt": "crossover"}]  # not the user's own
    with matplotlib.style.context(style):
        figure = Figure((6.4, 4.2), layout="constrained", facecolor=colour("page"))
        _paint(figure, points, title)
        figure.savefig(
            file,
            format=suffix[1:],
            dpi=200,
            metadata={"Date": None} if suffix == ".svg" else None,  # equal input, equal bytes
        )
    return file.getvalue()


def _paint(figure: Figure, points: Sequence[Point], title: str) -> None:
    axes = figure.add_subplot()
    low = 0.8 * min(1.0, *(point.speedup for point in points))
    axes.axhline(1, color=colour("muted"), linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        "as fast as dense",
        (1, 1),
        (0, -3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="top",
        color=colour("muted"),
    )
    for number, (name, curve) in enumerate(curves(points).items()):
        shade, start = series_colour(number), crossover_sparsity(curve)
        label = f"{name}: " + ("not faster" if start is None else f"faster from {start:.0%} on")
        axes.plot(*zip(*curve, strict=True), "o-", color=shade, markersize=3.5, label=label)
        if start is not None:
            # A line down to the axis: the marks of alike layers lie too close for labels.
            axes.vlines(start, low, 1, color=shade, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
            axes.plot(start, 1, "D", color=shade, markersize=7, markeredgecolor=colour("page"))
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(bottom=low)
    axes.set_xlabel("sparsity")
    axes.set_ylabel("speed-up of training over dense")
    axes.set_title(title, fontsize=FONT_SIZE, color=colour("muted"), loc="left")
    axes.legend(loc="upper left")
