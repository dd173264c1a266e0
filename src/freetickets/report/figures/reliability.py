"""Reliability diagrams: how often a run is right, against how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..colours import colour
from .drawing import draw
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import finite
from .titles import add_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...metrics import Reliability

_LABELS = ("accuracy", "gap to confidence", "no gap")


def reliability_diagrams(
    diagrams: Mapping[str, Reliability], runs: Sequence[str] = ()
) -> list[str]:
    """One panel a run: accuracy by confidence, the gap between both, and how many samples.

    Args:
        diagrams: The bins of each run.
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(diagrams, runs, length=40)
    return [
        draw(
            "reliability",
            f"Accuracy against confidence of {name}; ECE {diagram.ece:.4f}",
            3.5 + legend_height(_LABELS),
            partial(_paint, diagram=diagram, look=looks[name]),
        )
        for name, diagram in diagrams.items()
    ]


def _paint(figure: Figure, diagram: Reliability, look: Series) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    edges = finite(diagram.edges)
    count = np.nan_to_num(finite(diagram.count))
    confidence, accuracy = finite(diagram.confidence), finite(diagram.accuracy)
    main, small = figure.subplots(2, sharex=True, height_ratios=[4, 1])
    filled = np.isfinite(confidence) & np.isfinite(accuracy)
    left, width = edges[:-1][filled], np.diff(edges)[filled]
    confidence, accuracy = confidence[filled], accuracy[filled]
    box = {"align": "edge", "linewidth": 0.0}
    main.bar(left, accuracy, width, color=(look.shade, 0.35), **box)
    main.bar(
        left,
        abs(accuracy - confidence),
        width,
        bottom=np.minimum(accuracy, confidence),
        color=(colour("text"), 0.22),
        **box,
    )
    main.hlines(accuracy, left, left + width, color=look.shade, linewidth=2)
    main.plot([0, 1], [0, 1], color=colour("muted"), linewidth=0.9, linestyle=(0, (4, 3)))
    main.text(0.04, 0.93, f"ECE {diagram.ece:.4f}", transform=main.transAxes, va="top")
    main.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
    add_title(main, look.label)
    small.bar(edges[:-1], count / max(count.sum(), 1), np.diff(edges), color=look.shade, **box)
    small.set_ylabel("samples")
    small.set_xlabel("confidence of the ensemble")
    small.locator_params(axis="y", nbins=2)
    for axis in (main.yaxis, small.yaxis, small.xaxis):
        write_percent(axis)
    figure.align_ylabels()
    handles = [
        Line2D([], [], color=look.shade, linewidth=2),
        Patch(facecolor=(colour("text"), 0.22), linewidth=0),
        Line2D([], [], color=colour("muted"), linewidth=0.9, linestyle=(0, (4, 3))),
    ]
    add_legend(figure, handles, _LABELS)
