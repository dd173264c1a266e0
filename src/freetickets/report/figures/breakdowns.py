"""Class by class and layer by layer: accuracy, disagreement, features, and density."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ...reading import printable
from ..colours import colour
from . import drawing as draw

MOST_CLASSES = 20

Layers = Sequence[tuple[str, float]]
_Line = tuple[draw.Series, draw.Floats]  # of a run: how it looks, and its values layer by layer


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
    panels: list[str] = []
    if not scores:
        return panels
    looks = draw.series(scores, runs)
    accuracy = {name: draw.finite(score.accuracy) for name, score in scores.items()}
    differing = {name: it.disagreement for name, it in scores.items()}
    disagreement = {name: draw.finite(it) for name, it in differing.items() if it is not None}
    chosen = _choose(np.stack(list(accuracy.values())))
    labels = draw.shorten_all([classes[number] for number in chosen], 16)
    lines = np.arange(len(labels))
    height = 0.75 + len(chosen) * max(0.2, 0.035 * len(scores))
    for what, values in (("accuracy", accuracy), ("disagreement", disagreement)):
        if not values:
            continue
        title = f"{what.capitalize()} of {len(values)} runs in each of {len(chosen)} classes"
        with draw.panel(panels, f"classes-{what}", title, height) as figure:
            axes = figure.add_subplot()
            # Runs that score the same would hide one another on one line.
            shifts = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else [0.0]
            size = 4.0 if len(values) < 8 else 3.2
            for shift, (name, value) in zip(shifts, values.items(), strict=True):
                style: draw.Style = {"color": looks[name].shade, "markersize": size, "mew": 0}
                axes.plot(value[chosen], lines + shift, looks[name].marker, **style)
            for line in lines[1::2]:
                axes.axhspan(line - 0.5, line + 0.5, color=colour("band"), linewidth=0, zorder=-1)
            axes.grid(visible=False, axis="y")
            axes.tick_params(axis="y", length=0)
            axes.set_yticks(lines, labels)
            axes.set(ylim=(len(labels) - 0.5, -0.5), xlabel=f"{what} by class")
            axes.margins(x=0.05)
            axes.locator_params(axis="x", nbins=6)
            draw.percent(axes.xaxis)
            if len(chosen) < len(classes):
                which = "the runs differ most in" if len(scores) > 1 else "are hardest"
                note = f"{len(chosen)} of {len(classes)} classes: those that {which}"
                axes.set_title(note, loc="left", fontsize=draw.SMALL, color=colour("muted"))
            shown = [looks[name] for name in values]
            draw.legend(figure, [(look.handle() | {"linestyle": ""}, look.label) for look in shown])
    return panels


def _choose(accuracy: draw.Floats) -> list[int]:
    """The classes to show of accuracies (R, C), in their order."""
    if accuracy.shape[1] <= MOST_CLASSES:
        return list(range(accuracy.shape[1]))
    low = np.where(np.isnan(accuracy), np.inf, accuracy).min(axis=0)
    high = np.where(np.isnan(accuracy), -np.inf, accuracy).max(axis=0)
    interest = high - low if len(accuracy) > 1 else -low
    return sorted(np.argsort(-interest, kind="stable")[:MOST_CLASSES].tolist())


def feature_curves(curves: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the KL divergence between members' feature maps, from input to output.

    Runs with other layers get a panel of their own.
    """

    def paint(axes: draw.Axes, lines: Sequence[_Line]) -> bool:
        has_marks = sum(values.size for _, values in lines) <= 250
        for look, values in lines:
            marks = {"marker": look.marker} if has_marks else {"linestyle": look.dash}
            axes.plot(values, color=look.shade, markersize=3.5, linewidth=1.3, **marks)
        positive = np.concatenate([values[values > 0] for _, values in lines])
        if positive.size and positive.max() > 100 * positive.min():
            draw.powers(axes)
        axes.set_ylabel("KL between members")
        return has_marks

    return _by_layers("features", "KL divergence of feature maps", curves, runs, paint)


def layer_densities(densities: Mapping[str, Layers], runs: Sequence[str] = ()) -> list[str]:
    """A panel of the share of active weights in each layer: bars, or several runs as lines.

    Runs of equal densities share a line; runs with other layers get a panel of their own.
    """

    def paint(axes: draw.Axes, lines: Sequence[_Line]) -> bool:
        for look, values in lines:
            if len(lines) == 1:
                axes.bar(range(len(values)), values, 0.8, color=look.shade, linewidth=0)
            else:
                style = {"color": look.shade, "linestyle": look.dash, "linewidth": 1.5}
                axes.plot(values, drawstyle="steps-mid", **style)
        axes.set(ylim=(0, 1.03), ylabel="active weights")
        draw.percent(axes.yaxis)
        return False

    return _by_layers("densities", "Share of active weights", densities, runs, paint, merge=True)


def _by_layers(
    name: str,
    what: str,
    found: Mapping[str, Layers],
    runs: Sequence[str],
    paint: Callable[[draw.Axes, Sequence[_Line]], bool],
    merge: bool = False,
) -> list[str]:
    """A panel, with layers across, for each list of layers: only runs of the same share an axis.

    `paint` says whether it drew marks. Runs that lie on top of each other can be merged to a line.
    """
    groups: dict[tuple[str, ...], list[_Line]] = {}
    for run, look in draw.series(found, runs).items():
        if found[run]:
            layers, values = zip(*found[run], strict=True)
            groups.setdefault(layers, []).append((look, draw.finite(values)))
    panels: list[str] = []
    for layers, lines in groups.items():
        if merge:
            lines = _merge(lines)
        names = [draw.shorten(printable(layer), 20, tail=19) for layer in layers]
        longest = max(draw.text_width(layer, draw.SMALL) for layer in names)
        room = 0.82 * draw.WIDTH * 72 / len(names)  # points along the axis for each name
        fits = longest < room - 3
        # Upright names need their height only.
        every = 1 if fits else math.ceil(1.25 * draw.SMALL / room)
        title = f"{what} in {len(layers)} layers of {', '.join(look.label for look, _ in lines)}"
        height = 2.6 + (draw.FONT_SIZE if fits else longest) / 72
        with draw.panel(panels, name, title, height) as figure:
            axes = figure.add_subplot()
            has_marks = paint(axes, lines)
            rotation = 0 if fits else 90
            axes.set_xticks(range(0, len(names), every), names[::every], rotation=rotation)
            axes.set_xlim(-0.6, len(names) - 0.4)
            axes.grid(visible=False, axis="x")
            note = f" (1 in {every} named)" if every > 1 else ""
            axes.set_xlabel(f"layer, from input to output{note}")
            draw.legend(figure, [(look.handle(has_marks), look.label) for look, _ in lines])
    return panels


def _merge(lines: Sequence[_Line]) -> list[_Line]:
    """One line for all runs that would be drawn on top of each other."""
    groups: dict[bytes, list[_Line]] = {}
    for look, values in lines:
        groups.setdefault(values.round(3).tobytes(), []).append((look, values))
    merged = []
    for (first, values), *others in groups.values():
        label = " = ".join([first.label, *(look.label for look, _ in others)])
        if len(label) > 40:
            label = f"{first.label} = {len(others)} others"
        merged.append((first._replace(label=label), values))
    return merged
