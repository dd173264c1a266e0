"""The tables of a page as files: CSV for programs, Markdown for notes, LaTeX for papers."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

from ..storage import write_atomic
from .page import Page
from .parts import ABSENT, Folded, Table, TableCell

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "↑": r"($\uparrow$)", "↓": r"($\downarrow$)", "–": "--", "\N{MINUS SIGN}": "$-$", "±": r"$\pm$",
    "×": r"$\times$", "Δ": r"$\Delta$", "ε": r"$\varepsilon$", "…": r"\dots{}",
    "<": r"\textless{}", ">": r"\textgreater{}",
    "[": "{[}", "*": "{*}",  # after the end of a row these would be taken for its options
}  # fmt: skip
_LATEX_MARKS = {
    "": "{}",
    "best": r"\textbf{{{}}}",
    "second": r"\textcolor{{blue}}{{\textbf{{{}}}}}",
}


def write_tables(page: Page, folder: Path) -> list[Path]:
    """Writes every table of a page as .csv, .md and .tex, named by its section."""
    written = []
    for section in page.sections:
        table = section.body.body if isinstance(section.body, Folded) else section.body
        if not isinstance(table, Table):
            continue
        latex_text = as_latex(table, f"{section.title}. {section.caption}")
        texts = {"csv": as_csv(table), "md": as_markdown(table), "tex": latex_text}
        for form, text in texts.items():
            written.append(folder / f"{section.key}.{form}")
            write_atomic(written[-1], text.encode())
    return written


def as_csv(table: Table) -> str:
    """The table as CSV, its numbers unrounded; what was not measured is empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    named = any(title for title, _ in table.parts())
    titles = [title.rstrip(" ↑↓") for title in _flat_header(table)]
    writer.writerow(["group"] * named + titles)
    for title, rows in table.parts():
        writer.writerows([title] * named + list(map(_plain, row)) for row in rows)
    return file.getvalue()


def as_markdown(table: Table) -> str:
    """The table as Markdown; what is marked is bold."""
    count = len(table.header)
    rules = "|".join("---:" if table.is_numeric(i) else "---" for i in range(count))
    lines = [list(map(_markdown, _flat_header(table)))]
    for title, rows in table.parts():
        if title:
            lines.append([f"*{title}*"] + [""] * (count - 1))
        for row in rows:
            texts = [_markdown(cell.text) for cell in row]
            marks = ["**" if cell.mark else "" for cell in row]
            lines.append([f"{it}{text}{it}" for it, text in zip(marks, texts, strict=True)])
    header, *rest = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([header, f"|{rules}|", *rest]) + "\n"


def as_latex(table: Table, caption: str = "") -> str:
    """The table as LaTeX for booktabs and xcolor; multi-pass methods have their best in blue."""
    count = len(table.header)
    kinds = "".join("r" if table.is_numeric(i) else "l" for i in range(count))
    lines = [r"% needs \usepackage{booktabs,xcolor}"]
    if caption:
        lines.append(f"% {' '.join(caption.split())}")
    lines += [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    if table.groups:
        spans = (rf"\multicolumn{{{span}}}{{c}}{{{latex(text)}}}" for text, span in table.groups)
        lines.append(_latex_line(spans))
    lines.append(_latex_line(map(latex, table.header)))
    for title, rows in table.parts():
        lines.append(r"\midrule")
        if title:
            lines.append(_latex_line([rf"\multicolumn{{{count}}}{{l}}{{\emph{{{latex(title)}}}}}"]))
        for row in rows:
            texts = (_LATEX_MARKS[cell.mark].format(latex(cell.text)) for cell in row)
            lines.append(_latex_line(texts))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    """A text as LaTeX shows it."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _flat_header(table: Table) -> list[str]:
    """One line of titles; where a title stands twice, its group tells which it is."""
    titles = list(table.header)
    groups = [title for title, span in table.groups for _ in range(span)]
    if not groups:
        return titles
    pairs = zip(groups, titles, strict=True)
    return [f"{group} {title}" if titles.count(title) > 1 else title for group, title in pairs]


def _plain(cell: TableCell) -> str:
    if cell.value is not None:
        return repr(cell.value)
    # A text that a spreadsheet would take for a formula is kept a text.
    text = "" if cell.text == ABSENT else cell.text
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<`[&~$])", r"\\\1", text).replace("\n", "<br>")
