"""The parts of a page: sections and what they show. Each makes its HTML, and escapes all text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from ..metrics.score import Column

Mark = Literal["", "best", "second"]

ABSENT = "–"  # what a table shows where nothing was measured
_SENTENCE = 60  # signs: where rows have longer names, their column is wider


class Part(Protocol):
    """What a section can show."""

    def html(self) -> str:
        """The part as HTML."""


@dataclass(frozen=True)
class TableCell:
    """A text, and the number behind it, by which its column is sorted.

    Marked "best" it is bold, "second" bold and blue; `below` is its end, small and grey on a page.
    """

    text: str
    value: float | None = None
    mark: Mark = ""
    below: str = ""

    @classmethod
    def of(cls, value: float | None, form: str, mark: Mark = "") -> "TableCell":
        """A number in some format; a dash where there is none."""
        if value is None or value != value:
            return cls(ABSENT)
        return cls(format(value, form), value, mark)

    @property
    def is_absent(self) -> bool:
        """Whether nothing was measured; what stands below may be known all the same."""
        return self.text.removesuffix(self.below).rstrip() == ABSENT

    def html(self) -> str:
        """The part as HTML."""
        text = escape(self.text.removesuffix(self.below).rstrip()).replace("\n", "<br>")
        if self.mark:
            kind = ' class="second"' if self.mark == "second" else ""
            text = f"<strong{kind}>{text}</strong>"
        if self.below:
            text += f"<small>{escape(self.below)}</small>"
        if self.value is None:
            return f'<td class="number">{text}</td>' if self.is_absent else f"<td>{text}</td>"
        value = repr(self.value).replace("inf", "Infinity")  # as JavaScript reads it
        return f'<td class="number" data-value="{value}">{text}</td>'


def row(*entries: str | TableCell | tuple[float | None, str]) -> list[TableCell]:
    """Cells of words, of numbers with their formats, and such as are cells already."""
    made = [TableCell(it) if isinstance(it, str) else it for it in entries]
    return [it if isinstance(it, TableCell) else TableCell.of(*it) for it in made]


def score_cells(values: Mapping[str, float], scores: Sequence[Column]) -> list[TableCell]:
    """The values of scores, each in its format."""
    return [TableCell.of(values.get(score.key), score.form) for score in scores]


@dataclass(frozen=True)
class Table:
    """Rows and columns, the first of names; groups are titles, each with how many it spans."""

    header: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    groups: Sequence[tuple[str, int]] = ()
    row_groups: Sequence[tuple[str, int]] = ()

    def html(self) -> str:
        """The table in a box of its own, in which it scrolls if it is too wide."""
        head = "".join(
            f'<th colspan="{span}" scope="colgroup">{escape(title)}</th>'
            if title
            else f'<td colspan="{span}"></td>'
            for title, span in self.groups
        )
        head = f'<tr class="groups">{head}</tr>\n' if head else ""
        titles = "".join(
            f'<th scope="col"{" class=number" if self.is_numeric(i) else ""}>{escape(title)}</th>'
            for i, title in enumerate(self.header)
        )
        bodies = ""
        for title, rows in self.parts():
            above = f'<tr class="part"><th scope="rowgroup">{escape(title)}</th>'
            above += f'<td colspan="{len(self.header) - 1}"></td></tr>'
            lines = [f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in rows]
            bodies += "\n".join(["<tbody>", *([above] if title else ()), *lines, "</tbody>\n"])
        wordy = any(len(row[0].text) > _SENTENCE for row in self.rows)
        kind = ' class="statements"' if wordy else ""
        return (
            f'<div class="scroll" tabindex="0"><table{kind}>\n'
            f"<thead>\n{head}<tr>{titles}</tr>\n</thead>\n{bodies}</table></div>"
        )

    def parts(self) -> list[tuple[str, Sequence[Sequence[TableCell]]]]:
        """The rows, each group of them with its title."""
        rows = iter(self.rows)
        groups = self.row_groups or [("", len(self.rows))]
        return [(title, list(islice(rows, count))) for title, count in groups]

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, but for those that were not measured."""
        return all(row[column].value is not None or row[column].is_absent for row in self.rows)


@dataclass(frozen=True)
class Folded:
    """A long part that opens on demand; while it is closed, its title stands there."""

    title: str
    body: Part

    def html(self) -> str:
        """The part as HTML."""
        return f"<details><summary>{escape(self.title)}</summary>\n{self.body.html()}</details>"


@dataclass(frozen=True)
class Figure:
    """SVG panels side by side, or below one another; files are called by the name."""

    panels: Sequence[str]
    name: str = "figure"

    def html(self) -> str:
        """The part as HTML."""
        panels = "\n".join(
            f'<div class="panel" data-name="{escape(self.name)}-{number}">{panel}</div>'
            for number, panel in enumerate(self.panels, start=1)
        )
        return f'<div class="panels">\n{panels}\n</div>'


@dataclass(frozen=True)
class Stack:
    """Parts below one another."""

    parts: Sequence[Part]

    def html(self) -> str:
        """The part as HTML."""
        return "\n".join(part.html() for part in self.parts)


@dataclass(frozen=True)
class Text:
    """A text: plain, important, a command, or lines as they are."""

    text: str
    kind: Literal["p", "strong", "code", "pre"] = "p"

    def html(self) -> str:
        """The part as HTML."""
        text = escape(self.text)
        if self.kind != "p":
            text = f"<{self.kind}>{text}</{self.kind}>"
        return text if self.kind == "pre" else f"<p>{text}</p>"


@dataclass(frozen=True)
class Section:
    """A result, how it was computed and how to read it; its key names it in addresses and files."""

    title: str
    caption: str
    body: Part
    key: str = ""
    chapter: str = ""

    def html(self) -> str:
        """The part as HTML."""
        anchor = f' id="{escape(self.key)}"' if self.key else ""
        return (
            f"<section{anchor}>\n<h2>{escape(self.title)}</h2>\n<figure>\n{self.body.html()}\n"
            f"<figcaption>{escape(self.caption)}</figcaption>\n</figure>\n</section>"
        )


class Shown(NamedTuple):
    """What a section shows, the words that its text lacks (or parts: said or not), and its key."""

    body: Part
    words: Mapping[str, Any] = {}
    key: str = ""
