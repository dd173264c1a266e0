"""The parts of a page: sections, and the tables, figures and details that they show.

Every part makes its own HTML; whatever text it is given, it escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol


class Part(Protocol):
    """What a section can show."""

    def html(self) -> str:
        """The part as HTML."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: What is shown.
        value: The number behind it, by which its column is sorted; None for words.
        best: Whether it is the best of its column.
    """

    text: str
    value: float | None = None
    best: bool = False

    def html(self) -> str:
        """The cell as HTML.

        Example:
            >>> Cell("79.50%", 0.795, best=True).html()
            '<td class="number" data-value="0.795"><strong>79.50%</strong></td>'
        """
        text = f"<strong>{escape(self.text)}</strong>" if self.best else escape(self.text)
        if self.value is None:
            return f"<td>{text}</td>"
        return f'<td class="number" data-value="{self.value!r}">{text}</td>'


@dataclass(frozen=True)
class Table:
    """Rows and columns; the first column names the rows, and stays in view.

    Attributes:
        header: The title of each column.
        rows: One cell for each title.
        groups: Titles above several columns, each with how many it spans.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()

    def html(self) -> str:
        """The table in a box of its own, in which it scrolls if it is too wide."""
        head = ""
        if self.groups:
            cells = (
                f'<th colspan="{span}" scope="colgroup">{escape(title)}</th>'
                if title
                else f'<td colspan="{span}"></td>'
                for title, span in self.groups
            )
            head = f'<tr class="groups">{"".join(cells)}</tr>\n'
        numeric = [
            all(row[i].value is not None for row in self.rows) for i in range(len(self.header))
        ]
        titles = "".join(
            f'<th scope="col"{" class=number" if number else ""}>{escape(title)}</th>'
            for title, number in zip(self.header, numeric, strict=True)
        )
        body = "\n".join(f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in self.rows)
        return (
            '<div class="scroll" tabindex="0"><table>\n'
            f"<thead>\n{head}<tr>{titles}</tr>\n</thead>\n"
            f"<tbody>\n{body}\n</tbody>\n</table></div>"
        )


@dataclass(frozen=True)
class Figure:
    """Panels side by side, or below one another where the page is narrow.

    Attributes:
        panels: SVG, as `freetickets.report.figures` draws it.
    """

    panels: Sequence[str]

    def html(self) -> str:
        """The figure as HTML."""
        return '<div class="panels">\n' + "\n".join(self.panels) + "\n</div>"


@dataclass(frozen=True)
class Details:
    """Long texts that open on demand.

    Attributes:
        items: The title and the text of each.
    """

    items: Sequence[tuple[str, str]]

    def html(self) -> str:
        """The texts as HTML."""
        return "\n".join(
            f"<details><summary>{escape(title)}</summary>\n<pre>{escape(text)}</pre></details>"
            for title, text in self.items
        )


@dataclass(frozen=True)
class Section:
    """A result, with how it was computed.

    Attributes:
        title: What it shows.
        caption: How it was computed, and how to read it.
        body: What is shown.
    """

    title: str
    caption: str
    body: Part

    def html(self) -> str:
        """The section as HTML."""
        return (
            f"<section>\n<h2>{escape(self.title)}</h2>\n<figure>\n{self.body.html()}\n"
            f"<figcaption>{escape(self.caption)}</figcaption>\n</figure>\n</section>"
        )
