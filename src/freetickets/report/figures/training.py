"""Training curves: loss and score epoch by epoch, with the phases and events of the plan."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import FreeTicketsError
from ...methods import Timeline
from ...training.state import LogRow
from ..run import RunSummary
from . import drawing as draw
from .drawing import colour


class PhaseSpan(NamedTuple):
    """A phase along the axis of epochs, on which training runs follow one another."""

    label: str
    start: float
    end: float
    rows: tuple[LogRow, ...]
    epochs: tuple[float, ...]


def phase_spans(log: Sequence[LogRow]) -> list[PhaseSpan]:
    """Lays the phases of a log one after the other; several runs are told by their numbers."""
    several = len({row.run for row in log}) > 1
    spans: list[PhaseSpan] = []
    for number, run in itertools.groupby(log, key=lambda row: row.run):
        origin = spans[-1].end if spans else 0.0
        phases = [list(rows) for _, rows in itertools.groupby(run, key=lambda row: row.phase)]
        for rows in phases:
            name = rows[0].phase
            if several:
                name = f"run {number}" if len(phases) == 1 else f"{number}: {name}"
            epochs = tuple(origin + row.epoch for row in rows)
            start = spans[-1].end if spans else 0.0
            spans.append(PhaseSpan(name, start, epochs[-1], tuple(rows), epochs))
    return spans


def training_curves(run: RunSummary, number: int = 0) -> list[str]:
    """Two panels: loss with the learning rate below, the score with the explored share below."""
    panels: list[str] = []
    spans, score, grey = phase_spans(run.log), run.results.task.running, colour("muted")
    length = f"over {spans[-1].end:g} epochs of {run.name}"
    what = f"Loss and learning rate {length}"
    with draw.panel(panels, f"training-{number}-loss", what, 3.6, (4, 1)) as (figure, main, small):
        _plot_scores(figure, main, spans, "train_loss", "validation_loss")
        main.set_ylabel("loss")
        if rates := learning_rates(run):
            small.plot(*zip(*rates, strict=True), color=grey, linewidth=1)
            small.set_ylim(bottom=0)
        else:
            lrs = [row.lr for row in run.log]
            epochs = [0.0, *(epoch for span in spans for epoch in span.epochs)]
            # A row says what its epoch was trained with.
            small.step(epochs, [lrs[0], *lrs], where="pre", color=grey, linewidth=1)
            if min(lrs) > 0 and max(lrs) >= 10 * min(lrs):
                draw.powers(small)
        small.set_ylabel("lr")
        small.margins(y=0.15)
        _shade([main, small], spans)
    explored = any(row.itop_rate is not None for row in run.log)
    shown = score.title[:1].upper() + score.title[1:]
    what = f"{shown} {'and share of explored weights ' if explored else ''}{length}"
    panel = draw.panel(panels, f"training-{number}-{score.key}", what, 3.6, (4, 1)[: 1 + explored])
    with panel as (figure, main, *rest):
        _plot_scores(figure, main, spans, "train_score", "validation_score")
        main.set_ylabel(score.title)
        if score.is_share:
            draw.percent(main.yaxis)
        for small in rest:
            _plot_line(small, spans, "itop_rate", color=colour("green"), linewidth=1.2)
            small.set(ylabel="explored", ylim=(0, 1.05))
            draw.percent(small.yaxis)
        _shade([main, *rest], spans)
    return panels


def learning_rates(run: RunSummary) -> list[tuple[float, float]]:
    """The learning rate as the plan has it; empty where the log is enough, or of another plan."""
    try:
        plan = run.config.make_method().plan(run.config.setting())
    except FreeTicketsError:
        return []
    phases = [phase for each in plan.runs for phase in each.phases]
    if all(stretch.shape == "constant" for phase in phases for stretch in phase.schedule):
        return []
    curve: list[tuple[float, float]] = []
    for number, rows in itertools.groupby(run.log, key=lambda row: row.run):
        *_, last = told = list(rows)
        steps_per_epoch = round(last.step / last.epoch)
        if number > len(plan.runs) or steps_per_epoch < 1:
            return []
        timeline = Timeline(plan.runs[number - 1], steps_per_epoch)
        if timeline.steps != last.step or not all(
            math.isclose(timeline.lr(row.step), row.lr, rel_tol=1e-6) for row in told
        ):
            return []
        origin = curve[-1][0] if curve else 0.0
        for start, end in itertools.pairwise([0, *timeline.stretch_ends]):
            stride = max(1, (end - start) // 24)  # a cosine looks round
            for step in (*range(start + 1, end, stride), end):
                curve.append((origin + (step - 1) / steps_per_epoch, timeline.lr(step)))
        curve.append((origin + last.epoch, last.lr))
    return curve


def _value(row: LogRow, key: str) -> float:
    value = getattr(row, key)
    return math.nan if value is None else value


def _plot_scores(
    figure: draw.Figure, axes: draw.Axes, spans: Sequence[PhaseSpan], train: str, validation: str
) -> None:
    """Both curves, the tickets, and a legend above, for the curves fill every corner."""
    _plot_line(axes, spans, train, color=colour("ochre"), linewidth=1, label="training")
    measured = any(getattr(row, validation) is not None for span in spans for row in span.rows)
    if measured:
        _plot_line(axes, spans, validation, color=colour("blue"), linewidth=1.6, label="validation")
    pairs = [pair for span in spans for pair in zip(span.epochs, span.rows, strict=True)]
    shown = validation if measured else train
    tickets = [(epoch, _value(row, shown)) for epoch, row in pairs if row.has("collect")]
    style: draw.Style = {"color": colour("blue"), "markeredgecolor": colour("page")}
    style |= {"markersize": 6, "clip_on": False, "zorder": 3}
    axes.plot([it[0] for it in tickets], [it[1] for it in tickets], "D", label="ticket", **style)
    style = {"color": colour("vermillion"), "linewidth": 1.1, "linestyle": (0, (3, 2))}
    escapes = [span.end for span in spans if span.rows[-1].has("escape")]
    for number, epoch in enumerate(escapes):
        axes.axvline(epoch, label="escape" if number == 0 else None, **style)
    handles, _ = axes.get_legend_handles_labels()
    style = {"borderaxespad": 0, "handlelength": 1.6, "handletextpad": 0.5, "columnspacing": 1.4}
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), **style)


def _plot_line(axes: draw.Axes, spans: Sequence[PhaseSpan], key: str, **style: Any) -> None:
    """One curve, broken where another network begins."""
    epochs: list[float] = []
    values: list[float] = []
    for before, span in zip([spans[0], *spans], spans, strict=False):
        if before.rows[0].run != span.rows[0].run:
            epochs.append(span.start)
            values.append(math.nan)
        epochs += span.epochs
        values += [_value(row, key) for row in span.rows]
    axes.plot(epochs, values, **style)


def _shade(panels: Sequence[draw.Axes], spans: Sequence[PhaseSpan]) -> None:
    length = spans[-1].end
    for axes in panels:
        axes.set_xlim(0, length)
        axes.grid(visible=False, axis="x")
        for span in spans[1::2]:
            axes.axvspan(span.start, span.end, color=colour("band"), linewidth=0, zorder=-1)
    panels[-1].set_xlabel("epoch")
    panels[-1].locator_params(axis="x", integer=True)
    points = 0.84 * draw.WIDTH * 72 / length
    fits = all(
        draw.text_width(span.label, draw.SMALL) < points * (span.end - span.start) for span in spans
    )
    # Upright names need their height only; of phases still shorter, some go without.
    shortest = points * min(span.end - span.start for span in spans)
    every = 1 if fits else math.ceil(1.2 * draw.SMALL / shortest)
    style: draw.Style = {"rotation": 0 if fits else 90, "ha": "center", "va": "bottom"}
    style |= {"color": colour("muted"), "fontsize": draw.SMALL}
    for span in spans[::every]:
        middle, above = (span.start + span.end) / 2, panels[0].get_xaxis_transform()
        panels[0].text(middle, 1.02, span.label, transform=above, **style)
