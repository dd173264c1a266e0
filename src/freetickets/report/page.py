"""The page: sections in one HTML file that needs no other file, host or script to be read."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from .. import __version__
from .comparison import Comparison
from .figures.drawing import css_variables
from .opening import opening
from .parts import Section
from .run import RunSummary
from .sections import make_all


@dataclass(frozen=True)
class Page:
    """A self-contained page; its lead says in a sentence or two what it is about."""

    title: str
    lead: str
    sections: Sequence[Section]

    def html(self) -> str:
        """The page as HTML; equal content gives equal text."""
        template, css, script = (
            (resources.files(__package__) / f"page.{kind}").read_text(encoding="utf-8")
            for kind in ("html", "css", "js")
        )
        # The browser is to load nothing from anywhere, and to run this script only.
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        return template.format(
            title=escape(self.title),
            lead=escape(self.lead).replace("\n\n", "</p>\n<p>"),
            contents=_contents(self.sections),
            sections="\n".join(section.html() for section in self.sections),
            digest=digest,
            # Never dark in print: paper is white.
            light=css_variables(dark=False),
            dark=css_variables(dark=True),
            css=css,
            script=script,
        )


def _contents(sections: Sequence[Section]) -> str:
    chapters: dict[str, list[str]] = {}
    for section in sections:
        if section.key:
            link = f'<li><a href="#{escape(section.key)}">{escape(section.title)}</a></li>'
            chapters.setdefault(section.chapter, []).append(link)
    lists = "\n".join(
        f"<div>{f'<h3>{escape(name)}</h3>' if name else ''}<ul>{''.join(links)}</ul></div>"
        for name, links in chapters.items()
    )
    return f'<nav aria-label="contents">\n{lists}\n</nav>\n' if lists else ""


def comparison_page(runs: Sequence[RunSummary], reference: str | None = None) -> Page:
    """The page that `freetickets report` writes; for the reference see `find_reference`."""
    comparison = Comparison.of(runs, reference)
    first = runs[0].results
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    models = ", ".join(dict.fromkeys(run.config.model for run in runs))
    lead = f"{models}, scored on {first.samples:,} test samples."
    if not comparison.has_classes:
        lead += (
            f" The task, {first.task.name}, has no classes: confidence, diversity, corruptions, "
            "unknown samples and attacks, which are scored by classes, are left out."
        )
    lead = f"{opening(comparison)}\n\n{lead}".strip()
    lead = f"{lead} Made by FreeTickets {__version__}."
    return Page(f"{first.dataset}: {count}", lead, make_all(comparison))
