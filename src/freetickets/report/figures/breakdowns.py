"""Class by class and layer by layer: accuracy, disagreement, features, and density."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...reading import printable
from ..colours import colour
from .axes import Floats, Series, add_legend, finite, series, write_percent, write_powers
from .drawing import FONT_SIZE, SMALL, WIDTH, draw, shorten, shorten_all, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES = 20

Layers = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class ClassScores:
    """What a run scores in each class, (C,): NaN without samples; None for a single member."""

    accuracy: ArrayLike
    disagreement: ArrayLike | None = None


def class_breakdown(
    classes: Sequence[str], scores: Mapping[str, ClassScores], runs: Sequence[str] = ()
) -> list[str]:
    """A panel of accuracies, and one of disagreements: a line a class, a dot a run.

    Of more than 20 classes, the 20 are shown in which the runs' accuracies are furthest apart;
    of a single run, those that it is worst at. The panel says so.
    """
    if not scores:
        return []
    looks = series(scores, runs)
    accuracy = {name: finite(score.accuracy) for name, score in scores.items()}
    differing = {name: it.disagreement for name, it in scores.items()}
    disagreement = {name: finite(it) for name, it in differing.items() if it is not None}
    chosen = _choose(np.stack(list(accuracy.values())))
    labels = shorten_all([classes[number] for number in chosen], 16)
    lines = np.arange(len(labels))

    def paint(figure: Figure, what: str, values: Mapping[str, Floats]) -> None:
        axes = figure.add_subplot()
        # Runs that score the same would hide one another on one line.
        shifts = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else [0.0]
        size = 4.0 if len(values) < 8 else 3.2
        for shift, (name, value) in zip(shifts, values.items(), strict=True):
            style: dict[str, Any] = {"color": looks[name].shade, "markersize": size, "mew": 0}
            axes.plot(value[chosen], lines + shift, looks[name].marker, **style)
        for line in lines[1::2]:
            axes.axhspan(line - 0.5, line + 0.5, color=colour("band"), linewidth=0, zorder=-1)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.set_yticks(lines, labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.margins(x=0.05)
        axes.set_xlabel(f"{what} by class")
        axes.locator_params(axis="x", nbins=6)
        write_percent(axes.xaxis)
        if len(chosen) < len(classes):
            which = "the runs differ most in" if len(scores) > 1 else "are hardest"
            note = f"{len(chosen)} of {len(classes)} classes: those that {which}"
            axes.set_title(note, loc="left", fontsize=SMALL, color=colour("muted"))
        shown = [looks[name] for name in values]
        add_legend(figure, [(look.handle() | {"linestyle": ""}, look.label) for look in shown])

    def panel(what: str, values: Mapping[str, Floats]) -> str:
        title = f"{what.capitalize()} of {len(values)} runs in each of {len(chosen)} classes"
        height = 0.75 + len(chosen) * max(0.2, 0.035 * len(scores))
        return draw(f"classes-{what}", title, height, lambda figure: paint(figure, what, values))

    found = {"accuracy": accuracy, "disagreement": disagreement}
    return [panel(what, values) for what, values in found.items() if values]


def _choose(accuracy: Floats) -> list[int]:
    """The classes to show of accuracies (R, C), in their order."""
    if accuracy.shape[1] <= MOST_CLASSES:
        return list(range(accuracy.shape[1]))
    low = np.where(np.isnan(accuracy), np.inf, accuracy).min(axis=0)
    high = np.where(np.isnan(accuracy), -np.inf, accuracy).max(axis=0)
    interest = high - low if len(accuracy) > 1 else -low
    return sorted(np.argsort(-interest, kind="stable")[:MOST_CLASSES].tolist())


class _Line(NamedTuple):
    """The values of a run, layer by layer."""

    label: str
    look: Series
    values: Floats


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL divergence between members' feature maps, from input to output.

    Runs with other layers get a panel of their own.
    """

    def paint(axes: Axes, lines: Sequence[_Line]) -> bool:
        has_marks = sum(line.values.size for line in lines) <= 250
        for _, look, values in lines:
            marks = {"marker": look.marker} if has_marks else {"linestyle": look.dash}
            axes.plot(values, color=look.shade, markersize=3.5, linewidth=1.3, **marks)
        positive = np.concatenate([line.values[line.values > 0] for line in lines])
        if positive.size and positive.max() > 100 * positive.min():
            write_powers(axes)
        axes.set_ylabel("KL between members")
        return has_marks

    return [
        _panel("features", "KL divergence of feature maps", layers, lines, paint)
        for layers, lines in _by_layers(curves, runs).items()
    ]


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights in each layer: bars, or several runs as lines.

    Runs of equal densities share a line; runs with other layers get a panel of their own.
    """

    def paint(axes: Axes, lines: Sequence[_Line]) -> bool:
        for _, look, values in lines:
            if len(lines) == 1:
                axes.bar(range(len(values)), values, 0.8, color=look.shade, linewidth=0)
            else:
                style = {"color": look.shade, "linestyle": look.dash, "linewidth": 1.5}
                axes.plot(values, drawstyle="steps-mid", **style)
        axes.set_ylim(0, 1.03)
        axes.set_ylabel("active weights")
        write_percent(axes.yaxis)
        return False

    return [
        _panel("densities", "Share of active weights", layers, _merge(lines), paint)
        for layers, lines in _by_layers(densities, runs).items()
    ]


def _by_layers(
    found: Mapping[str, Layers], runs: Sequence[str]
) -> dict[tuple[str, ...], list[_Line]]:
    """The runs of each list of layers: only these can share an axis."""
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for name, look in series(found, runs).items():
        if layers := found[name]:
            line = _Line(look.label, look, finite([value for _, value in layers]))
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
        merged.append(first._replace(label=label))
    return merged


def _panel(
    name: str,
    what: str,
    layers: Sequence[str],
    lines: Sequence[_Line],
    paint: Callable[[Axes, Sequence[_Line]], bool],
) -> str:
    """A panel with layers across; `paint` says whether it drew marks."""
    names = [shorten(printable(layer), 20, tail=19) for layer in layers]
    longest = max(text_width(layer, SMALL) for layer in names)
    room = 0.82 * WIDTH * 72 / len(names)  # points along the axis for each name
    fits = longest < room - 3
    # Upright names need their height only.
    every = 1 if fits else math.ceil(1.25 * SMALL / room)

    def paint_all(figure: Figure) -> None:
        axes = figure.add_subplot()
        has_marks = paint(axes, lines)
        axes.set_xticks(range(0, len(names), every), names[::every], rotation=0 if fits else 90)
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.grid(visible=False, axis="x")
        note = f" (1 in {every} named)" if every > 1 else ""
        axes.set_xlabel(f"layer, from input to output{note}")
        add_legend(figure, [(line.look.handle(has_marks), line.label) for line in lines])

    title = f"{what} in {len(layers)} layers of {', '.join(line.label for line in lines)}"
    return draw(name, title, 2.6 + (FONT_SIZE if fits else longest) / 72, paint_all)
