"""Heat maps: cells of one colour, the more opaque the higher, with their numbers.

Opacity lets the page's background through, so one drawing is right on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..colours import colour
from .drawing import FONT_SIZE, text_width
from .thinning import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERED = 12  # columns
Writer = Callable[[float], str]

_SIZE = FONT_SIZE - 1
# Numbers in the text's colour have a contrast of 4.5:1 against this much blue, light and dark.
_NUMBERED, _PLAIN = 0.5, 0.95


@dataclass(frozen=True)
class Scale:
    """From which value to which the colour goes."""

    low: float
    high: float

    @classmethod
    def of(cls, arrays: Iterable[Floats], low: float | None = None) -> Scale:
        """The range of all finite values, or from `low` to the highest of them."""
        values = np.concatenate([array[np.isfinite(array)] for array in arrays] or [np.zeros(0)])
        if values.size == 0:
            return cls(0.0, 1.0)
        return cls(float(values.min()) if low is None else low, float(values.max()))

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1.

        Example:
            >>> Scale(2, 4).share(2.5)
            0.25
        """
        if self.high <= self.low:
            return 0.5
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def write_decimals(value: float) -> str:
    """A number in four or five characters.

    Example:
        >>> write_decimals(0.0312), write_decimals(0), write_decimals(12.34), write_decimals(1e-5)
        ('0.031', '0', '12.3', '1e-05')
    """
    if value == 0 or abs(value) < 5e-4 or abs(value) >= 1000:
        return f"{value:.1g}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def write_share(value: float) -> str:
    """A share in per cent, without the sign.

    Example:
        >>> write_share(0.954), write_share(1.0)
        ('95.4', '100')
    """
    return f"{100 * value:.1f}".removesuffix(".0") if value == 1 else f"{100 * value:.1f}"


def paint_heatmap(
    axes: Axes,
    values: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: Scale,
    write: Writer,
    width: float,
) -> None:
    """Fills axes with the cells of a matrix.

    Args:
        axes: Where to draw.
        values: The matrix; cells that are not finite stay empty.
        rows: The label of each row.
        columns: The label of each column.
        scale: What the colour means.
        write: Turns a value into text.
        width: Of a cell, in points. Numbers that don't fit are left out.
    """
    from matplotlib.patches import Rectangle

    finite = np.isfinite(values)
    numbers = _fitting([write(value) for value in values[finite]], len(columns), width)
    strongest = _PLAIN if numbers is None else _NUMBERED
    texts = iter(numbers or ())
    for (row, column), value in np.ndenumerate(values):
        is_known = bool(finite[row, column])
        opacity = 0.04 + (strongest - 0.04) * scale.share(float(value)) if is_known else 0.0
        axes.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                facecolor=(colour("blue"), opacity),
                edgecolor=colour("page") if is_known else colour("line"),
                linewidth=0.8 if width > 8 else 0.2,
                clip_on=False,
            )
        )
        text = next(texts, "") if is_known else "–" if numbers is not None else ""
        if text:
            axes.text(
                column,
                row,
                text,
                fontsize=_SIZE if width >= 24 else _SIZE - 1,
                ha="center",
                va="center_baseline",
            )
    _label(axes, rows, columns)


def paint_key(axes: Axes, scale: Scale, write: Writer) -> None:
    """Says what the colours of a map without numbers mean."""
    from matplotlib.patches import Rectangle

    steps = 10
    for step in range(steps):
        opacity = 0.04 + (_PLAIN - 0.04) * step / (steps - 1)
        axes.add_patch(Rectangle((step, 0), 1, 1, facecolor=(colour("blue"), opacity), lw=0))
    axes.set(xlim=(0, steps), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, steps], [write(scale.low), write(scale.high)])
    _clear(axes)


def _fitting(texts: list[str], columns: int, width: float) -> list[str] | None:
    """The numbers, without the zero before the point where there is little room, or None."""
    if columns > MOST_NUMBERED:
        return None
    for candidate in (texts, [text.removeprefix("0") or "0" for text in texts]):
        size = _SIZE if width >= 24 else _SIZE - 1
        if max((text_width(text, size) for text in candidate), default=0.0) <= width - 2:
            return candidate
    return None


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    _clear(axes)


def _clear(axes: Axes) -> None:
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
