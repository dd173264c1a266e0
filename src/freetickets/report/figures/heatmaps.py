"""Heat maps: cells of one colour, the more opaque the higher, with their numbers.

Opacity lets the page's background through, so one drawing is right on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ...metrics.score import Score
from ..colours import colour
from .axes import SMALL, Floats, add_title, finite
from .drawing import WIDTH, draw, shorten, shorten_all, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NUMBERED = 12  # columns
_FEW = 5  # members; maps of so few stand two in a panel
# Numbers in the text's colour have a contrast of 4.5:1 against this much blue, light and dark.
_NUMBERED, _PLAIN = 0.5, 0.95

_Writer = Callable[[float], str]


@dataclass(frozen=True)
class ColourScale:
    """From which value to which the colour goes."""

    low: float
    high: float

    @classmethod
    def of(cls, arrays: Iterable[Floats], low: float | None = None) -> ColourScale:
        """The range of all finite values, or from `low` to the highest of them."""
        values = np.concatenate([array[np.isfinite(array)] for array in arrays] or [np.zeros(0)])
        if values.size == 0:
            return cls(0.0, 1.0)
        return cls(float(values.min()) if low is None else low, float(values.max()))

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1.

        Example:
            >>> ColourScale(2, 4).share(2.5)
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
    return "100" if value == 1 else f"{100 * value:.1f}"


def corruption_heatmaps(
    maps: Mapping[str, tuple[Sequence[str], Sequence[int], ArrayLike]], score: Score
) -> list[str]:
    """One panel a run: a line a type of corruption, a column a severity, the score in each cell.

    Args:
        maps: Of each run, the types, the severities and the scores, (T, S).
        score: Which score. Colours have one scale for all runs.
    """
    arrays = {name: finite(values) for name, (_, _, values) in maps.items()}
    scale = ColourScale.of(arrays.values())
    return [
        _corruptions(name, types, severities, arrays[name], score, scale)
        for name, (types, severities, _) in maps.items()
    ]


def _corruptions(
    name: str,
    types: Sequence[str],
    severities: Sequence[int],
    values: Floats,
    score: Score,
    scale: ColourScale,
) -> str:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        rows = [shorten(kind.replace("_", " "), 18) for kind in types]
        width = (72 * WIDTH - 95) / max(1, len(severities))
        write = write_share if score.is_share else write_decimals
        _paint_cells(axes, values, rows, list(map(str, severities)), scale, write, width)
        axes.set_xlabel(f"severity; cells: {score.name}{' (%)' if score.is_share else ''}")
        add_title(axes, name)

    what = f"{score.name} of {name} by type of corruption and severity"
    return draw("corruptions", what, 0.85 + 0.21 * len(types), paint)


def disagreement_heatmaps(
    matrices: Mapping[str, ArrayLike], what: str = "prediction disagreement"
) -> list[str]:
    """A map a run of how much its members differ, on one colour scale from 0.

    Args:
        matrices: Of each run, the difference of member i (row) from member j (column), (M, M).
            Runs of one member are left out.
        what: The difference that it is.

    Returns:
        The panels; runs of few members come first, two in a panel.
    """
    arrays = {name: finite(matrix) for name, matrix in matrices.items()}
    arrays = {name: array for name, array in arrays.items() if len(array) > 1}
    scale = ColourScale.of(arrays.values(), low=0.0)
    return _pairs(arrays, what, scale, write_decimals, "member", "member")


def transfer_heatmaps(matrices: Mapping[str, ArrayLike], what: str) -> list[str]:
    """A map a run of the accuracy that is left under attack, in per cent, on one colour scale.

    Args:
        matrices: Of each run, the accuracy of member m (column) on the samples that were crafted
            on member k (row), (M, M).
        what: The attack.

    Returns:
        The panels; runs of few members come first, two in a panel.
    """
    arrays = {name: finite(matrix) for name, matrix in matrices.items()}
    scale = ColourScale.of(arrays.values())
    what = f"accuracy (%) under {what}"
    return _pairs(arrays, what, scale, write_share, "crafted on member", "tested on member")


def _pairs(
    arrays: Mapping[str, Floats],
    what: str,
    scale: ColourScale,
    write: _Writer,
    rows: str,
    columns: str,
) -> list[str]:
    """Maps of member against member."""
    labels = dict(zip(arrays, shorten_all(list(arrays)), strict=True))

    def panel(names: Sequence[str], abreast: int) -> str:
        keyed = len(arrays[names[0]]) > _MOST_NUMBERED

        def paint(figure: Figure) -> None:
            figure.suptitle(what, x=0.02, ha="left", fontsize=SMALL, color=colour("muted"))
            heights = [1, 0.04][: 1 + keyed]
            grid = figure.subplots(1 + keyed, abreast, squeeze=False, height_ratios=heights)
            for axes in grid[0, len(names) :]:
                axes.set_axis_off()
            for axes, name in zip(grid[0], names, strict=False):
                size = len(arrays[name])
                members = [str(number + 1) for number in range(size)]
                width = (72 * WIDTH - 36 * abreast) / abreast / size
                _paint_cells(axes, arrays[name], members, members, scale, write, width)
                axes.set_aspect("equal")
                axes.set_anchor("NW")
                axes.set_title(labels[name], loc="left", fontsize=SMALL, fontweight="bold")
                axes.set_xlabel(columns, fontsize=SMALL)
                axes.set_ylabel(rows, fontsize=SMALL)
            if keyed:
                _paint_key(grid[1, 0], scale, write)

        height = WIDTH / abreast + (0.85 if keyed else 0.5)
        return draw("pairs", f"{what} between members of {' and '.join(names)}", height, paint)

    few = [name for name, array in arrays.items() if len(array) <= _FEW]
    several = [panel(few[start : start + 2], 2) for start in range(0, len(few), 2)]
    return several + [panel([name], 1) for name in arrays if name not in few]


def _paint_cells(
    axes: Axes,
    values: Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: ColourScale,
    write: _Writer,
    width: float,
) -> None:
    """Fills axes with the cells of a matrix; what is not finite stays empty.

    Numbers that don't fit into the width of a cell, in points, are left out.
    """
    from matplotlib.patches import Rectangle

    known = np.isfinite(values)
    size = SMALL if width >= 24 else SMALL - 1
    numbers = _fitting([write(value) for value in values[known]], len(columns), width, size)
    strongest = _PLAIN if numbers is None else _NUMBERED
    texts = iter(numbers or ())
    for (row, column), value in np.ndenumerate(values):
        is_known = bool(known[row, column])
        opacity = 0.04 + (strongest - 0.04) * scale.share(float(value)) if is_known else 0.0
        cell = Rectangle(
            (column - 0.5, row - 0.5),
            1,
            1,
            facecolor=(colour("blue"), opacity),
            edgecolor=colour("page") if is_known else colour("line"),
            linewidth=0.8 if width > 8 else 0.2,
            clip_on=False,
        )
        # The axes' own extent is known; measuring each cell would take most of the time.
        axes.add_patch(cell).set_in_layout(False)
        text = next(texts, "") if is_known else "–" if numbers is not None else ""
        if text:
            number = axes.text(column, row, text, ha="center", va="center_baseline", size=size)
            number.set_in_layout(False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    _clear(axes)


def _paint_key(axes: Axes, scale: ColourScale, write: _Writer) -> None:
    """Says what the colours of a map without numbers mean."""
    from matplotlib.patches import Rectangle

    steps = 10
    for step in range(steps):
        opacity = 0.04 + (_PLAIN - 0.04) * step / (steps - 1)
        axes.add_patch(Rectangle((step, 0), 1, 1, facecolor=(colour("blue"), opacity), lw=0))
    axes.set(xlim=(0, steps), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, steps], [write(scale.low), write(scale.high)])
    _clear(axes)


def _fitting(texts: list[str], columns: int, width: float, size: float) -> list[str] | None:
    """The numbers, without the zero before the point where there is little room, or None."""
    if columns > _MOST_NUMBERED:
        return None
    for candidate in (texts, [text.removeprefix("0") or "0" for text in texts]):
        if max((text_width(text, size) for text in candidate), default=0.0) <= width - 2:
            return candidate
    return None


def _clear(axes: Axes) -> None:
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
