"""The page of results as Markdown, as GitHub shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..report.export import as_markdown
from ..report.parts import Figure, Section
from .chapters import READING, RULE, Chapter, Line, Summary


def results_markdown(summary: Summary) -> str:
    """The whole page; its figures are images beside it."""
    parts = {
        "What stood for the paper's data and networks": [
            as_markdown(summary.stands),
            *_list(summary.notes),
        ],
        "Verdicts on the paper's claims": [
            f"**{summary.tally}**",
            as_markdown(summary.verdicts),
            _plain(RULE),
        ],
        **{chapter.title: _chapter(chapter) for chapter in summary.chapters},
    }
    contents = "\n".join(f"- [{_plain(title)}](#{anchor(title)})" for title in parts)
    blocks = [f"# {_plain(summary.title)}", _plain(summary.lead)]
    blocks += [_plain(summary.comment)] if summary.comment else []
    blocks += ["## Contents", contents]
    for title, content in parts.items():
        blocks += [f"## {_plain(title)}", *content]
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


def anchor(title: str) -> str:
    """The address that GitHub gives a heading.

    Example:
        >>> anchor("Figure 2, left: KL of Wide ResNet-28-10's maps")
        'figure-2-left-kl-of-wide-resnet-28-10s-maps'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def image_path(figure: Figure) -> str:
    """Where a figure is saved, seen from the page."""
    return f"images/{figure.name}.svg"


def _chapter(chapter: Chapter) -> list[str]:
    blocks = [f"`{chapter.command}`"]
    blocks += [_plain(chapter.comment)] if chapter.comment else []
    blocks += [as_markdown(chapter.table), _plain(READING)]
    blocks += _folded(chapter.tally, chapter.claims) + _folded("Notes", chapter.notes)
    return blocks + [block for section in chapter.figures for block in _figure(section)]


def _folded(title: str, lines: Sequence[Line]) -> list[str]:
    # Blank lines around it: without them GitHub takes the list for HTML.
    return [f"<details><summary>{title}</summary>", *_list(lines), "</details>"] if lines else []


def _list(lines: Sequence[Line]) -> list[str]:
    return ["\n".join(_items(lines))] if lines else []


def _items(lines: Sequence[Line], indent: str = "") -> list[str]:
    found = []
    for line in lines:
        bold = f"**{_plain(line.bold)}** " if line.bold else ""
        found += [f"{indent}- {bold}{_plain(line.text)}", *_items(line.below, f"{indent}  ")]
    return found


def _figure(section: Section) -> list[str]:
    if not isinstance(section.body, Figure):
        return []
    title = _plain(section.title)
    image = f"![{title}]({image_path(section.body)})"
    return [f"### {title}", image, f"*{_plain(section.caption)}*"]


def _plain(text: str) -> str:
    """A text that Markdown shows as it is."""
    for sign in "\\*_<`[~$":
        text = text.replace(sign, f"\\{sign}")
    return text
