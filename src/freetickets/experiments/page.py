"""The page of results: measured beside the paper, as Markdown and as one self-contained HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from .. import __version__
from ..report.export import as_markdown
from ..report.page import Page
from ..report.parts import Figure, Part, Section, Table
from ..storage import write_atomic
from .claims import Verdict, judge
from .experiment import Experiment
from .gallery import Gallery, standalone
from .results import Results, write_csv
from .tables import footnotes, measured_table, stand_notes, stands_table, verdict_table

_READING = (
    "Mean ± standard deviation over seeds; in brackets the paper's number. Accuracies are in per "
    "cent; FLOPs are multiples of one dense training, or of one dense network's prediction."
)
_RULE = (
    "A claim is supported where every difference that it speaks of is more than two standard "
    "errors on its side, contradicted where any is as far on the other, and undecided within "
    "noise. Errors are of differences over shared seeds; with one seed, over test samples, which "
    'does not show what another training would give. "As good" and "differ little" allow half a '
    "point of accuracy and 0.02 of NLL. Of few seeds this is weak evidence: where nothing differs, "
    "chance takes a difference beyond two standard errors in 18 % of cases with three seeds and in "
    "30 % with two, and a claim with many differences is easily contradicted by one of them."
)


@dataclass(frozen=True)
class _Chapter:
    """All that the page says of one table or figure of the paper."""

    experiment: Experiment
    table: Table
    notes: Sequence[str]
    verdicts: Sequence[Verdict]
    figures: Sequence[Section]
    comment: str

    @property
    def title(self) -> str:
        return f"{self.experiment.paper}: {self.experiment.title}"


def write(
    experiments: Sequence[Experiment],
    results: Results,
    folder: str | Path,
    comments: Mapping[str, str] | None = None,
) -> list[Path]:
    """Writes `results.md` with `images/`, `results.html` and `cells.csv`.

    Args:
        experiments: What is shown, in this order.
        results: What was measured; figures are drawn where the folders of its runs are there.
        folder: Where to write.
        comments: What is to be said besides, by the name of the experiment; "" for the whole.

    Returns:
        The files that were written.

    Raises:
        MissingExtraError: Figures can't be drawn, for matplotlib is not installed.
    """
    folder = Path(folder)
    told = comments or {}
    gallery = Gallery(results)
    chapters = [
        _Chapter(
            experiment,
            measured_table(experiment, results),
            footnotes(experiment),
            judge(experiment, results),
            gallery.sections(experiment),
            told.get(experiment.name, ""),
        )
        for experiment in experiments
    ]
    summary = _Summary(experiments, results, chapters, told.get("", ""))
    images = {
        f"images/{figure.name}-{number}.svg": standalone(panel)
        for chapter in chapters
        for section in chapter.figures
        if isinstance(figure := section.body, Figure)
        for number, panel in enumerate(figure.panels, start=1)
    }
    texts = {"results.md": _markdown(summary), "results.html": _page(summary).html(), **images}
    for name, text in texts.items():
        write_atomic(folder / name, text.encode())
    return [*(folder / name for name in texts), write_csv(results, folder)]


@dataclass(frozen=True)
class _Summary:
    """What stands at the top of the page, and what follows."""

    experiments: Sequence[Experiment]
    results: Results
    chapters: Sequence[_Chapter]
    comment: str

    @property
    def title(self) -> str:
        scales = sorted({str(each.get("scale")) for each in self.results.records.values()})
        return f"The paper's tables, measured at the scale {' and '.join(scales) or 'none'}"

    @property
    def lead(self) -> str:
        seconds = [each.get("seconds", {}) for each in self.results.records.values()]
        training, evaluation = (
            math.fsum(each.get(part, 0.0) for each in seconds) / 3600
            for part in ("training", "evaluation")
        )
        return (
            f"{len(seconds)} runs in {training + evaluation:.2f} hours of machine time "
            f"({training:.2f} of training, {evaluation:.2f} of evaluation). Made by FreeTickets "
            f"{__version__}."
        )

    @property
    def stands(self) -> Table:
        return stands_table(self.experiments, self.results)

    @property
    def verdicts(self) -> Table:
        return verdict_table(
            (chapter.experiment, verdict)
            for chapter in self.chapters
            for verdict in chapter.verdicts
        )

    def command(self, experiment: Experiment) -> str:
        scales = {str(each.get("scale")) for each in self.results.records.values()}
        scale = f" --scale {scales.pop()}" if len(scales) == 1 else ""
        return f"freetickets reproduce {experiment.name}{scale}"


@dataclass(frozen=True)
class _Stack:
    """Parts below one another."""

    parts: Sequence[Part]

    def html(self) -> str:
        return "\n".join(part.html() for part in self.parts)


@dataclass(frozen=True)
class _Paragraph:
    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class _List:
    """Lines, some with lines of their own."""

    items: Sequence[tuple[str, Sequence[str]]]

    def html(self) -> str:
        return f"<ul>{''.join(self._item(text, lines) for text, lines in self.items)}</ul>"

    def _item(self, text: str, lines: Sequence[str]) -> str:
        inner = _List([(line, ()) for line in lines]).html() if lines else ""
        return f"<li>{escape(text)}{inner}</li>"


def _verdict_items(chapter: _Chapter) -> list[tuple[str, list[str]]]:
    return [
        (
            f"{verdict.outcome}: {verdict.statement} ({verdict.dataset})",
            [f"{finding.text}: {finding.outcome}" for finding in verdict.findings],
        )
        for verdict in chapter.verdicts
    ]


def _page(summary: _Summary) -> Page:
    top: list[Part] = [_Paragraph(summary.comment)] if summary.comment else []
    top.append(summary.stands)
    notes = stand_notes(summary.results)
    top += [_List([(note, ()) for note in notes])] if notes else []
    sections = [
        Section(
            "What stood for the paper's data and networks",
            "Each cell is one training of a table, shared by all tables that have it; runs are "
            "cells times seeds.",
            _Stack(top),
            "stands",
            "Summary",
        ),
        Section("Verdicts on the paper's claims", _RULE, summary.verdicts, "verdicts", "Summary"),
    ]
    for chapter in summary.chapters:
        parts: list[Part] = [_Paragraph(chapter.comment)] if chapter.comment else []
        parts.append(chapter.table)
        if chapter.verdicts:
            parts.append(_List(_verdict_items(chapter)))
        if chapter.notes:
            parts.append(_List([(note, ()) for note in chapter.notes]))
        kind = "Figures" if chapter.experiment.paper.startswith("Figure") else "Tables"
        caption = f"{_READING} Made by '{summary.command(chapter.experiment)}'."
        key = f"result-{chapter.experiment.name}"
        sections.append(Section(chapter.title, caption, _Stack(parts), key, kind))
        sections += chapter.figures
    return Page(summary.title, summary.lead, sections)


def _markdown(summary: _Summary) -> str:
    blocks = [f"# {summary.title}", _text(summary.lead)]
    blocks += [_text(summary.comment)] if summary.comment else []
    blocks += ["## What stood for the paper's data and networks", as_markdown(summary.stands)]
    notes = stand_notes(summary.results)
    blocks += ["\n".join(f"- {_text(note)}" for note in notes)] if notes else []
    blocks += ["## Verdicts on the paper's claims", _text(_RULE), as_markdown(summary.verdicts)]
    for chapter in summary.chapters:
        blocks += [f"## {_text(chapter.title)}", f"`{summary.command(chapter.experiment)}`"]
        blocks += [_text(chapter.comment)] if chapter.comment else []
        blocks += [as_markdown(chapter.table), _text(_READING)]
        lines = [_text(note) for note in chapter.notes]
        blocks += ["\n".join(f"- {line}" for line in lines)] if lines else []
        if chapter.verdicts:
            blocks += ["**Claims**", "\n".join(_verdict_lines(chapter))]
        blocks += [block for section in chapter.figures for block in _figure_blocks(section)]
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _verdict_lines(chapter: _Chapter) -> list[str]:
    lines = []
    for text, findings in _verdict_items(chapter):
        outcome, _, claim = text.partition(": ")
        lines.append(f"- **{outcome}**: {_text(claim)}")
        lines += [f"  - {_text(finding)}" for finding in findings]
    return lines


def _figure_blocks(section: Section) -> list[str]:
    figure = section.body
    if not isinstance(figure, Figure):
        return []
    title = _text(section.title)
    images = [
        f"![{title}, panel {number}](images/{figure.name}-{number}.svg)"
        for number in range(1, len(figure.panels) + 1)
    ]
    return [f"### {title}", "\n".join(images), f"*{_text(section.caption)}*"]


def _text(text: str) -> str:
    """A text that Markdown shows as it is."""
    for sign in "\\*_<`[~$":
        text = text.replace(sign, f"\\{sign}")
    return text
