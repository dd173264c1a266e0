"""The figure of what an ensemble costs to train, against its sparsity."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError, MissingExtraError
from ..report.figures.drawing import FONT_SIZE, STYLE, Axes, colour, series_colour
from .timing import Ratio

# The curve that is a line: what one dense network costs on our kernels.
ONE_DENSE = "ONE dense, on our kernels"

_FORMATS = (".svg", ".png")


@dataclass(frozen=True, kw_only=True)
class Point(Ratio):
    """A ratio that is a point of a curve, at a sparsity."""

    curve: str
    sparsity: float


def curves(points: Sequence[Point]) -> dict[str, list[tuple[float, float]]]:
    """The sparsities and ratios of each curve, in order of the sparsity."""
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        found.setdefault(point.curve, []).append((point.sparsity, point.value))
    return {name: sorted(pairs) for name, pairs in found.items()}


def check_path(path: Path) -> None:
    """Raises unless a figure can be drawn there: measuring takes long, so this comes first."""
    if path.suffix not in _FORMATS:
        raise FreeTicketsError(f"--figure must end in {' or '.join(_FORMATS)}, not {path.name!r}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingExtraError("drawing figures", "report") from None


def draw_costs(points: Sequence[Point], title: str, suffix: str) -> bytes:
    """Draws what training takes over one dense network in PyTorch; that on our kernels too."""
    import matplotlib.style
    from matplotlib.figure import Figure

    file = io.BytesIO()
    style: Any = ["default", {**STYLE, "svg.hashsalt": "costs"}]  # not the user's own
    with matplotlib.style.context(style):
        figure = Figure((6.4, 4.2), layout="constrained", facecolor=colour("page"))
        _paint(figure.add_subplot(), points, title)
        metadata = {"Date": None} if suffix == ".svg" else None  # equal input, equal bytes
        figure.savefig(file, format=suffix[1:], dpi=200, metadata=metadata)
    return file.getvalue()


def _paint(axes: Axes, points: Sequence[Point], title: str) -> None:
    found = curves(points)
    ((_, ours),) = found.pop(ONE_DENSE)
    for name, value in (("ONE dense, in PyTorch", 1.0), (ONE_DENSE, ours)):
        axes.axhline(value, color=colour("muted"), linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"{name}: {value:.2g}", (0, value), (4, -4), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="top", color=colour("muted"),
            bbox={"facecolor": colour("page"), "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    for number, (name, curve) in enumerate(found.items()):
        shade = series_colour(number)
        axes.plot(*zip(*curve, strict=True), "o-", color=shade, markersize=5, label=name)
        for place in curve:
            # ERK's numbers stand above their line: it is the upper one.
            offset, side = ((0, -8), "top") if number else ((0, 8), "bottom")
            style: Any = {"textcoords": "offset points", "ha": "center", "color": shade}
            axes.annotate(f"{place[1]:.2f}", place, offset, va=side, **style)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xticks(sorted({point.sparsity for point in points if point.curve != ONE_DENSE}))
    axes.margins(x=0.1)
    axes.set_ylim(0, 1.1 * max(1.0, *(point.value for point in points)))
    axes.set(xlabel="sparsity", ylabel="time of training, over dense in PyTorch")
    axes.set_title(title, fontsize=FONT_SIZE, color=colour("muted"), loc="left")
    axes.legend(loc="lower left", title="an EDST ensemble of 3")
