"""Titles of panels: which run or which data set one shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...reading import printable
from .drawing import FONT_SIZE, shorten_inside

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def add_title(axes: Axes, title: str) -> None:
    """Writes a title above axes, flush with their left."""
    axes.set_title(
        shorten_inside(printable(title), 40),
        loc="left",
        fontsize=FONT_SIZE,
        fontweight="bold",
        pad=5,
    )
