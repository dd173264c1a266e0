"""Members and ensembles: what each member scores alone, and what they score together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..colours import colour, series_colour
from ..run import RunSummary
from .drawing import FONT_SIZE, draw, shorten, shorten_all
from .scores import Quality, qualities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def members_and_ensembles(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score, one line a run: its members, their mean, and the ensemble."""
    return [
        draw(
            f"members-{quality.key}",
            f"{quality.title} of the members and the ensemble of {len(runs)} runs",
            1.0 + 0.5 * len(runs),
            partial(_paint, runs=runs, quality=quality),
        )
        for quality in qualities(runs[0].task)
    ]


def _paint(figure: Figure, runs: Sequence[RunSummary], quality: Quality) -> None:
    axes = figure.add_subplot()
    labels = shorten_all([run.name for run in runs])
    for line, (run, label) in enumerate(zip(runs, labels, strict=True)):
        shade = series_colour(line)
        axes.axhline(line, color=colour("line"), linewidth=0.6, zorder=0)
        axes.text(
            0,
            line - 0.3,
            " · ".join(filter(None, [label, shorten(run.description, 28)])),
            transform=axes.get_yaxis_transform(),
            color=colour("muted"),
            fontsize=FONT_SIZE - 1,
            va="center",
            bbox={"facecolor": colour("page"), "edgecolor": "none", "pad": 1},
        )
        if len(run.members) > 1:
            members = [quality.of(member) for member in run.members]
            mean = quality.of(run.member_mean)
            _plot(axes, members, line, "o", shade, 6, markerfacecolor="none")
            _plot(axes, [mean], line, "|", shade, 14, markeredgewidth=1.6)
        _plot(axes, [quality.of(run.ensemble)], line, "D", shade, 6)
    axes.set_ylim(len(runs) - 0.5, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.06)
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(quality.label)
    quality.format_axis(axes.xaxis)
    _add_legend(axes)


def _plot(
    axes: Axes,
    values: Sequence[float],
    line: int,
    marker: str,
    shade: str,
    size: float,
    **options: Any,
) -> None:
    finite = [value for value in values if math.isfinite(value)]
    axes.plot(
        finite,
        [line] * len(finite),
        marker,
        color=shade,
        markersize=size,
        **options,
    )


def _add_legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D

    grey = colour("muted")
    axes.legend(
        handles=[
            Line2D([], [], ls="", marker="o", color=grey, markerfacecolor="none", label="member"),
            Line2D([], [], ls="", marker="|", color=grey, markersize=10, label="member mean"),
            Line2D([], [], ls="", marker="D", color=grey, markersize=5, label="ensemble"),
        ],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        borderaxespad=0,
        handletextpad=0.2,
        columnspacing=1.2,
    )
