"""Layer by layer: how much members' features differ, and how dense the weights are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..record import printable
from .drawing import FONT_SIZE, WIDTH, draw, shorten_front, text_width
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import Floats, finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Layers = Sequence[tuple[str, float]]
_Painter = Callable[["Axes", Sequence[tuple[Series, Floats]]], None]

_SIZE = FONT_SIZE - 1


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL divergence between members' feature maps, from layer to layer.

    Args:
        curves: Of each run, the layers from input to output, each with its divergence. Runs with
            other layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    return _panels("features", "KL divergence of feature maps", curves, runs, _paint_features)


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights in each layer: bars, or a line for each run.

    Args:
        densities: Of each run, the layers with the mean density of its tickets. Runs with other
            layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    return _panels("densities", "Share of active weights", densities, runs, _paint_densities)


def _panels(
    name: str, what: str, curves: Mapping[str, Layers], runs: Sequence[str], paint: _Painter
) -> list[str]:
    groups: dict[tuple[str, ...], dict[str, Layers]] = {}
    for run, layers in curves.items():
        if layers:
            groups.setdefault(tuple(layer for layer, _ in layers), {})[run] = layers
    looks = series(curves, runs)
    return [
        draw(
            name,
            f"{what} in {len(layers)} layers of {', '.join(group)}",
            3.3 + legend_height([looks[run].label for run in group]),
            partial(_paint, group=group, layers=layers, looks=looks, paint=paint),
        )
        for layers, group in groups.items()
    ]


def _paint(
    figure: Figure,
    group: Mapping[str, Layers],
    layers: Sequence[str],
    looks: Mapping[str, Series],
    paint: _Painter,
) -> None:
    axes = figure.add_subplot()
    paint(axes, [(looks[run], finite([value for _, value in it])) for run, it in group.items()])
    _name_layers(axes, layers)
    add_legend(
        figure,
        [looks[run].handle() for run in group],
        [looks[run].label for run in group],
    )


def _paint_features(axes: Axes, curves: Sequence[tuple[Series, Floats]]) -> None:
    for look, values in curves:
        axes.plot(values, color=look.shade, marker=look.marker, markersize=3.5, linewidth=1.3)
    positive = np.concatenate([values[values > 0] for _, values in curves])
    if positive.size and positive.max() > 100 * positive.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylabel("KL between members' features")


def _paint_densities(axes: Axes, curves: Sequence[tuple[Series, Floats]]) -> None:
    if len(curves) == 1:
        look, values = curves[0]
        axes.bar(range(len(values)), values, 0.8, color=look.shade, linewidth=0)
    else:
        # Runs of one sparsity often have the same densities: the first are drawn wider, so that
        # the later don't hide them.
        widths = np.linspace(min(6.0, 1.0 + 1.6 * len(curves)), 1.2, len(curves))
        for width, (look, values) in zip(widths, curves, strict=True):
            axes.plot(values, drawstyle="steps-mid", color=look.shade, linewidth=width)
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("active weights")
    write_percent(axes.yaxis)


def _name_layers(axes: Axes, layers: Sequence[str]) -> None:
    """Names as many layers along the axis as there is room for."""
    names = [shorten_front(printable(layer), 20) for layer in layers]
    room = 0.82 * WIDTH * 72 / len(names)
    fits = max(text_width(name, _SIZE) for name in names) < room - 3
    # Upright names need their height only.
    every = 1 if fits else math.ceil(1.2 * _SIZE / room)
    axes.set_xticks(
        range(0, len(names), every),
        names[::every],
        rotation=0 if fits else 90,
    )
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("layer, from input to output" + (f" (1 in {every} named)" if every > 1 else ""))
