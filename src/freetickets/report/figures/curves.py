"""Curves with a mark a point: over the size of an ensemble, over sparsity, over severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ...metrics.score import Score
from ...tasks import CLASSIFICATION
from ..colours import colour
from .axes import (
    Series,
    add_legend,
    finite,
    label_of,
    name_runs,
    series,
    write_percent,
    write_score,
)
from .drawing import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACCURACY, _NLL = CLASSIFICATION.scores[:2]
_ALONE = (0, (3, 2))


@dataclass(frozen=True)
class EnsembleCurve:
    """How ensembles change with their size, or with their sparsity.

    Attributes:
        x: The sizes, or the sparsities.
        accuracy: Of the ensemble at each.
        member_accuracy: The mean of its members.
        nll: Of the ensemble; None where that is not shown.
        kl: The mean divergence of its members; NaN where there is one only.
    """

    x: ArrayLike
    accuracy: ArrayLike
    member_accuracy: ArrayLike
    nll: ArrayLike | None = None
    kl: ArrayLike | None = None


def size_curves(curves: Mapping[str, EnsembleCurve], runs: Sequence[str] = ()) -> list[str]:
    """Two panels over the size of the ensemble: accuracy with the divergence below, and NLL."""
    if not curves:
        return []
    looks = series(curves, runs)
    nll = {
        name: EnsembleCurve(it.x, it.nll, ()) for name, it in curves.items() if it.nll is not None
    }
    return [
        _ensembles("size-accuracy", "members", curves, looks, _ACCURACY),
        _ensembles("size-nll", "members", nll, looks, _NLL),
    ]


def sparsity_curves(curves: Mapping[str, EnsembleCurve]) -> list[str]:
    """One panel over sparsity: accuracy of each method, with the divergence of members below."""
    if not curves:
        return []
    return [_ensembles("sparsity", "sparsity", curves, series(curves), _ACCURACY)]


def _ensembles(
    name: str,
    over: str,
    curves: Mapping[str, EnsembleCurve],
    looks: Mapping[str, Series],
    score: Score,
) -> str:
    has_kl = any(it.kl is not None and np.isfinite(finite(it.kl)).any() for it in curves.values())
    has_members = any(np.size(it.member_accuracy) for it in curves.values())

    def paint(figure: Figure) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.ticker import MaxNLocator

        heights = [3, 1][: 1 + has_kl]
        panels = figure.subplots(1 + has_kl, sharex=True, squeeze=False, height_ratios=heights)
        main, last = panels[0, 0], panels[-1, 0]
        for run, curve in curves.items():
            _plot(main, looks[run], curve.x, curve.accuracy, linewidth=1.6)
            if has_members:
                hollow = {"markerfacecolor": colour("page"), "linestyle": _ALONE}
                _plot(main, looks[run], curve.x, curve.member_accuracy, linewidth=1, **hollow)
            if has_kl and curve.kl is not None:
                _plot(last, looks[run], curve.x, curve.kl, linewidth=1.3)
        write_score(main.yaxis, score)
        if has_kl:
            last.set_ylabel("KL")
            last.margins(y=0.15)
            last.locator_params(axis="y", nbins=3)
        last.set_xlabel(over)
        if over == "sparsity":
            write_percent(last.xaxis)
        else:
            last.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        figure.align_ylabels()
        entries: list[tuple[Any, str]] = [(looks[run].handle(), looks[run].label) for run in curves]
        if has_members:
            grey = colour("muted")
            alone = Line2D([], [], color=grey, linewidth=1, linestyle=_ALONE)
            together = Line2D([], [], color=grey, linewidth=1.6)
            entries += [(together, "ensemble"), (alone, "members' mean")]
        add_legend(figure, entries)

    labels = ", ".join(looks[run].label for run in curves)
    what = f"{label_of(score).split(' (')[0]} by {over}, of {labels}"
    return draw(name, what, 3.5 if has_kl else 2.9, paint)


def severity_curves(
    severities: Sequence[int],
    curves: Mapping[str, Mapping[str, ArrayLike]],
    runs: Sequence[str] = (),
) -> list[str]:
    """One panel a score: severity of corruption across, one curve a run.

    Args:
        severities: Where the scores were measured.
        curves: Of each run, of each score of classes, its values, (S,).
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(curves, runs)

    def panel(score: Score, shown: Mapping[str, ArrayLike]) -> str:
        def paint(figure: Figure) -> None:
            axes = figure.add_subplot()
            for name, values in shown.items():
                _plot(axes, looks[name], severities, values, linewidth=1.4)
            axes.set_xticks(severities)
            axes.set_xlabel("severity of corruption")
            write_score(axes.yaxis, score)
            name_runs(figure, {name: looks[name] for name in shown})

        what = f"{score.name} by severity of corruption, of {len(shown)} runs"
        return draw(f"severity-{score.key}", what, 2.9, paint)

    found = [
        (score, {name: it[score.key] for name, it in curves.items() if score.key in it})
        for score in CLASSIFICATION.scores
    ]
    return [panel(score, shown) for score, shown in found if shown]


def _plot(axes: Axes, look: Series, x: ArrayLike, values: ArrayLike, **style: Any) -> None:
    """One curve, from left to right."""
    places, heights = finite(x), finite(values)
    order = np.argsort(places, kind="stable")
    options: dict[str, Any] = {"marker": look.marker, "markersize": 4.5, **style}
    axes.plot(places[order], heights[order], color=look.shade, **options)
