"""Layer by layer: how much members' features differ, and how dense the weights are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...reading import printable
from .drawing import FONT_SIZE, WIDTH, draw, shorten_front, text_width
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import Floats, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Layers = Sequence[tuple[str, float]]


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL divergence between members' feature maps, from layer to layer.

    Args:
        curves: Of each run, the layers from input to output, each with its divergence. Runs with
            other layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(curves, runs)
    return [
        _panel("features", "KL divergence of feature maps", layers, lines, _paint_features)
        for layers, lines in _by_layers(curves, looks).items()
    ]


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights in each layer: bars, or several runs as lines.

    Args:
        densities: Of each run, the layers with the mean density of its tickets. Runs of equal
            densities share a line; runs with other layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(densities, runs)
    return [
        _panel("densities", "Share of active weights", layers, _merge(lines), _paint_densities)
        for layers, lines in _by_layers(densities, looks).items()
    ]


@dataclass(frozen=True)
class _Line:
    """The values of a run, layer by layer."""

    label: str
    look: Series
    values: Floats


def _by_layers(
    runs: Mapping[str, Layers], looks: Mapping[str, Series]
) -> dict[tuple[str, ...], list[_Line]]:
    """The runs of each list of layers: only these can share an axis."""
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for name, layers in runs.items():
        if layers:
            line = _Line(looks[name].label, looks[name], finite([value for _, value in layers]))
            groups.setdefault(tuple(layer for layer, _ in layers), []).append(line)
    return groups


def _merge(lines: Sequence[_Line]) -> list[_Line]:
    """One line for all runs that would be drawn on top of each other."""
    groups: dict[bytes, list[_Line]] = {}
    for line in lines:
        groups.setdefault(line.values.round(3).tobytes(), []).append(line)
    merged = []
    for first, *others in groups.values():
        label = " = ".join(line.label for line in (first, *others))
        if len(label) > 40:
            label = f"{first.label} = {len(others)} others"
        merged.append(replace(first, label=label))
    return merged


def _panel(
    name: str,
    what: str,
    layers: Sequence[str],
    lines: Sequence[_Line],
    paint: Callable[[Axes, Sequence[_Line]], None],
) -> str:
    names = [shorten_front(printable(layer), 20) for layer in layers]
    labels = [line.label for line in lines]

    def paint_all(figure: Figure) -> None:
        axes = figure.add_subplot()
        paint(axes, lines)
        _name_layers(axes, names)
        has_marks = paint is _paint_features and _are_few(lines)
        add_legend(figure, [line.look.handle(marker=has_marks) for line in lines], labels)

    below = FONT_SIZE / 72 if _fits(names) else max(map(_length, names)) / 72
    return draw(
        name,
        f"{what} in {len(layers)} layers of {', '.join(labels)}",
        2.6 + below + legend_height(labels),
        paint_all,
    )


def _paint_features(axes: Axes, lines: Sequence[_Line]) -> None:
    for line in lines:
        axes.plot(
            line.values,
            color=line.look.shade,
            marker=line.look.marker if _are_few(lines) else None,
            linestyle="-" if _are_few(lines) else line.look.dash,
            markersize=3.5,
            linewidth=1.3,
        )
    positive = np.concatenate([line.values[line.values > 0] for line in lines])
    if positive.size and positive.max() > 100 * positive.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylabel("KL between members")


def _paint_densities(axes: Axes, lines: Sequence[_Line]) -> None:
    if len(lines) == 1:
        values = lines[0].values
        axes.bar(range(len(values)), values, 0.8, color=lines[0].look.shade, linewidth=0)
    else:
        for line in lines:
            axes.plot(
                line.values,
                drawstyle="steps-mid",
                color=line.look.shade,
                linestyle=line.look.dash,
                linewidth=1.5,
            )
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("active weights")
    write_percent(axes.yaxis)


def _are_few(lines: Sequence[_Line]) -> bool:
    """Whether there is room for a mark at each value."""
    return sum(line.values.size for line in lines) <= 250


def _length(name: str) -> float:
    return text_width(name, FONT_SIZE - 1)


def _room(names: Sequence[str]) -> float:
    """Points along the axis for each name."""
    return 0.82 * WIDTH * 72 / len(names)


def _fits(names: Sequence[str]) -> bool:
    return max(map(_length, names)) < _room(names) - 3


def _name_layers(axes: Axes, names: Sequence[str]) -> None:
    """Names as many layers along the axis as there is room for."""
    fits = _fits(names)
    # Upright names need their height only.
    every = 1 if fits else math.ceil(1.25 * (FONT_SIZE - 1) / _room(names))
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=0 if fits else 90)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("layer, from input to output" + (f" (1 in {every} named)" if every > 1 else ""))
