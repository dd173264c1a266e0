"""The page of results: measured beside the paper, with verdicts, notes and figures."""

import csv
import io
import itertools
import re
from html import escape
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from freetickets.errors import UnknownNameError
from freetickets.experiments import Results, experiment_names, load, needed
from freetickets.experiments.claims import judge
from freetickets.experiments.page import make_page, markdown, run_names, standalone, write
from freetickets.experiments.results import run_folder, save
from freetickets.experiments.scales import SCALES
from freetickets.report.parts import Folded, Table

from ..report.fake_runs import Fake, write_fake
from .invented import invent_results, members_of

ALL = [load(name) for name in experiment_names()]
SOME = [load(name) for name in ("cifar10", "diversity", "ood-cifar10", "fgsm", "escape-rate")]


def numbers(cell, seed):
    """Something different for each cell and seed."""
    step = (len(cell.name) * 7 + seed * 3) % 11 / 1000
    return {"accuracy": 0.9 + step, "nll": 0.3 - step, "member_accuracy": 0.88 + step}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of all tables from invented numbers."""
    folder = tmp_path_factory.mktemp("page")
    comments = {"": "All of it is invented.", "fgsm": "This <too>."}
    return folder, write(ALL, invent_results(ALL, numbers, (1, 2, 3)), folder, comments)


@pytest.fixture(scope="module")
def illustrated(tmp_path_factory):
    """The page of some tables with the folders of two runs, which are not of the first seed."""
    root = tmp_path_factory.mktemp("scale")
    for record in invent_results(SOME, numbers, (1, 2, 3)).records.values():
        save(root, record)
    for cell in (SOME[0].rows[0].cells[0], SOME[0].rows[3].cells[0]):
        folder = str(run_folder(root, cell, 2))
        fake = Fake(folder, cell.method.name, members_of(cell), 1, 0.5, 4, 4.0)
        write_fake(root, fake, samples=200)
    folder = tmp_path_factory.mktemp("page")
    return folder, write(SOME, Results.load(root), folder)


def test_every_table_note_and_claim_is_in_both_pages(written):
    folder, files = written
    assert [file.name for file in files] == [
        "results.md",
        "results.html",
        "cells.csv",
    ]
    lines = list(csv.DictReader(io.StringIO(files[2].read_text())))
    assert len(lines) == 3 * len(needed(ALL))
    markdown, html = ((folder / f"results.{form}").read_text() for form in ("md", "html"))
    for experiment in ALL:
        assert f"## {experiment.paper}: {experiment.title}" in markdown
        assert f'id="result-{experiment.name}"' in html
        assert f"freetickets reproduce {experiment.name} --scale smoke" in markdown
        assert all(escape(note) in html for note in experiment.notes)
    for text in (markdown, html):
        assert "All of it is invented." in text
        assert text.count("CIFAR-10: turned images stand for svhn") == 1
        assert "supported" in text
        assert "contradicted" in text
        assert 0 < text.index(SCALES["smoke"].summary) < text.index("What stood in for")
    assert "This &lt;too&gt;." in html
    assert "This \\<too>." in markdown
    top = re.search(r"\*\*Of .* checks: .*", markdown)[0]
    checks, *counts = map(int, re.findall(r"\d+", top))
    assert sum(counts) == checks
    assert checks == len(re.findall(r"^- \*\*\\?. \w.*\*\*", markdown, re.MULTILINE))


def test_findings_and_notes_are_folded_below_their_table(written):
    html = (written[0] / "results.html").read_text()
    sections = re.findall(r'<section id="result-[^"]*">.*?</section>', html, re.DOTALL)
    told = [each.where[0] for each in judge(ALL, Results())]
    for experiment, section in zip(ALL, sections, strict=True):
        folds = re.findall(r"<details><summary>(\w+)", section)
        # A claim that several tables bear on stands below the first.
        claims = ["Claims"] * (experiment.paper in told)
        assert folds == claims + ["Notes"] * ("Notes" in section)
        assert section.count("<strong>", section.find("Claims:")) >= told.count(experiment.paper)
        assert not folds or section.index("</table>") < section.index("<details>")


def test_figures_are_drawn_of_the_runs_that_are_there(illustrated):
    folder, files = illustrated
    images = {file for file in files if file.suffix == ".svg"}
    linked = re.findall(r"\(images/([^)]*)\)", (folder / "results.md").read_text())
    assert sorted(file.name for file in images) == sorted(linked)
    assert {name.removesuffix(".svg") for name in linked} == {
        *(f"cifar10-{part}" for part in ("cost", "members", "reliability", "severity")),
        *(f"diversity-cifar10-{part}" for part in ("disagreement", "members")),
        *(f"ood-cifar10-{part}" for part in ("roc", "novelty")),
        *(f"fgsm-cifar10-{part}" for part in ("attack-fgsm", "transfer-fgsm")),
        "escape-rate-cifar10-members",
    }
    for file in images:
        root = ElementTree.fromstring(file.read_text())
        assert root.get("width").endswith("pt")
        assert "var(" not in file.read_text()
    panels = sum(file.read_text().count("<svg x=") for file in images)
    assert (folder / "results.html").read_text().count("<svg") == panels


def test_only_the_figures_that_are_wanted_are_drawn(illustrated, tmp_path):
    results = Results.load(illustrated[0].parent / "scale0")
    kept = write(SOME, results, tmp_path, figures=["cost", "roc"])
    names = {file.name for file in kept if file.suffix == ".svg"}
    assert names == {"cifar10-cost.svg", "ood-cifar10-roc.svg"}
    with pytest.raises(UnknownNameError, match="reliability"):
        write(SOME, results, tmp_path, figures=["reliable"])


def test_equal_results_give_equal_bytes(tmp_path):
    results = invent_results(SOME, numbers, (1, 2))
    backwards = Results(dict(reversed(results.records.items())))
    pages = [write(SOME, results, tmp_path / "1"), write(SOME, backwards, tmp_path / "2")]
    for one, other in zip(*pages, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_page_of_nothing_can_be_written(tmp_path):
    text = write(ALL, Results(), tmp_path)[0].read_text()
    assert "not measured" in text
    assert "supported:" not in text


# ---- Markdown, parsed as GitHub does


@pytest.fixture(scope="module")
def page():
    results = invent_results(ALL, lambda cell, seed: {}, (1, 2))
    return make_page(ALL, results, judge(ALL, results), {"": "<b>*all*</b>"})


@pytest.fixture(scope="module")
def tokens(page):
    """What a parser of GitHub's dialect makes of the page."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return parser.parse(markdown(page))


def parts_of(page, kind):
    """The parts of a kind, in all sections."""
    parts = (part for section in page.sections for part in section.body.parts)
    return [part for part in parts if isinstance(part, kind)]


def words(token):
    """The text that a reader sees."""
    return "".join(part.content for part in token.children if part.type in ("text", "text_special"))


def inline(tokens):
    """The parts of all texts."""
    return [part for token in tokens if token.type == "inline" for part in token.children]


def texts_of(tokens, kind):
    """The text of each block of a kind."""
    return [words(after) for token, after in itertools.pairwise(tokens) if token.type == kind]


def test_every_link_of_the_contents_leads_to_a_heading(tokens):
    headings = texts_of(tokens, "heading_open")
    # As GitHub makes them: lower case, no punctuation but hyphens, hyphens for spaces.
    anchors = {
        "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_").replace(" ", "-")
        for title in headings
    }
    links = [part.attrs["href"] for part in inline(tokens) if part.type == "link_open"]
    assert len(links) == len(set(links)) == len(ALL) + 2
    assert {link.removeprefix("#") for link in links} <= anchors
    assert len(anchors) == len(headings)


def test_tables_are_tables_with_the_cells_that_were_given(page, tokens):
    tables = parts_of(page, Table)
    assert len(tables) == len(ALL) + 2
    assert sum(token.type == "table_open" for token in tokens) == len(tables)
    given = []
    for table in tables:
        for title, rows in table.parts():
            given += [title] + [""] * (len(table.header) - 1) if title else []
            given += [cell.text.replace("\n", "") for row in rows for cell in row]
    assert texts_of(tokens, "td_open") == given


def test_every_finding_and_note_is_in_a_fold_that_is_closed_again(page, tokens):
    folds = [token.content for token in tokens if token.type == "html_block"]
    assert [fold.startswith("<details>") for fold in folds] == [True, False] * (len(folds) // 2)
    assert {fold.strip() for fold in folds[1::2]} == {"</details>"}
    items, depth = [], 0
    for token, after in zip(tokens, tokens[2:], strict=False):
        depth += token.content.count("<details>") - token.content.count("</details>")
        if token.type == "list_item_open" and depth:
            items.append(words(after))
    tops = [line for fold in parts_of(page, Folded) for line in fold.body.items]
    lines = [found for line in tops for found in (line, *line.below)]
    assert sorted(items) == sorted(f"{line.bold} {line.text}".strip() for line in lines)


def test_nothing_is_struck_out_and_no_text_is_taken_for_html(tokens):
    kinds = {each.type for each in (*tokens, *inline(tokens))}
    assert not any(kind.startswith("s_") for kind in kinds)
    html = [part.content for part in inline(tokens) if part.type == "html_inline"]
    assert set(html) <= {"<br>"}
    texts = [words(token) for token in tokens if token.type == "inline"]
    assert "<b>*all*</b>" in texts
    assert not any(re.search(r"\\[*_<~]", text) for text in texts)


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_every_run_of_a_figure_has_a_name_of_its_own(experiment):
    for dataset in {row.dataset for row in experiment.rows}:
        cells = {c for row in experiment.rows if row.dataset == dataset for c in row.cells}
        assert set(run_names(experiment, dataset).values()) == cells
    names = list(run_names(load("cifar10"), "cifar10"))
    assert names[3:9:5] == ["EDST (M=3, S=0.8)", "Static (M=3, S=0.8)"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_panels_lie_within_their_file_and_apart(count):
    panels = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 {10 + 7 * (number % 3)}"></svg>'
        for number in range(count)
    ]
    root = ElementTree.fromstring(standalone(panels))
    _, _, width, height = map(float, root.get("viewBox").split())
    boxes = []
    for panel in root.findall("{http://www.w3.org/2000/svg}svg"):
        left, top, wide, high = (float(panel.get(key)) for key in ("x", "y", "width", "height"))
        assert left + wide <= width
        assert top + high <= height
        boxes.append((left, top, left + wide, top + high))
    assert len(boxes) == count
    for one, other in itertools.combinations(boxes, 2):
        beside = one[0] >= other[2] or other[0] >= one[2]
        assert beside or one[1] >= other[3] or other[1] >= one[3]
