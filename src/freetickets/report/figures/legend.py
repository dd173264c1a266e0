"""Legends below a panel, with the room that they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .drawing import FONT_SIZE, WIDTH, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZE = FONT_SIZE - 1
_LINE = 1.5 * _SIZE  # points from one entry to the next
_HANDLE = 3.6 * _SIZE  # points of a handle and the gaps around it


def legend_height(labels: Sequence[str]) -> float:
    """How many inches a legend adds to the height of its panel."""
    return (math.ceil(len(labels) / _columns(labels)) * _LINE + 6) / 72


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Writes a legend below all axes: in as many columns as fit, so that nothing is covered."""
    figure.legend(
        handles=list(handles),
        labels=list(labels),
        loc="outside lower left",
        ncols=_columns(labels),
        borderaxespad=0,
        handlelength=2,
        handletextpad=0.5,
        columnspacing=1.1,
        labelspacing=0.3,
    )


def _columns(labels: Sequence[str]) -> int:
    widest = max(text_width(label, _SIZE) for label in labels)
    return max(1, min(len(labels), int((72 * WIDTH - 10) / (widest + _HANDLE))))
