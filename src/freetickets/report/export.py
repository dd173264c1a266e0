"""The tables of a page as files: CSV for programs, Markdown for notes, LaTeX for papers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..storage import write_atomic
from .page import Page
from .parts import ABSENT, Folded, Table, TableCell

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "↑": r"($\uparrow$)",
    "↓": r"($\downarrow$)",
    "–": "--",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "\N{MINUS SIGN}": "$-$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "Δ": r"$\Delta$",
    "ε": r"$\varepsilon$",
    # After the end of a row these would be taken for its options.
    "[": "{[}",
    "*": "{*}",
}


def write_tables(page: Page, folder: Path) -> list[Path]:
    """Writes every table of a page as .csv, .md and .tex, named by its section.

    Returns:
        The files that were written.
    """
    written = []
    for section in page.sections:
        table = section.body.body if isinstance(section.body, Folded) else section.body
        if not isinstance(table, Table):
            continue
        texts = {
            "csv": as_csv(table),
            "md": as_markdown(table),
            "tex": as_latex(table, f"{section.title}. {section.caption}"),
        }
        for form, text in texts.items():
            path = folder / f"{section.key}.{form}"
            write_atomic(path, text.encode())
            written.append(path)
    return written


def as_csv(table: Table) -> str:
    """The table as CSV, its numbers unrounded; what was not measured is empty.

    Example:
        >>> row = [TableCell("a"), TableCell("50.0%", 0.501)]
        >>> print(as_csv(Table(["run", "accuracy"], [row])), end="")
        run,accuracy
        a,0.501
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    named = any(title for title, _ in table.parts())
    titles = [title.rstrip(" ↑↓") for title in _flat_header(table)]
    writer.writerow(["group"] * named + titles)
    for title, rows in table.parts():
        for row in rows:
            numbers = [_plain(cell) for cell in row]
            writer.writerow([title] * named + numbers)
    return file.getvalue()


def as_markdown(table: Table) -> str:
    r"""The table as Markdown; what is marked is bold.

    Example:
        >>> table = Table(["run", "accuracy"], [[TableCell("a|b"), TableCell("50%", 0.5, "best")]])
        >>> print(as_markdown(table), end="")
        | run | accuracy |
        |---|---:|
        | a\|b | **50%** |
    """
    lines = [_markdown_line(_flat_header(table))]
    lines.append(
        "|" + "|".join("---:" if table.is_numeric(i) else "---" for i in range(len(table.header)))
        + "|"
    )  # fmt: skip
    for title, rows in table.parts():
        if title:
            lines.append(_markdown_line([f"*{title}*"] + [""] * (len(table.header) - 1), False))
        for row in rows:
            lines.append(_markdown_line(_emphasised(row), False))
    return "\n".join(lines) + "\n"


def as_latex(table: Table, caption: str = "") -> str:
    r"""The table as LaTeX for the packages booktabs and xcolor.

    The best of one-pass methods is bold, that of multi-pass methods bold and blue.

    Example:
        >>> table = Table(["run", "Acc ↑"], [[TableCell("a_b"), TableCell("50%", 0.5, "best")]])
        >>> print(as_latex(table), end="")
        % needs \usepackage{booktabs,xcolor}
        \begin{tabular}{lr}
        \toprule
        run & Acc ($\uparrow$) \\
        \midrule
        a\_b & \textbf{50\%} \\
        \bottomrule
        \end{tabular}
    """
    kinds = "".join("r" if table.is_numeric(i) else "l" for i in range(len(table.header)))
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
            span = len(table.header)
            lines.append(_latex_line([rf"\multicolumn{{{span}}}{{l}}{{\emph{{{latex(title)}}}}}"]))
        lines += [_latex_line(map(_latex_cell, row)) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex(text: str) -> str:
    r"""A text as LaTeX shows it.

    Example:
        >>> latex("S=0.8 & 50%")
        'S=0.8 \\& 50\\%'
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_cell(cell: TableCell) -> str:
    text = latex(cell.text)
    if cell.mark == "best":
        return rf"\textbf{{{text}}}"
    return rf"\textcolor{{blue}}{{\textbf{{{text}}}}}" if cell.mark else text


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _flat_header(table: Table) -> list[str]:
    """One line of titles; where a title stands twice, its group tells which it is."""
    groups = [title for title, span in table.groups for _ in range(span)]
    if not groups:
        return list(table.header)
    twice = {title for title in table.header if list(table.header).count(title) > 1}
    return [
        f"{group} {title}" if title in twice else title
        for group, title in zip(groups, table.header, strict=True)
    ]


def _plain(cell: TableCell) -> str:
    if cell.value is not None:
        return repr(cell.value)
    # A text that a spreadsheet would take for a formula is kept a text.
    text = "" if cell.text == ABSENT else cell.text
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _emphasised(row: Sequence[TableCell]) -> list[str]:
    return [f"**{_markdown(cell.text)}**" if cell.mark else _markdown(cell.text) for cell in row]


def _markdown(text: str) -> str:
    for sign in "\\|*_<`[&~$":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "<br>")


def _markdown_line(cells: Iterable[str], escape: bool = True) -> str:
    return f"| {' | '.join(_markdown(cell) if escape else cell for cell in cells)} |"
