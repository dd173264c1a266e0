"""Risk-coverage curves: how often a run errs if it answers only where it is surest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .drawing import draw
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import thin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...metrics import RiskCoverage


def risk_curves(curves: Mapping[str, RiskCoverage], runs: Sequence[str] = ()) -> list[str]:
    """One panel: the share of samples answered across, errors among them upwards.

    Args:
        curves: Of each run; the area below its curve stands in the legend.
        runs: All runs of the page, so that each has its colour.
    """
    if not curves:
        return []
    looks = series(curves, runs, length=18)
    labels = [f"{looks[name].label} {curve.area:.4f}" for name, curve in curves.items()]
    return [
        draw(
            "risk",
            f"Errors against the share of samples answered, of {len(curves)} runs",
            3.0 + legend_height(labels),
            partial(_paint, curves=curves, looks=looks, labels=labels),
        )
    ]


def _paint(
    figure: Figure,
    curves: Mapping[str, RiskCoverage],
    looks: Mapping[str, Series],
    labels: Sequence[str],
) -> None:
    axes = figure.add_subplot()
    for name, curve in curves.items():
        axes.plot(
            *thin(curve.coverage, curve.risk),
            color=looks[name].shade,
            linestyle=looks[name].dash,
            linewidth=1.5,
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("samples answered, the surest first")
    axes.set_ylabel("errors among them")
    write_percent(axes.xaxis)
    write_percent(axes.yaxis)
    add_legend(figure, [looks[name].handle(marker=False) for name in curves], labels)
