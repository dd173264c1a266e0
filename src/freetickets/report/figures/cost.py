"""Cost against quality: what each run took to train, and how good it became."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..colours import colour, series_colour
from ..run import RunSummary
from .drawing import FONT_SIZE, draw, shorten, text_width
from .labels import Box, place_labels
from .scores import QUALITIES, Quality

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score: training FLOPs across, the ensemble and its members' mean upwards."""
    return [
        draw(
            f"cost-{quality.key}",
            f"{quality.title} against training FLOPs of {len(runs)} runs",
            3.3,
            partial(_paint, runs=runs, quality=quality),
        )
        for quality in QUALITIES
    ]


def _paint(figure: Figure, runs: Sequence[RunSummary], quality: Quality) -> None:
    axes = figure.add_subplot()
    drawn = []
    for number, run in enumerate(runs):
        cost = run.ledger.relative_flops
        mean, ensemble = quality.of(run.member_mean), quality.of(run.ensemble)
        if not math.isfinite(ensemble):
            continue
        shade = series_colour(number)
        if len(run.members) > 1 and math.isfinite(mean):
            axes.plot([cost, cost], [mean, ensemble], color=shade, linewidth=1.2)
            axes.plot(cost, mean, "o", color=shade, markersize=5, markerfacecolor=colour("page"))
        axes.plot(cost, ensemble, "D", color=shade, markersize=6)
        drawn.append((run, (cost, ensemble), (cost, mean)))
    most = max((point[0] for _, point, _ in drawn), default=1.0)
    axes.set_xlim(0, 1.12 * max(1.0, most))
    axes.margins(y=0.14)
    axes.axvline(1, color=colour("muted"), linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlabel("training FLOPs, × one dense model")
    axes.set_ylabel(quality.label)
    quality.format_axis(axes.yaxis)
    _label(figure, axes, drawn)


def _label(
    figure: Figure,
    axes: Axes,
    drawn: Sequence[tuple[RunSummary, tuple[float, float], tuple[float, float]]],
) -> None:
    """Names the points once the layout is settled, for only then is it known where they are."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    frame = axes.get_window_extent()
    names = [shorten(run.name) for run, _, _ in drawn]
    points = [tuple(axes.transData.transform(point)) for _, point, _ in drawn]
    means = [tuple(axes.transData.transform(mean)) for _, _, mean in drawn]
    places = place_labels(
        points,
        [text_width(name) for name in names],
        1.3 * FONT_SIZE,
        Box(frame.x0, frame.y0, frame.x1, frame.y1),
        means,
    )
    for name, (_, point, _), (x, y), place in zip(names, drawn, points, places, strict=True):
        on_right = place.left > x
        rise = (place.bottom + place.top) / 2 - y
        axes.annotate(
            name,
            point,
            ((place.left if on_right else place.right) - x, rise),
            textcoords="offset points",
            ha="left" if on_right else "right",
            va="center_baseline",
            arrowprops=(
                {"arrowstyle": "-", "color": colour("muted"), "linewidth": 0.6, "shrinkB": 4}
                if abs(rise) > FONT_SIZE
                else None
            ),
        )
