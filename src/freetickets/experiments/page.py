"""The page of results: measured beside the paper, as Markdown and as one self-contained HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path

from .. import __version__
from ..errors import check_known
from ..report.comparison import Comparison, analyse, find_reference
from ..report.export import as_markdown
from ..report.figures.drawing import colour
from ..report.page import Page
from ..report.parts import Figure, Folded, Part, Section, Stack, Table, Text
from ..report.run import check_predictions_alike, read_run
from ..report.sections import make
from ..storage import write_atomic
from . import tables
from .claims import Verdict, judge
from .experiment import Cell, Experiment, own_yaml, title_of_data
from .findings import marked, tally
from .front import front
from .reading import PARTS
from .results import Results, as_csv
from .scales import SCALES

# How the panels of a figure stand in its file.
_ABREAST, _GAP = 2, 18

_TEXTS: dict[str, dict[str, str]] = own_yaml("sections.yaml")


def write(
    experiments: Sequence[Experiment], results: Results, folder: str | Path,
    comments: Mapping[str, str] | None = None, figures: Collection[str] | None = None,
    verdicts: Sequence[Verdict] | None = None,
) -> list[Path]:  # fmt: skip
    """Writes `results.md` with `images/`, `results.html` and `cells.csv`.

    `figures`, keys of `PARTS`, are drawn of runs that are there; `comments` are by experiment;
    `verdicts` are on the paper's claims, if none are given.
    """
    if verdicts is None:
        verdicts = judge(experiments, results)
    page = make_page(experiments, results, verdicts, comments or {}, figures)
    texts = {"results.md": markdown(page), "results.html": page.html()}
    for section in page.sections:
        if isinstance(section.body, Figure):
            texts[_image_path(section.body)] = standalone(section.body.panels)
    texts["cells.csv"] = as_csv(results)
    for name, text in texts.items():
        write_atomic(Path(folder) / name, text.encode())
    return [Path(folder) / name for name in texts]


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
    verdicts: Sequence[Verdict],
    comments: Mapping[str, str],
    figures: Collection[str] | None = None,
) -> Page:
    """Computes and draws all that the page shows; the arguments are those of `write`."""
    gallery = Gallery(results, figures)
    scales = sorted({str(each.get("scale")) for each in results.records.values()})
    flag = f" --scale {scales[0]}" if len(scales) == 1 else ""
    notes = Items([Item(note) for note in tables.substitute_notes(results)])
    stands = Stack([tables.substitutes_table(experiments, results), notes])
    sections = [Section(**_TEXTS["stands"], body=stands, key="stands", chapter="Summary")]
    if results.timing is not None:
        items = Items([_claim(each) for each in verdicts if each.outcome != "not measured"])
        details = Folded("Every finding, with its noise", items)
        sections = [*front(experiments, results, verdicts, details), *sections]
    else:
        counts = tally(verdict.outcome for verdict in verdicts)
        checks = f"Of {len(verdicts)} checks: {counts}." if verdicts else "No claim was checked."
        told: list[Part] = [Text(checks, "strong"), tables.verdict_table(verdicts)]
        if against := [Item(text) for text in tables.printed_against(verdicts)]:
            told.append(
                Folded("Where the paper's own numbers lie on the other side", Items(against))
            )
        sections.append(
            Section(**_TEXTS["verdicts"], body=Stack(told), key="verdicts", chapter="Summary")
        )
    told_as = "tables" if results.timing is None else "stages"
    for experiment in experiments:
        parts: list[Part] = [Text(f"freetickets reproduce {experiment.name}{flag}", "code")]
        parts += [Text(comments[experiment.name])] if experiment.name in comments else []
        parts.append(tables.measured_table(experiment, results))
        # One that several tables bear on stands below the first.
        if own := [verdict for verdict in verdicts if verdict.where[:1] == (experiment.paper,)]:
            counts = tally(verdict.outcome for verdict in own)
            parts.append(Folded(f"Claims: {counts}", Items([_claim(each) for each in own])))
        if noted := tables.footnotes(experiment, results):
            parts.append(Folded("Notes", Items([Item(note) for note in noted])))
        kind = "Figures" if experiment.paper.startswith("Figure") else "Tables"
        title, key = f"{experiment.paper}: {experiment.title}", f"result-{experiment.name}"
        sections.append(Section(title, **_TEXTS[told_as], body=Stack(parts), key=key, chapter=kind))
        sections += gallery.sections(experiment)
    about = "The paper's tables, measured" if results.timing is None else "What was found"
    title = f"{about} at the scale {' and '.join(scales) or 'none'}"
    hours = tables.total_hours(results.records.values())
    lead = [
        *(f"Scale {name}: {SCALES[name].summary}." for name in scales if name in SCALES),
        f"{len(results.records)} runs in {math.fsum(hours):.2f} hours of machine time "
        f"({hours[0]:.2f} of training, {hours[1]:.2f} of evaluation).",
        f"Made by FreeTickets {__version__}.",
    ]
    said = [text for text in (" ".join(lead), comments.get("")) if text]
    if results.timing is not None:  # what was asked comes first
        said.reverse()
    return Page(title, "\n\n".join(said), sections)


def _claim(verdict: Verdict) -> Item:
    """A claim with the differences that decide it."""
    below = [Item(each.text, marked(each.outcome)) for each in verdict.findings]
    return Item(
        f"{verdict.claim.says} ({title_of_data(verdict.dataset)})", marked(verdict.outcome), below
    )


# --- the page as Markdown, as GitHub shows it


def markdown(page: Page) -> str:
    """The whole page as Markdown; its figures are images beside it."""
    contents = ""
    for title in (section.title for section in page.sections if section.key):
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")  # as GitHub makes it
        contents += f"- [{_plain(title)}](#{anchor})\n"
    summary = [each for each in page.sections if each.chapter == "Summary"]
    others = [each for each in page.sections if each.chapter != "Summary"]
    blocks = [f"# {_plain(page.title)}", _plain(page.lead)]
    for section in summary:
        blocks += _section(section)
    blocks += ["## Contents", contents]
    for section in others:
        blocks += _section(section)
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def _section(section: Section) -> list[str]:
    title, caption = _plain(section.title), _plain(section.caption)
    if isinstance(section.body, Figure):
        return [f"### {title}", f"![{title}]({_image_path(section.body)})", f"*{caption}*"]
    blocks = [f"## {title}"]
    for part in section.body.parts if isinstance(section.body, Stack) else ():
        blocks += [*_blocks(part), *([caption] if isinstance(part, Table) else ())]
    return blocks


def _blocks(part: Part) -> list[str]:
    match part:
        case Table():
            return [as_markdown(part)]
        case Text(text, "code"):
            return [f"`{text}`"]
        case Text(text, kind):
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


# --- figures of the runs whose folders are there


class Gallery:
    """Draws the `wanted` figures of tables, or all; a run that several show is analysed once."""

    def __init__(self, results: Results, wanted: Collection[str] | None = None) -> None:
        self._results = results
        for key in wanted or ():
            check_known("figure", key, PARTS)
        self._wanted = PARTS if wanted is None else wanted
        self._read = cache(read_run)
        self._analyse = cache(lambda folder: analyse(self._read(folder)))

    def sections(self, experiment: Experiment) -> list[Section]:
        """The figures of a table, each data set for itself; of the first seed that is there."""
        datasets = list(dict.fromkeys(row.dataset for row in experiment.rows))
        keys = [key for key in experiment.figures if key in self._wanted]
        found = []
        for dataset in datasets:
            where = [dataset] if len(datasets) > 1 else []
            comparison = self._compare(experiment, dataset)
            for key in keys:
                section = None if comparison is None else make(comparison, key)
                if section is not None and isinstance(section.body, Figure):
                    figure = replace(section.body, name="-".join([experiment.name, *where, key]))
                    told = [experiment.paper, *map(title_of_data, where)]
                    title = f"{section.title} ({', '.join(told)})"
                    found.append(replace(section, title=title, body=figure, key=""))
        return found

    def _compare(self, experiment: Experiment, dataset: str) -> Comparison | None:
        runs = []
        for name, cell in run_names(experiment, dataset).items():
            folders = (self._results.run_folder(cell, seed) for seed in self._results.seeds(cell))
            if (folder := next(filter(None, folders), None)) is not None:
                # The name says all that a description would.
                runs.append(replace(self._read(folder), name=name, description=""))
        if not runs:
            return None
        check_predictions_alike(runs)
        found = {run.name: self._analyse(run.folder) for run in runs}
        analyses = {name: each for name, each in found.items() if each is not None}
        return Comparison(runs, find_reference(runs), analyses)


def run_names(experiment: Experiment, dataset: str) -> dict[str, Cell]:
    """The cells of a table by short names: of several rows of one, the largest ensemble's."""
    names: dict[Cell, str] = {}
    rows = [row for row in experiment.rows if row.dataset == dataset]
    for row in sorted(rows, key=lambda row: row.members or 1000, reverse=True):
        for cell in row.cells:
            values = [f"{option}={cell.options[option]:g}" for option in row.over]
            label = re.sub(" (Sparse )?Ensemble", "", row.label).replace(") (", ", ")
            names.setdefault(cell, " ".join([label, *values]))
    order = list(dict.fromkeys(cell for row in rows for cell in row.cells))
    return {names[cell]: cell for cell in order}


def standalone(panels: Sequence[str]) -> str:
    """The panels of a figure as one file: two side by side, at their natural size and on white."""
    boxes = [panel.partition('viewBox="')[2].partition('"')[0].split() for panel in panels]
    sizes = [(float(width), float(height)) for _, _, width, height in boxes]
    placed, top = [], 0.0
    for start in range(0, len(panels), _ABREAST):
        row = slice(start, start + _ABREAST)
        left = 0.0
        for panel, (width, height) in zip(panels[row], sizes[row], strict=True):
            place = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
            placed.append(panel.replace("<svg ", f"<svg {place} ", 1))
            left += width + _GAP
        top += max(height for _, height in sizes[row]) + _GAP
    columns = min(_ABREAST, len(panels))
    across = f"{columns * (max(width for width, _ in sizes) + _GAP) - _GAP:g}"
    down = f"{top - _GAP:g}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" '
        f'width="{across}pt" height="{down}pt">'
        f'<rect width="{across}" height="{down}" fill="{colour("page")}"/>'
    )
    return re.sub(r"var\(--[\w-]+, ([^()]*)\)", r"\1", f"{head}{''.join(placed)}</svg>")
