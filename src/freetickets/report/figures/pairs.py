"""Maps of member against member: how much each pair differs, or how well attacks carry over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from ..colours import colour
from .drawing import FONT_SIZE, WIDTH, draw, shorten_all
from .heatmap import (
    MOST_NUMBERED,
    Scale,
    Writer,
    paint_heatmap,
    paint_key,
    write_decimals,
    write_share,
)
from .thinning import Floats, finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW = 5  # members; maps of so few stand two in a panel


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
    scale = Scale.of(arrays.values(), low=0.0)
    return _maps(arrays, what, scale, write_decimals, "member", "member")


def transfer_heatmaps(matrices: Mapping[str, ArrayLike], what: str = "attack") -> list[str]:
    """A map a run of the accuracy that is left under attack, in per cent, on one colour scale.

    Args:
        matrices: Of each run, the accuracy of member m (column) on the samples that were crafted
            on member k (row), (M, M).
        what: The attack.

    Returns:
        The panels; runs of few members come first, two in a panel.
    """
    arrays = {name: finite(matrix) for name, matrix in matrices.items()}
    scale = Scale.of(arrays.values())
    what = f"accuracy (%) under {what}"
    return _maps(arrays, what, scale, write_share, "crafted on member", "tested on member")


def _maps(
    arrays: Mapping[str, Floats], what: str, scale: Scale, write: Writer, rows: str, columns: str
) -> list[str]:
    labels = dict(zip(arrays, shorten_all(list(arrays), 24), strict=True))
    few = [name for name, array in arrays.items() if len(array) <= _FEW]
    groups = [few[start : start + 2] for start in range(0, len(few), 2)]
    groups += [[name] for name in arrays if name not in few]
    panels = []
    for group in groups:
        abreast = 2 if group[0] in few else 1
        keyed = len(arrays[group[0]]) > MOST_NUMBERED
        panels.append(
            draw(
                "pairs",
                f"{what} between members of {' and '.join(group)}",
                WIDTH / abreast + (0.85 if keyed else 0.5),
                partial(
                    _paint,
                    maps=[(labels[name], arrays[name]) for name in group],
                    abreast=abreast,
                    what=what,
                    scale=scale,
                    write=write,
                    rows=rows,
                    columns=columns,
                ),
            )
        )
    return panels


def _paint(
    figure: Figure,
    maps: list[tuple[str, Floats]],
    abreast: int,
    what: str,
    scale: Scale,
    write: Writer,
    rows: str,
    columns: str,
) -> None:
    keyed = max(len(array) for _, array in maps) > MOST_NUMBERED
    figure.suptitle(what, x=0.02, ha="left", fontsize=FONT_SIZE - 1, color=colour("muted"))
    grid = figure.subplots(1 + keyed, abreast, squeeze=False, height_ratios=[1, 0.04][: 1 + keyed])
    for axes in grid[0, len(maps) :]:
        axes.set_axis_off()
    for axes, (label, array) in zip(grid[0], maps, strict=False):
        numbers = [str(number + 1) for number in range(len(array))]
        width = (72 * WIDTH - 36 * abreast) / abreast / len(array)
        paint_heatmap(axes, array, numbers, numbers, scale, write, width)
        axes.set_aspect("equal")
        axes.set_anchor("NW")
        axes.set_title(label, loc="left", fontsize=FONT_SIZE - 1, fontweight="bold")
        axes.set_xlabel(columns, fontsize=FONT_SIZE - 1)
        axes.set_ylabel(rows, fontsize=FONT_SIZE - 1)
    if keyed:
        paint_key(grid[1, 0], scale, write)
