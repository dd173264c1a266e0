"""The page of results: measured beside the paper, as Markdown and as one self-contained HTML."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ..report.page import Page
from ..report.parts import Figure, Folded, Part, Section
from ..storage import write_atomic
from .chapters import READING, RULE, Chapter, Line, Summary, gather
from .experiment import Experiment
from .gallery import standalone
from .markdown import image_path, results_markdown
from .results import Results, write_csv


def write(
    experiments: Sequence[Experiment],
    results: Results,
    folder: str | Path,
    comments: Mapping[str, str] | None = None,
    figures: Collection[str] | None = None,
) -> list[Path]:
    """Writes `results.md` with `images/`, `results.html` and `cells.csv`.

    Args:
        experiments: What is shown, in this order.
        results: What was measured; figures are drawn where the folders of its runs are there.
        folder: Where to write.
        comments: What is to be said besides, by the name of the experiment; "" for the whole.
        figures: Which figures are drawn, keys of `PARTS`; None for all that the tables have.

    Returns:
        The files that were written.

    Raises:
        MissingExtraError: Figures can't be drawn, for matplotlib is not installed.
    """
    folder = Path(folder)
    summary = gather(experiments, results, comments or {}, figures)
    images = {
        image_path(section.body): standalone(section.body.panels)
        for chapter in summary.chapters
        for section in chapter.figures
        if isinstance(section.body, Figure)
    }
    texts = {
        "results.md": results_markdown(summary),
        "results.html": _page(summary).html(),
        **images,
    }
    for name, text in texts.items():
        write_atomic(folder / name, text.encode())
    return [*(folder / name for name in texts), write_csv(results, folder)]


@dataclass(frozen=True)
class _Stack:
    """Parts below one another."""

    parts: Sequence[Part]

    def html(self) -> str:
        return "\n".join(part.html() for part in self.parts)


@dataclass(frozen=True)
class _Paragraph:
    """A text; nothing where there is none."""

    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>" if self.text else ""


@dataclass(frozen=True)
class _Command:
    """What makes a table."""

    text: str

    def html(self) -> str:
        return f"<p><code>{escape(self.text)}</code></p>"


@dataclass(frozen=True)
class _List:
    """Lines, some with lines of their own."""

    lines: Sequence[Line]

    def html(self) -> str:
        return f"<ul>{''.join(map(self._item, self.lines))}</ul>" if self.lines else ""

    def _item(self, line: Line) -> str:
        bold = f"<strong>{escape(line.bold)}</strong> " if line.bold else ""
        return f"<li>{bold}{escape(line.text)}{_List(line.below).html()}</li>"


def _page(summary: Summary) -> Page:
    sections = [
        Section(
            "What stood for the paper's data and networks",
            "Each cell is one training of a table, shared by all tables that have it; runs are "
            "cells times seeds.",
            _Stack([_Paragraph(summary.comment), summary.stands, _List(summary.notes)]),
            "stands",
            "Summary",
        ),
        Section(
            "Verdicts on the paper's claims",
            RULE,
            _Stack([_Paragraph(summary.tally), summary.verdicts]),
            "verdicts",
            "Summary",
        ),
    ]
    for chapter in summary.chapters:
        sections += [_section(chapter), *chapter.figures]
    return Page(summary.title, summary.lead, sections)


def _section(chapter: Chapter) -> Section:
    parts: list[Part] = [_Command(chapter.command), _Paragraph(chapter.comment), chapter.table]
    parts += [Folded(chapter.tally, _List(chapter.claims))] if chapter.verdicts else []
    parts += [Folded("Notes", _List(chapter.notes))] if chapter.notes else []
    kind = "Figures" if chapter.experiment.paper.startswith("Figure") else "Tables"
    key = f"result-{chapter.experiment.name}"
    return Section(chapter.title, READING, _Stack(parts), key, kind)
