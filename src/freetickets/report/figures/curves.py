"""Curves over the size of an ensemble, and over sparsity: together, alone, and how different."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..colours import colour
from .drawing import draw
from .legend import add_legend, legend_height
from .scores import ACCURACY, NLL, write_percent
from .series import Series, series
from .thinning import finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_KINDS = ("ensemble", "members' mean")


@dataclass(frozen=True)
class SizeCurve:
    """A run's first m members, for several m.

    Attributes:
        sizes: How many members.
        ensemble_accuracy: Of this many together.
        member_accuracy: Their mean, alone.
        ensemble_nll: Of this many together.
        kl: The mean divergence of this many; NaN where there is one only.
    """

    sizes: ArrayLike
    ensemble_accuracy: ArrayLike
    member_accuracy: ArrayLike
    ensemble_nll: ArrayLike
    kl: ArrayLike | None = None


@dataclass(frozen=True)
class SparsityCurve:
    """Runs of one method that differ in sparsity.

    Attributes:
        sparsities: Of each run.
        ensemble_accuracy: Of each run.
        member_accuracy: The mean of each run's members.
        kl: The mean divergence of each run's members.
    """

    sparsities: ArrayLike
    ensemble_accuracy: ArrayLike
    member_accuracy: ArrayLike
    kl: ArrayLike | None = None


@dataclass(frozen=True)
class _Line:
    """One run's curves over one axis."""

    look: Series
    x: ArrayLike
    ensemble: ArrayLike
    members: ArrayLike | None
    kl: ArrayLike | None


def size_curves(curves: Mapping[str, SizeCurve], runs: Sequence[str] = ()) -> list[str]:
    """Two panels over the size of the ensemble: accuracy with the divergence below, and NLL.

    Args:
        curves: Of each run.
        runs: All runs of the page, so that each has its colour.
    """
    if not curves:
        return []
    looks = series(curves, runs)
    accuracy = [
        _Line(looks[name], it.sizes, it.ensemble_accuracy, it.member_accuracy, it.kl)
        for name, it in curves.items()
    ]
    nll = [_Line(looks[name], it.sizes, it.ensemble_nll, None, None) for name, it in curves.items()]
    return [
        _panel("size-accuracy", "members", accuracy, ACCURACY.label, _whole),
        _panel("size-nll", "members", nll, NLL.label, _whole),
    ]


def sparsity_curves(curves: Mapping[str, SparsityCurve], runs: Sequence[str] = ()) -> list[str]:
    """One panel over sparsity: accuracy, with the divergence of the members below.

    Args:
        curves: Of each method.
        runs: All methods of the page, so that each has its colour.
    """
    if not curves:
        return []
    looks = series(curves, runs)
    lines = [
        _Line(looks[name], it.sparsities, it.ensemble_accuracy, it.member_accuracy, it.kl)
        for name, it in curves.items()
    ]
    return [_panel("sparsity", "sparsity", lines, ACCURACY.label, write_percent)]


def _whole(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=10))


def _panel(
    name: str,
    over: str,
    lines: Sequence[_Line],
    quality: str,
    format_axis: Callable[[Axis], None],
) -> str:
    labels = [line.look.label for line in lines]
    has_members = any(line.members is not None for line in lines)
    has_kl = any(line.kl is not None and np.isfinite(finite(line.kl)).any() for line in lines)
    return draw(
        name,
        f"{quality.split(' (')[0]} by {over}, of {', '.join(labels)}",
        (3.5 if has_kl else 2.9) + legend_height([*labels, *(_KINDS if has_members else ())]),
        partial(
            _paint,
            lines=lines,
            over=over,
            quality=quality,
            format_axis=format_axis,
            has_members=has_members,
            has_kl=has_kl,
        ),
    )


def _paint(
    figure: Figure,
    lines: Sequence[_Line],
    over: str,
    quality: str,
    format_axis: Callable[[Axis], None],
    has_members: bool,
    has_kl: bool,
) -> None:
    from matplotlib.lines import Line2D

    panels = figure.subplots(
        1 + has_kl, sharex=True, squeeze=False, height_ratios=[3, 1][: 1 + has_kl]
    )[:, 0]
    main = panels[0]
    for line in lines:
        _plot(main, line, line.ensemble, linewidth=1.6)
        if line.members is not None:
            hollow = {"markerfacecolor": colour("page"), "linestyle": (0, (3, 2))}
            _plot(main, line, line.members, linewidth=1, **hollow)
        if has_kl and line.kl is not None:
            _plot(panels[1], line, line.kl, linewidth=1.3)
    main.set_ylabel(quality)
    if quality == ACCURACY.label:
        write_percent(main.yaxis)
    if has_kl:
        panels[1].set_ylabel("KL")
        panels[1].margins(y=0.15)
        panels[1].locator_params(axis="y", nbins=3)
    panels[-1].set_xlabel(over)
    format_axis(panels[-1].xaxis)
    figure.align_ylabels()
    handles = [line.look.handle() for line in lines]
    labels = [line.look.label for line in lines]
    if has_members:
        grey = colour("muted")
        handles += [
            Line2D([], [], color=grey, linewidth=1.6),
            Line2D([], [], color=grey, linewidth=1, linestyle=(0, (3, 2))),
        ]
        labels += _KINDS
    add_legend(figure, handles, labels)


def _plot(axes: Axes, line: _Line, values: ArrayLike, **style: object) -> None:
    """One curve, from left to right."""
    x, y = finite(line.x), finite(values)
    order = np.argsort(x, kind="stable")
    options: dict[str, object] = {"marker": line.look.marker, "markersize": 4.5, **style}
    axes.plot(x[order], y[order], color=line.look.shade, **options)  # type: ignore[arg-type]
