"""Class by class and layer by layer: accuracy, disagreement, features, and density."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ...reading import printable
from ..colours import colour
from .axes import (
    SMALL,
    Floats,
    Series,
    add_legend,
    finite,
    series,
    write_percent,
    write_powers,
)
from .drawing import FONT_SIZE, WIDTH, draw, shorten_all, shorten_front, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CLASSES = 20

Layers = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class ClassScores:
    """What a run scores in each class.

    Attributes:
        accuracy: Of the ensemble, (C,); NaN for classes without samples.
        disagreement: Of its members, (C,); None for a single one.
    """

    accuracy: ArrayLike
    disagreement: ArrayLike | None = None


def class_breakdown(
    classes: Sequence[str], scores: Mapping[str, ClassScores], runs: Sequence[str] = ()
) -> list[str]:
    """A panel of accuracies, and one of disagreements: a line a class, a dot a run.

    Of more than 20 classes, the 20 are shown in which the runs' accuracies are furthest apart;
    of a single run, those that it is worst at. The panel says so.

    Args:
        classes: Their names.
        scores: Of each run.
        runs: All runs of the page, so that each has its colour.
    """
    if not scores:
        return []
    accuracy = {name: finite(score.accuracy) for name, score in scores.items()}
    disagreement = {
        name: finite(score.disagreement)
        for name, score in scores.items()
        if score.disagreement is not None
    }
    chosen = _choose(np.stack(list(accuracy.values())))
    labels = shorten_all([classes[number] for number in chosen], 16)
    note = ""
    if len(chosen) < len(classes):
        which = "the runs differ most in" if len(scores) > 1 else "are hardest"
        note = f"{len(chosen)} of {len(classes)} classes: those that {which}"
    looks = series(scores, runs)

    def panel(what: str, values: Mapping[str, Floats]) -> str:
        shown = [(looks[name], value[chosen]) for name, value in values.items()]
        return draw(
            f"classes-{what}",
            f"{what.capitalize()} of {len(values)} runs in each of {len(chosen)} classes",
            0.75 + len(chosen) * max(0.2, 0.035 * len(scores)),
            lambda figure: _paint_classes(figure, shown, labels, what, note),
        )

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


def _paint_classes(
    figure: Figure,
    values: Sequence[tuple[Series, Floats]],
    labels: Sequence[str],
    what: str,
    note: str,
) -> None:
    axes = figure.add_subplot()
    lines = np.arange(len(labels))
    # Runs that score the same would hide one another on one line.
    shifts = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else [0.0]
    size = 4.0 if len(values) < 8 else 3.2
    entries = []
    for shift, (look, value) in zip(shifts, values, strict=True):
        axes.plot(value, lines + shift, look.marker, color=look.shade, markersize=size, mew=0)
        handle = look.handle()
        handle.set_linestyle("")
        entries.append((handle, look.label))
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
    if note:
        axes.set_title(note, loc="left", fontsize=SMALL, color=colour("muted"))
    add_legend(figure, entries)


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL divergence between members' feature maps, from layer to layer.

    Args:
        curves: Of each run, the layers from input to output, each with its divergence. Runs with
            other layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    return [
        _panel("features", "KL divergence of feature maps", layers, lines, _paint_features)
        for layers, lines in _by_layers(curves, runs).items()
    ]


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights in each layer: bars, or several runs as lines.

    Args:
        densities: Of each run, the layers with the mean density of its tickets. Runs of equal
            densities share a line; runs with other layers get a panel of their own.
        runs: All runs of the page, so that each has its colour.
    """
    return [
        _panel("densities", "Share of active weights", layers, _merge(lines), _paint_densities)
        for layers, lines in _by_layers(densities, runs).items()
    ]


@dataclass(frozen=True)
class _Line:
    """The values of a run, layer by layer."""

    label: str
    look: Series
    values: Floats


def _by_layers(
    found: Mapping[str, Layers], runs: Sequence[str]
) -> dict[tuple[str, ...], list[_Line]]:
    """The runs of each list of layers: only these can share an axis."""
    looks = series(found, runs)
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for name, layers in found.items():
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
    paint: Callable[[Axes, Sequence[_Line]], bool],
) -> str:
    names = [shorten_front(printable(layer), 20) for layer in layers]
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


def _paint_features(axes: Axes, lines: Sequence[_Line]) -> bool:
    """Draws curves; says whether there was room for a mark at each value."""
    has_marks = sum(line.values.size for line in lines) <= 250
    for line in lines:
        axes.plot(
            line.values,
            color=line.look.shade,
            marker=line.look.marker if has_marks else None,
            linestyle="-" if has_marks else line.look.dash,
            markersize=3.5,
            linewidth=1.3,
        )
    positive = np.concatenate([line.values[line.values > 0] for line in lines])
    if positive.size and positive.max() > 100 * positive.min():
        write_powers(axes)
    axes.set_ylabel("KL between members")
    return has_marks


def _paint_densities(axes: Axes, lines: Sequence[_Line]) -> bool:
    """Draws bars, or lines without marks."""
    for line in lines:
        values, shade = line.values, line.look.shade
        if len(lines) == 1:
            axes.bar(range(len(values)), values, 0.8, color=shade, linewidth=0)
        else:
            style = {"color": shade, "linestyle": line.look.dash, "linewidth": 1.5}
            axes.plot(values, drawstyle="steps-mid", **style)
    axes.set_ylim(0, 1.03)
    axes.set_ylabel("active weights")
    write_percent(axes.yaxis)
    return False
