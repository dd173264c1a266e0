"""Class by class: how accurate each run is, and how much its members disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..colours import colour
from .drawing import FONT_SIZE, draw, shorten_all
from .legend import add_legend, legend_height
from .scores import write_percent
from .series import Series, series
from .thinning import Floats, finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 20


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
    return [
        draw(
            f"classes-{what}",
            f"{what.capitalize()} of {len(values)} runs in each of {len(chosen)} classes",
            0.75
            + len(chosen) * max(0.2, 0.035 * len(scores))
            + legend_height(_labels(looks, values)),
            partial(
                _paint,
                values={name: value[chosen] for name, value in values.items()},
                looks=looks,
                labels=labels,
                what=what,
                note=note,
            ),
        )
        for what, values in (("accuracy", accuracy), ("disagreement", disagreement))
        if values
    ]


def _choose(accuracy: Floats) -> list[int]:
    """The classes to show of accuracies (R, C), in their order."""
    if accuracy.shape[1] <= MOST_CLASSES:
        return list(range(accuracy.shape[1]))
    low = np.where(np.isnan(accuracy), np.inf, accuracy).min(axis=0)
    high = np.where(np.isnan(accuracy), -np.inf, accuracy).max(axis=0)
    interest = high - low if len(accuracy) > 1 else -low
    return sorted(np.argsort(-interest, kind="stable")[:MOST_CLASSES].tolist())


def _labels(looks: Mapping[str, Series], values: Mapping[str, Floats]) -> list[str]:
    return [looks[name].label for name in values]


def _paint(
    figure: Figure,
    values: Mapping[str, Floats],
    looks: Mapping[str, Series],
    labels: Sequence[str],
    what: str,
    note: str,
) -> None:
    axes = figure.add_subplot()
    lines = np.arange(len(labels))
    # Runs that score the same would hide one another on one line.
    shifts = np.linspace(-0.3, 0.3, len(values)) if len(values) > 1 else [0.0]
    size = 4.0 if len(values) < 8 else 3.2
    for shift, (name, value) in zip(shifts, values.items(), strict=True):
        look = looks[name]
        axes.plot(value, lines + shift, look.marker, color=look.shade, markersize=size, mew=0)
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
        axes.set_title(note, loc="left", fontsize=FONT_SIZE - 1, color=colour("muted"))
    handles = [looks[name].handle() for name in values]
    for handle in handles:
        handle.set_linestyle("")
    add_legend(figure, handles, _labels(looks, values))
