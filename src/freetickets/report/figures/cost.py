"""Cost against quality: what each run took to train, and how good it became."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...metrics.score import Score
from ..colours import colour, series_colour
from ..run import RunSummary
from .axes import DASHED, add_legend, write_score
from .drawing import FONT_SIZE, draw, shorten_all
from .labels import Box, name_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NAMED = 6  # more runs are numbered, and named in the legend


@dataclass(frozen=True)
class _Mark:
    """What is drawn of a run.

    Attributes:
        name: What the legend calls it.
        label: What stands beside it: its name, or among many its number.
        shade: Its colour.
        cost: Of its training, in dense models.
        mean: The score of its members.
        ensemble: The score of all together.
    """

    name: str
    label: str
    shade: str
    cost: float
    mean: float
    ensemble: float


def cost_against_quality(runs: Sequence[RunSummary]) -> list[str]:
    """One panel a score: training FLOPs across, the ensemble and its members' mean upwards.

    A line, the Pareto front, joins the ensembles that no other beats in cost and score.
    """
    return [
        _panel(_marks(runs, score), score, len(runs)) for score in runs[0].results.task.scores[:2]
    ]


def _marks(runs: Sequence[RunSummary], score: Score) -> list[_Mark]:
    numbered = len(runs) > _MOST_NAMED
    names = shorten_all([run.name for run in runs], 20 if numbered else 24)
    return [
        _Mark(
            names[number],
            str(number + 1) if numbered else names[number],
            series_colour(number),
            run.ledger.relative_flops,
            run.results.member_mean[score.key],
            run.results.ensemble[score.key],
        )
        for number, run in enumerate(runs)
        if math.isfinite(run.results.ensemble[score.key])
    ]


def _panel(marks: Sequence[_Mark], score: Score, runs: int) -> str:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for mark in marks:
            at: dict[str, Any] = {"color": mark.shade}
            # Of a single network the two are one, and the diamond covers the rest.
            axes.plot([mark.cost] * 2, [mark.mean, mark.ensemble], linewidth=1.2, **at)
            hollow = at | {"markersize": 5, "markerfacecolor": colour("page")}
            axes.plot(mark.cost, mark.mean, "o", **hollow)
            axes.plot(mark.cost, mark.ensemble, "D", markersize=6, **at)
        right = 1.12 * max([1.0, *(mark.cost for mark in marks)])
        axes.set_xlim(0, right)
        axes.margins(y=0.14)
        front = _draw_front(axes, marks, score, right)
        axes.axvline(1, color=colour("muted"), linewidth=0.8, linestyle=DASHED, zorder=1)
        axes.set_xlabel("training FLOPs, × one dense model")
        write_score(axes.yaxis, score)
        _add_legend(figure, marks)
        points = [(mark.cost, mark.ensemble) for mark in marks]
        labels = [mark.label for mark in marks]
        line = 1.3 * FONT_SIZE
        name_points(
            figure,
            axes,
            points,
            labels,
            FONT_SIZE,
            line,
            lambda: _covered(axes, marks, front),
            True,
        )

    what = f"{score.name} against training FLOPs of {runs} runs"
    return draw(f"cost-{score.key}", what, 3.3, paint)


def pareto_front(costs: Sequence[float], scores: Sequence[float], rising: bool = True) -> list[int]:
    """The numbers of those that none beats: none costs no more and scores better, or the reverse.

    Args:
        costs: Of each; lower is better.
        scores: Of each; NaN is on no front.
        rising: Whether higher scores are better.

    Returns:
        By rising cost.

    Example:
        >>> pareto_front([1, 2, 3, 3], [0.5, 0.4, 0.6, 0.7])
        [0, 3]
    """
    sign = -1 if rising else 1
    known = [number for number, score in enumerate(scores) if math.isfinite(score)]
    front: list[int] = []
    for number in sorted(known, key=lambda it: (costs[it], sign * scores[it])):
        if not front or sign * scores[number] < sign * scores[front[-1]]:
            front.append(number)
    return front


def _draw_front(
    axes: Axes, marks: Sequence[_Mark], score: Score, right: float
) -> list[tuple[float, float, float]]:
    """A line in steps, from each ensemble of the front to the next that is better.

    Returns:
        From where to where each step goes, and its height.
    """
    costs, scores = [mark.cost for mark in marks], [mark.ensemble for mark in marks]
    front = pareto_front(costs, scores, score.higher_is_better)
    if len(marks) < 2:
        return []
    ends = [*(costs[number] for number in front), right]
    heights = [scores[number] for number in front]
    axes.step(
        ends,
        [*heights, heights[-1]],
        where="post",
        color=colour("muted"),
        linewidth=3,
        alpha=0.3,
        solid_capstyle="butt",
        zorder=1,
    )
    return list(zip(ends[:-1], ends[1:], heights, strict=True))


def _add_legend(figure: Figure, marks: Sequence[_Mark]) -> None:
    """What each kind of mark and line means, and which run has which number."""
    from matplotlib.lines import Line2D

    grey = colour("muted")
    diamond = {"ls": "", "marker": "D", "markersize": 5}
    hollow = {"ls": "", "marker": "o", "markersize": 5, "markerfacecolor": "none"}
    entries: list[tuple[dict[str, Any], str]] = [
        ({"color": mark.shade, **diamond}, f"{mark.label} {mark.name}")
        for mark in marks
        if mark.label != mark.name
    ]
    entries += [
        ({"color": grey, **diamond}, "ensemble"),
        ({"color": grey, **hollow}, "member mean"),
    ]
    if len(marks) > 1:
        entries.append(({"color": grey, "linewidth": 3, "alpha": 0.3}, "Pareto front"))
    entries.append(({"color": grey, "linewidth": 0.8, "linestyle": DASHED}, "one dense model"))
    add_legend(figure, [(Line2D([], [], **style), label) for style, label in entries])


def _covered(
    axes: Axes, marks: Sequence[_Mark], front: Sequence[tuple[float, float, float]]
) -> list[Box]:
    """What the marks and the front cover."""
    covered = []
    for mark in marks:
        x, y = axes.transData.transform((mark.cost, mark.ensemble))
        _, other = axes.transData.transform((mark.cost, mark.mean))
        if not math.isfinite(other):
            other = y
        covered += [
            Box.around(x, y, y, reach=5),
            Box.around(x, other, other, reach=3),
            Box.around(x, min(y, other), max(y, other), reach=1),
        ]
    for left, right, height in front:
        (x, y), (end, _) = axes.transData.transform([(left, height), (right, height)])
        covered.append(Box(x, y - 2, end, y + 2))
    return covered
