"""Corruptions: what a run scores by type and severity, and what all score by severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from .drawing import WIDTH, draw, shorten
from .heatmap import Scale, paint_heatmap, write_decimals, write_share
from .legend import add_legend, legend_height
from .scores import Quality, quality_of
from .series import Series, series
from .thinning import Floats, finite
from .titles import add_title

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def corruption_heatmap(
    name: str,
    types: Sequence[str],
    severities: Sequence[int],
    values: ArrayLike,
    quality: str = "accuracy",
    scale: tuple[float, float] | None = None,
) -> list[str]:
    """One panel: a line a type of corruption, a column a severity, the score in each cell.

    Args:
        name: Of the run.
        types: Of the corruptions.
        severities: Of each of them.
        values: The scores, (T, S).
        quality: Which score: accuracy, nll or ece.
        scale: What the colour goes from and to, to compare runs; by default the values' range.
    """
    array = finite(values)
    shown = quality_of(quality)
    return [
        draw(
            "corruptions",
            f"{shown.title} of {name} by type of corruption and severity",
            0.85 + 0.21 * len(types),
            partial(
                _paint_map,
                name=name,
                types=[shorten(kind.replace("_", " "), 18) for kind in types],
                severities=severities,
                values=array,
                quality=shown,
                scale=Scale(*scale) if scale else Scale.of([array]),
            ),
        )
    ]


def _paint_map(
    figure: Figure,
    name: str,
    types: Sequence[str],
    severities: Sequence[int],
    values: Floats,
    quality: Quality,
    scale: Scale,
) -> None:
    axes = figure.add_subplot()
    paint_heatmap(
        axes,
        values,
        types,
        [str(severity) for severity in severities],
        scale,
        write_share if quality.percent else write_decimals,
        (72 * WIDTH - 95) / max(1, len(severities)),
    )
    axes.set_xlabel(f"severity; cells: {quality.title}{' (%)' if quality.percent else ''}")
    add_title(axes, name)


def severity_curves(
    severities: Sequence[int],
    curves: Mapping[str, Mapping[str, ArrayLike]],
    runs: Sequence[str] = (),
) -> list[str]:
    """One panel a score: severity across, one curve a run.

    Args:
        severities: Where the scores were measured.
        curves: Of each run, of each score (accuracy, nll, ece), its values, (S,).
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(curves, runs)
    panels = []
    for key in dict.fromkeys(key for scores in curves.values() for key in scores):
        quality = quality_of(key)
        shown = {name: finite(scores[key]) for name, scores in curves.items() if key in scores}
        labels = [looks[name].label for name in shown]
        panels.append(
            draw(
                f"severity-{key}",
                f"{quality.title} by severity of corruption, of {len(shown)} runs",
                2.9 + legend_height(labels),
                partial(
                    _paint_curves, severities=severities, curves=shown, looks=looks, quality=quality
                ),
            )
        )
    return panels


def _paint_curves(
    figure: Figure,
    severities: Sequence[int],
    curves: Mapping[str, Floats],
    looks: Mapping[str, Series],
    quality: Quality,
) -> None:
    axes = figure.add_subplot()
    for name, values in curves.items():
        look = looks[name]
        axes.plot(
            severities, values, color=look.shade, marker=look.marker, markersize=4.5, linewidth=1.4
        )
    axes.set_xticks(severities)
    axes.set_xlabel("severity of corruption")
    axes.set_ylabel(quality.label)
    quality.format_axis(axes.yaxis)
    handles = [looks[name].handle() for name in curves]
    add_legend(figure, handles, [looks[name].label for name in curves])
