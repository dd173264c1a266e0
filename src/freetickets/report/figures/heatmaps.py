"""Heat maps: cells of one colour, the more opaque the higher, with their numbers.

Opacity lets the page's background through, so one drawing is right on light and dark pages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...metrics.score import Score
from ..colours import colour
from . import drawing as draw

_MOST_NUMBERED = 12  # columns
_FEW = 5  # members; maps of so few stand two in a panel
# Numbers in the text's colour have a contrast of 4.5:1 against this much blue, light and dark.
_FAINTEST, _NUMBERED, _PLAIN = 0.04, 0.5, 0.95


class _Scale(NamedTuple):
    """From which value to which the colour goes, and how values are written."""

    low: float
    high: float
    write: Callable[[float], str]

    def shade(self, value: float, strongest: float) -> tuple[str, float]:
        """The colour of a value; halfway where all values are equal."""
        span = self.high - self.low
        share = min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.5
        return colour("blue"), _FAINTEST + (strongest - _FAINTEST) * share


def _scale(
    arrays: Iterable[draw.Floats], write: Callable[[float], str], low: float | None = None
) -> _Scale:
    """The range of all draw.finite values, or from `low` to the highest of them."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays] or [np.zeros(0)])
    if values.size == 0:
        return _Scale(0.0, 1.0, write)
    return _Scale(float(values.min()) if low is None else low, float(values.max()), write)


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

    Given are types, severities and scores, (T, S). Colours have one scale for all runs.
    """
    panels: list[str] = []
    write = write_share if score.is_share else write_decimals
    scale = _scale([draw.finite(values) for _, _, values in maps.values()], write)
    for name, (types, severities, values) in maps.items():
        what = f"{score.name} of {name} by type of corruption and severity"
        with draw.panel(panels, "corruptions", what, 0.85 + 0.21 * len(types)) as figure:
            axes = figure.add_subplot()
            rows = [draw.shorten(kind.replace("_", " "), 18) for kind in types]
            width = (72 * draw.WIDTH - 95) / max(1, len(severities))
            _paint_cells(axes, draw.finite(values), rows, list(map(str, severities)), scale, width)
            axes.set_xlabel(f"severity; cells: {score.name}{' (%)' if score.is_share else ''}")
            draw.title(axes, name)
    return panels


def disagreement_heatmaps(
    matrices: Mapping[str, ArrayLike], what: str = "prediction disagreement"
) -> list[str]:
    """A map a run of how much member i (row) differs from j (column), on one colour scale from 0.

    Runs of one member are left out; runs of few members come first, two in a panel.
    """
    arrays = {name: draw.finite(matrix) for name, matrix in matrices.items()}
    arrays = {name: array for name, array in arrays.items() if len(array) > 1}
    scale = _scale(arrays.values(), write_decimals, low=0.0)
    return _pairs(arrays, what, scale, "member", "member")


def transfer_heatmaps(matrices: Mapping[str, ArrayLike], what: str) -> list[str]:
    """A map a run of the accuracy that is left under attack, in per cent, on one colour scale.

    Given is that of member m (column) on samples crafted on member k (row), (M, M). Runs of few
    members come first, two in a panel.
    """
    arrays = {name: draw.finite(matrix) for name, matrix in matrices.items()}
    scale, what = _scale(arrays.values(), write_share), f"accuracy (%) under {what}"
    return _pairs(arrays, what, scale, "crafted on member", "tested on member")


def _pairs(
    arrays: Mapping[str, draw.Floats], what: str, scale: _Scale, rows: str, columns: str
) -> list[str]:
    """Maps of member against member."""
    panels: list[str] = []
    labels = dict(zip(arrays, draw.shorten_all(list(arrays)), strict=True))
    few = [name for name, array in arrays.items() if len(array) <= _FEW]
    couples = [few[start : start + 2] for start in range(0, len(few), 2)]
    for names in [*couples, *([name] for name in arrays if name not in few)]:
        abreast = 2 if names[0] in few else 1
        keyed = len(arrays[names[0]]) > _MOST_NUMBERED
        height = draw.WIDTH / abreast + (0.85 if keyed else 0.5)
        title = f"{what} between members of {' and '.join(names)}"
        with draw.panel(panels, "pairs", title, height) as figure:
            figure.suptitle(what, x=0.02, ha="left", fontsize=draw.SMALL, color=colour("muted"))
            heights = [1, 0.04][: 1 + keyed]
            grid = figure.subplots(1 + keyed, abreast, squeeze=False, height_ratios=heights)
            for axes in grid[0, len(names) :]:
                axes.set_axis_off()
            for axes, name in zip(grid[0], names, strict=False):
                size = len(arrays[name])
                members = [str(number + 1) for number in range(size)]
                width = (72 * draw.WIDTH - 36 * abreast) / abreast / size
                _paint_cells(axes, arrays[name], members, members, scale, width)
                axes.set_aspect("equal")
                axes.set_anchor("NW")
                axes.set_title(labels[name], loc="left", fontsize=draw.SMALL, fontweight="bold")
                axes.set_xlabel(columns, fontsize=draw.SMALL)
                axes.set_ylabel(rows, fontsize=draw.SMALL)
            if keyed:
                _paint_key(grid[1, 0], scale)
    return panels


def _paint_cells(
    axes: draw.Axes,
    values: draw.Floats,
    rows: Sequence[str],
    columns: Sequence[str],
    scale: _Scale,
    width: float,
) -> None:
    """Fills axes with the cells of a matrix; what is not draw.finite stays empty.

    Numbers that don't fit into the width of a cell, in points, are left out.
    """
    from matplotlib.patches import Rectangle

    size = draw.SMALL if width >= 24 else draw.SMALL - 1
    known = np.isfinite(values)
    numbers = None
    if len(columns) <= _MOST_NUMBERED:
        texts = [scale.write(value) for value in values[known]]
        # Where there is little room, without the zero before the point.
        for candidate in (texts, [text.removeprefix("0") or "0" for text in texts]):
            if max((draw.text_width(text, size) for text in candidate), default=0.0) <= width - 2:
                numbers = iter(candidate)
                break
    strongest = _PLAIN if numbers is None else _NUMBERED
    for (row, column), value in np.ndenumerate(values):
        is_known = bool(known[row, column])
        style: draw.Style = {"facecolor": (colour("blue"), 0.0), "edgecolor": colour("line")}
        if is_known:
            style = {"facecolor": scale.shade(value, strongest), "edgecolor": colour("page")}
        style |= {"linewidth": 0.8 if width > 8 else 0.2, "clip_on": False}
        cell = Rectangle((column - 0.5, row - 0.5), 1, 1, **style)
        # The axes' own extent is known; measuring each cell would take most of the time.
        axes.add_patch(cell).set_in_layout(False)
        if numbers is not None:
            text = next(numbers) if is_known else "–"
            number = axes.text(column, row, text, ha="center", va="center_baseline", size=size)
            number.set_in_layout(False)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    draw.hide_frame(axes)


def _paint_key(axes: draw.Axes, scale: _Scale) -> None:
    """Says what the colours of a map without numbers mean."""
    from matplotlib.patches import Rectangle

    for step, opacity in enumerate(np.linspace(_FAINTEST, _PLAIN, 10).tolist()):
        axes.add_patch(Rectangle((step, 0), 1, 1, facecolor=(colour("blue"), opacity), lw=0))
    axes.set(xlim=(0, 10), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, 10], [scale.write(scale.low), scale.write(scale.high)])
    draw.hide_frame(axes)
