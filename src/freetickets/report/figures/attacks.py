"""Attacks: the accuracy that is left of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from ..colours import colour
from .drawing import FONT_SIZE, draw
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = ("clean", "attacked: mean", "least and most")


@dataclass(frozen=True)
class AttackBar:
    """The accuracies of a run, clean and over the attacks crafted on each of its members."""

    clean: float
    min: float
    mean: float
    max: float

    def text(self) -> str:
        """The numbers, as far as they are known.

        Example:
            >>> AttackBar(0.95, 0.30, 0.35, 0.40).text()
            '95.0% → 35.0% (30.0–40.0)'
        """
        return (
            f"{_percent(self.clean)}% → {_percent(self.mean)}% "
            f"({_percent(self.min)}–{_percent(self.max)})"
        )


def attack_bars(
    bars: Mapping[str, AttackBar], what: str = "attack", runs: Sequence[str] = ()
) -> list[str]:
    """One panel, one line a run: its accuracy clean, and under attacks with their range.

    Args:
        bars: Of each run.
        what: The attack.
        runs: All runs of the page, so that each has its colour.
    """
    if not bars:
        return []
    return [
        draw(
            "attacks",
            f"Accuracy of {len(bars)} runs, clean and under {what}",
            0.55 + 0.5 * len(bars) + legend_height(_LABELS),
            partial(_paint, bars=bars, what=what, looks=series(bars, runs)),
        )
    ]


def _paint(
    figure: Figure, bars: Mapping[str, AttackBar], what: str, looks: Mapping[str, Series]
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    axes = figure.add_subplot()
    for line, (name, bar) in enumerate(bars.items()):
        look = looks[name]
        axes.text(
            0,
            line - 0.34,
            f"{look.label}  {bar.text()}",
            transform=axes.get_yaxis_transform(),
            color=colour("muted"),
            fontsize=FONT_SIZE - 1,
            va="center",
            bbox={"facecolor": colour("page"), "edgecolor": "none", "pad": 1},
        )
        if isfinite(bar.clean):
            axes.barh(line + 0.1, bar.clean, 0.44, color=(look.shade, 0.25), linewidth=0)
        if isfinite(bar.mean):
            axes.barh(line + 0.1, bar.mean, 0.26, color=look.shade, linewidth=0)
        if isfinite(bar.min) and isfinite(bar.max):
            ends = [bar.min, bar.max]
            axes.plot(ends, [line + 0.1] * 2, "|-", color=colour("text"), markersize=7, lw=1.2)
    axes.set_ylim(len(bars) - 0.5, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel(f"accuracy under {what}")
    write_percent(axes.xaxis)
    handles = [
        Patch(facecolor=(colour("muted"), 0.3), linewidth=0),
        Patch(facecolor=colour("muted"), linewidth=0),
        Line2D([], [], color=colour("text"), marker="|", markersize=7, linewidth=1.2),
    ]
    add_legend(figure, handles, _LABELS)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if isfinite(value) else "?"
