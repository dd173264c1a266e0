"""Novelty histograms: how unknown a run finds test samples, and samples of another data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..colours import colour
from .drawing import FONT_SIZE, draw
from .legend import add_legend, legend_height
from .series import Series, series
from .thinning import Floats, finite
from .titles import add_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 40
_LABELS = ("test set", "unknown set")

Scores = Mapping[str, tuple[ArrayLike, ArrayLike]]


def novelty_histograms(
    sets: Mapping[str, Scores], what: str = "novelty", runs: Sequence[str] = ()
) -> list[str]:
    """One panel a data set: of each run the scores of test samples and of the unknown set.

    Heights are roots of shares, without which the many certain samples would hide the rest.

    Args:
        sets: Of each out-of-distribution set, the scores (inside, outside) of each run.
        what: The score.
        runs: All runs of the page, so that each has its colour.
    """
    return [
        draw(
            "novelty",
            f"Histograms of {what} of the test set and {name}, for {len(scores)} runs",
            0.8 + 0.8 * len(scores) + legend_height(_LABELS),
            partial(_paint, name=name, scores=scores, what=what, looks=series(scores, runs, 40)),
        )
        for name, scores in sets.items()
        if scores
    ]


def _paint(
    figure: Figure, name: str, scores: Scores, what: str, looks: Mapping[str, Series]
) -> None:
    from matplotlib.patches import Patch

    known = {run: (_known(inside), _known(outside)) for run, (inside, outside) in scores.items()}
    values = np.concatenate([side for pair in known.values() for side in pair])
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    panels = figure.subplots(len(known), sharex=True, squeeze=False)[:, 0]
    for axes, (run, (inside, outside)) in zip(panels, known.items(), strict=True):
        _steps(axes, inside, edges, colour("muted"), 0.35)
        _steps(axes, outside, edges, looks[run].shade, 0.3)
        axes.set_yticks([])
        axes.set_ylim(bottom=0)
        axes.margins(x=0, y=0.05)
        axes.spines["left"].set_visible(False)
        axes.set_title(looks[run].label, loc="right", fontsize=FONT_SIZE - 1, pad=2)
    add_title(panels[0], name)
    panels[-1].set_xlabel(f"{what} (higher is more unknown)")
    shade = next(iter(looks.values())).shade if len(looks) == 1 else colour("text")
    handles = [
        Patch(facecolor=(side, 0.35), edgecolor=side, linewidth=1.2)
        for side in (colour("muted"), shade)
    ]
    add_legend(figure, handles, _LABELS)


def _known(values: ArrayLike) -> Floats:
    array = finite(values).ravel()
    return array[np.isfinite(array)]


def _steps(axes: Axes, values: Floats, edges: Floats, shade: str, opacity: float) -> None:
    if values.size == 0:
        return
    share = np.histogram(values, edges)[0] / values.size
    axes.stairs(
        np.sqrt(share),
        edges,
        fill=True,
        facecolor=(shade, opacity),
        edgecolor=shade,
        linewidth=1.2,
    )
