"""Series: how the runs of a figure are told apart, the same in every figure of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..colours import SERIES, series_colour
from .drawing import shorten_all

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


@dataclass(frozen=True)
class Series:
    """How a run is drawn.

    Attributes:
        label: Its name, short enough for a figure.
        shade: Its colour.
        marker: Its mark, for curves of few points.
        dash: Its line, for curves of many.
    """

    label: str
    shade: str
    marker: str
    dash: Any

    def handle(self, marker: bool = True) -> Line2D:
        """What stands for it in a legend."""
        from matplotlib.lines import Line2D

        if marker:
            return Line2D([], [], color=self.shade, marker=self.marker, markersize=4.5)
        return Line2D([], [], color=self.shade, linestyle=self.dash, linewidth=1.6)


def series(names: Iterable[str], runs: Sequence[str] = (), length: int = 24) -> dict[str, Series]:
    """The look of each run of a figure.

    Colours come first; when they are used up, they come again with another mark and line.

    Args:
        names: The runs that the figure shows.
        runs: All runs of the page; one keeps its colour where others are missing.
        length: Of the labels, in characters.

    Example:
        >>> [look.shade for look in series(["b"], runs=["a", "b"]).values()]
        ['#c85200']
    """
    names = list(dict.fromkeys(names))
    page = list(dict.fromkeys([*runs, *names]))
    order = {name: number for number, name in enumerate(page)}
    labels = shorten_all(page, length)
    return {
        name: Series(
            labels[order[name]],
            series_colour(order[name]),
            _MARKERS[order[name] // len(SERIES) % len(_MARKERS)],
            _DASHES[order[name] // len(SERIES) % len(_DASHES)],
        )
        for name in names
    }
