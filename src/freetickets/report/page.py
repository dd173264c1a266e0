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
        css, script = (
            (resources.files(__package__) / name).read_text(encoding="utf-8")
            for name in ("page.css", "page.js")
        )
        # Never dark in print: paper is white.
        light, dark = css_variables(dark=False), css_variables(dark=True)
        # Lets the browser load nothing from anywhere, and run this script only.
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        policy += f"; script-src 'sha256-{digest}'"
        sections = "\n".join(section.html() for section in self.sections)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<link rel="icon" href="data:,">
<style>
:root {{ {light} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}
{css}</style>
</head>
<body>
<header>
<h1>{escape(self.title)}</h1>
<p>{escape(self.lead)}</p>
</header>
{_contents(self.sections)}<main>
{sections}
</main>
<script>{script}</script>
</body>
</html>
"""


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
    lead = f"{lead} Made by FreeTickets {__version__}."
    return Page(f"{first.dataset}: {count}", lead, make_all(comparison))
