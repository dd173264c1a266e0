"""ROC curves: how well the unknown is told from the known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..colours import colour
from .drawing import draw
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import thin
from .titles import add_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...metrics import Roc

Curves = Mapping[str, "tuple[Roc, float]"]


def roc_curves(sets: Mapping[str, Curves], runs: Sequence[str] = ()) -> list[str]:
    """One panel a data set, one curve a run, the area below it in the legend.

    Args:
        sets: Of each out-of-distribution set, the curve and the AUROC of each run.
        runs: All runs of the page, so that each has its colour.
    """
    panels = []
    for name, curves in sets.items():
        if not curves:
            continue
        looks = series(curves, runs, length=19)
        labels = [f"{looks[run].label} {area:.4f}" for run, (_, area) in curves.items()]
        panels.append(
            draw(
                "roc",
                f"ROC curves of {len(curves)} runs against {name}",
                3.3 + legend_height(labels),
                partial(_paint, name=name, curves=curves, looks=looks, labels=labels),
            )
        )
    return panels


def _paint(
    figure: Figure, name: str, curves: Curves, looks: Mapping[str, Series], labels: Sequence[str]
) -> None:
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=colour("muted"), linewidth=0.9, linestyle=(0, (4, 3)))
    for run, (roc, _) in curves.items():
        axes.plot(
            *thin(roc.false_positive, roc.true_positive),
            color=looks[run].shade,
            linestyle=looks[run].dash,
            linewidth=1.5,
        )
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    axes.set_xlabel("test samples flagged as unknown")
    axes.set_ylabel("unknown samples flagged")
    add_title(axes, name)
    write_percent(axes.xaxis)
    write_percent(axes.yaxis)
    add_legend(figure, [looks[run].handle(marker=False) for run in curves], labels)
