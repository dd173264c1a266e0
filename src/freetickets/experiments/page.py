"""The page of results: measured beside the paper, as Markdown and as one self-contained HTML.

Both are made of the same sections; what they show is computed and drawn once, by `make_page`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from .. import __version__
from ..report.export import as_markdown
from ..report.page import Page
from ..report.parts import Figure, Folded, Part, Section, Table
from ..storage import write_atomic
from . import tables
from .claims import Verdict, judge
from .evidence import marked, tally
from .experiment import Experiment
from .figures import Gallery, standalone
from .results import Results, as_csv
from .scales import SCALES

CELLS = (
    "Each cell is one training of a table, shared by all tables that have it; runs are cells times "
    "seeds."
)
READING = (
    "Mean ± standard deviation over seeds; in brackets the paper's number. Accuracies are in per "
    "cent; FLOPs are multiples of one dense training, or of one dense network's prediction."
)
RULE = (
    "A claim is supported where every difference that it speaks of is more than two standard "
    "errors on its side, contradicted where any is as far on the other, and undecided within "
    "noise. Differences are of the first named minus the second, so a lower NLL is below 0; costs "
    "are ratios. Errors are over shared seeds; with one seed, over test samples, which does not "
    'show what another training would give. "As good" and "differ little" allow half a point of '
    "accuracy and 0.02 of NLL. Of few seeds this is weak evidence: where nothing differs, chance "
    "takes a difference beyond two standard errors in 18 % of cases with three seeds and in 30 % "
    "with two, and a claim with many differences is easily contradicted by one of them."
)


def write(
    experiments: Sequence[Experiment],
    results: Results,
    folder: str | Path,
    comments: Mapping[str, str] | None = None,
    figures: Collection[str] | None = None,
) -> list[Path]:
    """Writes `results.md` with `images/`, `results.html` and `cells.csv`.

    Figures are drawn where the runs' folders are there: those of `figures`, keys of `PARTS`, or all
    that the tables have. `comments` are said besides, by experiment; "" for the whole.
    """
    page = make_page(experiments, results, comments or {}, figures)
    texts = {"results.md": markdown(page), "results.html": page.html()}
    for section in page.sections:
        if isinstance(section.body, Figure):
            texts[_image_path(section.body)] = standalone(section.body.panels)
    texts["cells.csv"] = as_csv(results)
    for name, text in texts.items():
        write_atomic(Path(folder) / name, text.encode())
    return [Path(folder) / name for name in texts]


# --- parts that only this page has


@dataclass(frozen=True)
class Stack:
    """Parts below one another."""

    parts: Sequence[Part]

    def html(self) -> str:
        """The parts as HTML."""
        return "\n".join(part.html() for part in self.parts)


@dataclass(frozen=True)
class Paragraph:
    """A text: plain, important, or a command."""

    text: str
    kind: Literal["p", "strong", "code"] = "p"

    def html(self) -> str:
        """The text as HTML."""
        text = escape(self.text)
        return f"<p>{text if self.kind == 'p' else f'<{self.kind}>{text}</{self.kind}>'}</p>"


@dataclass(frozen=True)
class Item:
    """An item of a list: a text behind some words in bold, and items below it."""

    text: str
    bold: str = ""
    below: Sequence[Item] = ()


@dataclass(frozen=True)
class Items:
    """A list; nothing where it is empty."""

    items: Sequence[Item]

    def html(self) -> str:
        """The list as HTML."""
        lines = ""
        for item in self.items:
            bold = f"<strong>{escape(item.bold)}</strong> " if item.bold else ""
            lines += f"<li>{bold}{escape(item.text)}{Items(item.below).html()}</li>"
        return f"<ul>{lines}</ul>" if lines else ""

    def markdown(self, indent: str = "") -> list[str]:
        """The list as lines of Markdown."""
        lines = []
        for item in self.items:
            bold = f"**{_plain(item.bold)}** " if item.bold else ""
            lines.append(f"{indent}- {bold}{_plain(item.text)}")
            lines += Items(item.below).markdown(f"{indent}  ")
        return lines


# --- what the page shows


def make_page(
    experiments: Sequence[Experiment],
    results: Results,
    comments: Mapping[str, str],
    figures: Collection[str] | None = None,
) -> Page:
    """Computes and draws all that the page shows; the arguments are those of `write`."""
    gallery = Gallery(results, figures)
    scales = sorted({str(each.get("scale")) for each in results.records.values()})
    flag = f" --scale {scales[0]}" if len(scales) == 1 else ""
    verdicts = [(each, verdict) for each in experiments for verdict in judge(each, results)]
    counts = tally(verdict.outcome for _, verdict in verdicts)
    checks = f"Of {len(verdicts)} checks: {counts}." if verdicts else "No claim was checked."
    notes = Items([Item(note) for note in tables.substitute_notes(results)])
    stands = Stack([tables.substitutes_table(experiments, results), notes])
    judged = Stack([Paragraph(checks, "strong"), tables.verdict_table(verdicts)])
    sections = [
        Section("What stood for the paper's data and networks", CELLS, stands, "stands", "Summary"),
        Section("Verdicts on the paper's claims", RULE, judged, "verdicts", "Summary"),
    ]
    for experiment in experiments:
        parts: list[Part] = [Paragraph(f"freetickets reproduce {experiment.name}{flag}", "code")]
        parts += [Paragraph(comments[experiment.name])] if experiment.name in comments else []
        parts.append(tables.measured_table(experiment, results))
        if own := [verdict for each, verdict in verdicts if each is experiment]:
            counts = tally(verdict.outcome for verdict in own)
            parts.append(Folded(f"Claims: {counts}", Items([_claim(each) for each in own])))
        if told := tables.footnotes(experiment, results):
            parts.append(Folded("Notes", Items([Item(note) for note in told])))
        kind = "Figures" if experiment.paper.startswith("Figure") else "Tables"
        title, key = f"{experiment.paper}: {experiment.title}", f"result-{experiment.name}"
        sections.append(Section(title, READING, Stack(parts), key, kind))
        sections += gallery.sections(experiment)
    title = f"The paper's tables, measured at the scale {' and '.join(scales) or 'none'}"
    hours = tables.total_hours(results.records.values())
    lead = [
        *(f"Scale {name}: {SCALES[name].summary}." for name in scales if name in SCALES),
        f"{len(results.records)} runs in {math.fsum(hours):.2f} hours of machine time "
        f"({hours[0]:.2f} of training, {hours[1]:.2f} of evaluation).",
        f"Made by FreeTickets {__version__}.",
    ]
    said = filter(None, [" ".join(lead), comments.get("")])
    return Page(title, "\n\n".join(said), sections)


def _claim(verdict: Verdict) -> Item:
    """A claim with the differences that decide it."""
    below = [Item(each.text, marked(each.outcome)) for each in verdict.findings]
    return Item(f"{verdict.statement} ({verdict.dataset})", marked(verdict.outcome), below)


# --- the page as Markdown, as GitHub shows it


def markdown(page: Page) -> str:
    """The whole page as Markdown; its figures are images beside it."""
    contents = ""
    for title in (section.title for section in page.sections if section.key):
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")  # as GitHub makes it
        contents += f"- [{_plain(title)}](#{anchor})\n"
    blocks = [f"# {_plain(page.title)}", _plain(page.lead), "## Contents", contents]
    for section in page.sections:
        title, caption = _plain(section.title), _plain(section.caption)
        if isinstance(section.body, Figure):
            blocks += [f"### {title}", f"![{title}]({_image_path(section.body)})", f"*{caption}*"]
        elif isinstance(section.body, Stack):
            blocks.append(f"## {title}")
            for part in section.body.parts:
                blocks += _blocks(part)
                blocks += [caption] if isinstance(part, Table) else []
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _blocks(part: Part) -> list[str]:
    match part:
        case Table():
            return [as_markdown(part)]
        case Paragraph(text, "code"):
            return [f"`{text}`"]
        case Paragraph(text, kind):
            return [f"**{text}**" if kind == "strong" else _plain(text)]
        case Folded(title, body):
            # Blank lines around it: without them GitHub takes the list for HTML.
            return [f"<details><summary>{title}</summary>", *_blocks(body), "</details>"]
        case Items(items):
            return ["\n".join(part.markdown())] if items else []
    raise AssertionError(f"{type(part).__name__} can't be written as Markdown")


def _image_path(figure: Figure) -> str:
    return f"images/{figure.name}.svg"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"[\\*_<`[~$]", r"\\\g<0>", text)
