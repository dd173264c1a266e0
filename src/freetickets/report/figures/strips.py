"""One line a run: what its members and its ensemble score, and what is left under attack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...metrics.score import Score
from ..colours import colour, series_colour
from ..run import RunSummary
from .axes import add_legend, series, write_above, write_percent, write_score
from .drawing import draw, shorten, shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ...evaluation.results import Attack


def members_and_ensembles(runs: Sequence[RunSummary]) -> list[str]:
    """A panel for each of the first two scores: the members of a run, their mean, the ensemble."""

    def panel(score: Score) -> str:
        what = f"{score.name} of the members and the ensemble of {len(runs)} runs"
        height = 1.0 + 0.5 * len(runs)
        return draw(f"members-{score.key}", what, height, lambda figure: _paint(figure, score))

    def _paint(figure: Figure, score: Score) -> None:
        axes = figure.add_subplot()
        labels = shorten_all([run.name for run in runs])
        for line, (run, label) in enumerate(zip(runs, labels, strict=True)):
            axes.axhline(line, color=colour("line"), linewidth=0.6, zorder=0)
            texts = filter(None, [label, shorten(run.description, 28)])
            write_above(axes, line - 0.3, " · ".join(texts))
            marks: list[tuple[list[Mapping[str, float]], str, dict[str, Any]]] = [
                (list(run.results.members), "o", {"markersize": 6, "markerfacecolor": "none"}),
                ([run.results.member_mean], "|", {"markersize": 14, "markeredgewidth": 1.6}),
                ([run.results.ensemble], "D", {"markersize": 6}),
            ]
            for found, marker, style in marks if len(run.results.members) > 1 else marks[-1:]:
                values = [it[score.key] for it in found if math.isfinite(it[score.key])]
                axes.plot(values, [line] * len(values), marker, color=series_colour(line), **style)
        _line_up(axes, len(runs))
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=6)
        write_score(axes.xaxis, score)
        _name_marks(axes)

    return [panel(score) for score in runs[0].results.task.scores[:2]]


def _line_up(axes: Axes, lines: int) -> None:
    axes.set_ylim(lines - 0.5, -0.65)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _name_marks(axes: Axes) -> None:
    from matplotlib.lines import Line2D

    grey = colour("muted")
    axes.legend(
        handles=[
            Line2D([], [], ls="", marker="o", color=grey, markerfacecolor="none", label="member"),
            Line2D([], [], ls="", marker="|", color=grey, markersize=10, label="member mean"),
            Line2D([], [], ls="", marker="D", color=grey, markersize=5, label="ensemble"),
        ],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        borderaxespad=0,
        handletextpad=0.2,
        columnspacing=1.2,
    )


def attack_bars(attacks: Mapping[str, Attack], what: str, runs: Sequence[str] = ()) -> list[str]:
    """One panel: the accuracy of each run, clean, and under attacks with their range.

    Args:
        attacks: Of each run.
        what: The attack.
        runs: All runs of the page, so that each has its colour.
    """
    looks = series(attacks, runs)

    def paint(figure: Figure) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        axes = figure.add_subplot()
        for line, (name, it) in enumerate(attacks.items()):
            look = looks[name]
            clean, mean, low, high = map(_percent, (it.clean, it.mean, it.min, it.max))
            write_above(axes, line - 0.34, f"{look.label}  {clean}% → {mean}% ({low}–{high})")
            if math.isfinite(it.clean):
                axes.barh(line + 0.1, it.clean, 0.44, color=(look.shade, 0.25), linewidth=0)
            if math.isfinite(it.mean):
                axes.barh(line + 0.1, it.mean, 0.26, color=look.shade, linewidth=0)
            if math.isfinite(it.min) and math.isfinite(it.max):
                ends = [it.min, it.max]
                axes.plot(ends, [line + 0.1] * 2, "|-", color=colour("text"), markersize=7, lw=1.2)
        _line_up(axes, len(attacks))
        axes.set_xlim(0, 1.02)
        axes.set_xlabel(f"accuracy under {what}")
        write_percent(axes.xaxis)
        range_of = Line2D([], [], color=colour("text"), marker="|", markersize=7, linewidth=1.2)
        entries = [
            (Patch(facecolor=(colour("muted"), 0.3), linewidth=0), "clean"),
            (Patch(facecolor=colour("muted"), linewidth=0), "attacked: mean"),
            (range_of, "least and most"),
        ]
        add_legend(figure, entries)

    title = f"Accuracy of {len(attacks)} runs, clean and under {what}"
    return [draw("attacks", title, 0.55 + 0.5 * len(attacks), paint)] if attacks else []


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if math.isfinite(value) else "?"
