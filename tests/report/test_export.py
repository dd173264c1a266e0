import csv
import io
import itertools

from hypothesis import given
from hypothesis import strategies as st

from freetickets.report.export import as_csv, as_latex, as_markdown, write_tables
from freetickets.report.page import Page
from freetickets.report.parts import Folded, Section, Table, TableCell, Text

NUMBERS = (("50.0%", 0.501, "best"), ("–",), ("1%", 0.01)), (
    ("60.0%", 0.6, "second"), ("0.2", 0.2), ("2%", 0.02),
)  # fmt: skip
TABLE = Table(
    ["run", "Acc ↑", "NLL ↓", "Acc ↑"],
    [
        [TableCell(name), *(TableCell(*each) for each in numbers)]
        for name, numbers in zip(("a_b", "c&d"), NUMBERS, strict=True)
    ],
    [("", 1), ("ensemble", 2), ("member", 1)],
    [("one-pass", 1), ("multi-pass", 1)],
)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_each_format_has_the_numbers_and_marks_of_a_table():
    titles = ("group", "run", "ensemble Acc", "NLL", "member Acc")
    assert rows_of(as_csv(TABLE)) == [
        dict(zip(titles, ("one-pass", "a_b", "0.501", "", "0.01"), strict=True)),
        dict(zip(titles, ("multi-pass", "c&d", "0.6", "0.2", "0.02"), strict=True)),
    ]
    text = as_latex(TABLE)
    assert r"a\_b & \textbf{50.0\%} & -- & 1\%" in text
    assert r"c\&d & \textcolor{blue}{\textbf{60.0\%}}" in text
    assert r"\multicolumn{2}{c}{ensemble}" in text
    assert text.count(r"\midrule") == 2
    assert r"Acc ($\uparrow$)" in text
    lines = as_markdown(TABLE).splitlines()
    assert lines[0] == "| run | ensemble Acc ↑ | NLL ↓ | member Acc ↑ |"
    assert lines[1] == "|---|---:|---:|---:|"
    assert lines[2] == "| *one-pass* |  |  |  |"
    assert lines[3] == r"| a\_b | **50.0%** | – | 1% |"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1))
def test_any_name_comes_back_from_csv(name):
    (row,) = rows_of(as_csv(Table(["run", "x"], [[TableCell(name), TableCell("1", 1.5)]])))
    assert row["run"] in (name, f"'{name}", "" if name == "–" else name)
    assert row["x"] == "1.5"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])))
def test_no_name_breaks_a_markdown_row(name):
    text = as_markdown(Table(["run", "x"], [[TableCell(name), TableCell("1", 1.5)]]))
    line = text.splitlines()[2]
    assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"])))
def test_no_name_is_a_command_in_latex(name):
    line = as_latex(Table(["run", "x"], [[TableCell(name), TableCell("1", 1.5)]])).splitlines()[5]
    plain = line.removesuffix(r" \\").replace(r"\&", "").replace(r"\%", "")
    assert plain.count("&") == 1
    assert "%" not in plain
    for sign in "#$_":
        assert plain.count(sign) == plain.count(f"\\{sign}")


def test_no_name_is_a_formula_in_a_spreadsheet_or_an_option_of_the_row_before_in_latex():
    assert rows_of(as_csv(Table(["run"], [[TableCell("=1+1")]]))) == [{"run": "'=1+1"}]
    text = as_latex(Table(["ε"], [[TableCell("a")], [TableCell("[red]")], [TableCell("*")]]))
    assert r"$\varepsilon$ \\" in text
    for before, line in itertools.pairwise(text.splitlines()):
        assert not (before.endswith(r"\\") and line[0] in "[*")


def test_every_table_of_a_page_becomes_three_files_in_ascii(tmp_path, full_page):
    bodies = {"one": TABLE, "two": Folded("open", TABLE), "three": Text("b")}
    sections = [Section(key.title(), "How.", body, key) for key, body in bodies.items()]
    page = Page("P", "L", sections)
    written = write_tables(page, tmp_path / "tables")
    assert sorted(path.name for path in written) == [
        *("one.csv", "one.md", "one.tex", "two.csv", "two.md", "two.tex")
    ]
    assert all(path.read_text() for path in written)
    assert (tmp_path / "tables" / "one.tex").read_text().splitlines()[1] == "% One. How."
    for path in write_tables(full_page, tmp_path):
        if path.suffix == ".tex":
            lines = [line for line in path.read_text().splitlines() if not line.startswith("%")]
            assert "".join(lines).isascii(), path.name
