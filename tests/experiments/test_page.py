"""The page of results: measured beside the paper, with verdicts, notes and figures."""

import csv
import io
import json
import re
import shutil
import statistics
import subprocess
from html import escape, unescape
from xml.etree import ElementTree

import pytest

from freetickets.experiments import Results, experiment_names, load, needed
from freetickets.experiments.gallery import Gallery, run_names
from freetickets.experiments.page import write
from freetickets.experiments.results import run_folder, save
from freetickets.experiments.tables import footnotes, measured_table, stands_table

from ..report.fake_runs import Fake, write_fake
from .invented import invent, invent_results, members_of

ALL = [load(name) for name in experiment_names()]
SOME = [load(name) for name in ("cifar10", "diversity", "ood-cifar10", "fgsm", "escape-rate")]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


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
    for row in (SOME[0].rows[0], SOME[0].rows[3]):
        cell = row.cells[0]
        fake = Fake(
            str(run_folder(root, cell, 2)), cell.method.name, members_of(cell), 1, 0.5, 4, 4.0
        )
        write_fake(root, fake, samples=200)
    folder = tmp_path_factory.mktemp("page")
    return folder, write(SOME, Results.load(root), folder)


def test_the_files_are_written(written):
    _, files = written
    assert [file.name for file in files] == ["results.md", "results.html", "cells.csv"]
    lines = list(csv.DictReader(io.StringIO(files[-1].read_text())))
    assert len(lines) == 3 * len(needed(ALL))


def test_a_cell_shows_mean_deviation_and_the_papers_number():
    table = SOME[0]
    row = table.rows[3]
    values = [0.961, 0.964, 0.959]
    records = {
        (row.cells[0].name, seed): invent(row.cells[0], seed, accuracy=value)
        for seed, value in enumerate(values)
    }
    shown = measured_table(table, Results(records)).rows[3]
    assert shown[1].text == "3"
    percent = [100 * value for value in values]
    mean, deviation = statistics.fmean(percent), statistics.stdev(percent)
    assert shown[2].text == f"{mean:.2f} ± {deviation:.2f} [96.3]"
    assert shown[2].value == pytest.approx(statistics.fmean(values))


def test_one_seed_has_no_deviation_and_none_a_dash():
    table, row = SOME[0], SOME[0].rows[3]
    records = {(row.cells[0].name, 1): invent(row.cells[0], 1, accuracy=0.9)}
    shown = measured_table(table, Results(records))
    assert shown.rows[3][2].text == "90.00 [96.3]"
    assert shown.rows[0][2].text == "– [96.0]"
    assert shown.rows[0][1].text == "–"


def test_corrections_and_underivable_numbers_are_marked_and_explained():
    escape_rate = load("escape-rate")
    texts = [cell.text for row in measured_table(escape_rate, Results()).rows for cell in row]
    assert "– [0.223†]" in texts
    assert any("printed 2.223, taken 0.223" in note for note in footnotes(escape_rate))
    assert "– [1.10‡]" in [
        cell.text for row in measured_table(SOME[0], Results()).rows for cell in row
    ]
    assert any(note.startswith("‡") and "BatchEnsemble" in note for note in footnotes(SOME[0]))
    (headings,) = (note for note in footnotes(load("classes")) if note.startswith("†"))
    assert 'aquarium fish (printed "Aquarium")' in headings


def test_the_stands_say_what_was_really_used_and_what_it_took():
    results = invent_results(SOME, numbers, (1, 2))
    rows = stands_table(SOME, results).rows
    assert [cell.text for cell in rows[0][:4]] == [
        "cifar10",
        "wrn-28-10",
        "fashion-mini",
        "mlp-16",
    ]
    runs = [record for record in results.records.values() if record["dataset"] == "cifar10"]
    assert rows[0][5].value == len(runs)
    assert rows[0][6].value == pytest.approx(10 * len(runs) / 3600)


def test_every_table_note_and_claim_is_in_both_pages(written):
    folder, _ = written
    markdown, html = ((folder / f"results.{form}").read_text() for form in ("md", "html"))
    for experiment in ALL:
        assert f"## {experiment.paper}: {experiment.title}" in markdown
        assert f'id="result-{experiment.name}"' in html
        assert f"freetickets reproduce {experiment.name} --scale smoke" in markdown
        for note in experiment.notes:
            assert escape(note) in html
    for text in (markdown, html):
        assert "All of it is invented." in text
        assert text.count("cifar10: turned images stand for svhn") == 1
        assert "supported" in text
        assert "contradicted" in text
    assert "This &lt;too&gt;." in html
    assert "This \\<too>." in markdown


def test_markdown_tables_have_as_many_cells_in_each_line(written):
    folder, _ = written
    blocks = re.findall(r"(?:^\|.*\|\n)+", (folder / "results.md").read_text(), re.MULTILINE)
    assert len(blocks) == len(ALL) + 2
    for block in blocks:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1


def test_figures_are_drawn_of_the_runs_that_are_there(illustrated):
    folder, files = illustrated
    images = {file for file in files if file.suffix == ".svg"}
    linked = re.findall(r"\(images/([^)]*)\)", (folder / "results.md").read_text())
    assert {file.name for file in images} == set(linked)
    assert {re.sub(r"-\d+\.svg", "", name) for name in linked} == {
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
    assert (folder / "results.html").read_text().count("<svg") == len(images)


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_every_run_of_a_figure_has_a_name_of_its_own(experiment):
    for dataset in {row.dataset for row in experiment.rows}:
        cells = {c for row in experiment.rows if row.dataset == dataset for c in row.cells}
        assert set(run_names(experiment, dataset).values()) == cells


def test_without_run_folders_there_are_no_figures():
    results = invent_results(SOME, numbers)
    assert all(Gallery(results).sections(experiment) == [] for experiment in SOME)


def test_equal_results_give_equal_bytes(tmp_path):
    results = invent_results(SOME, numbers, (1, 2))
    backwards = Results(dict(reversed(results.records.items())))
    pages = [
        write(SOME, each, tmp_path / str(number))
        for number, each in enumerate((results, backwards))
    ]
    for one, other in zip(*pages, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_a_page_of_nothing_can_be_written(tmp_path):
    files = write(ALL, Results(), tmp_path)
    assert "not measured" in files[0].read_text()
    assert "supported:" not in files[0].read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")
def test_the_page_fits_phones_and_desks_and_nothing_complains(written, illustrated, tmp_path):
    content = escape((written[0] / "results.html").read_text())
    frames = "".join(
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{content}"></iframe>'
        for width in (390, 1440)
    )
    content = escape((illustrated[0] / "results.html").read_text())
    frames += f'<iframe style="border:0;width:390px;height:900px" srcdoc="{content}"></iframe>'
    script = """addEventListener("load", () => {
      console.log("ready");
      document.querySelector("pre").textContent = JSON.stringify(
        [...document.querySelectorAll("iframe")].map((frame) => {
          const page = frame.contentDocument, root = page.documentElement;
          return {
            width: root.clientWidth,
            content: root.scrollWidth,
            outside: [...page.querySelectorAll("section p, section li, figcaption, h2")].filter(
              (part) => part.getBoundingClientRect().right > root.clientWidth + 1).length,
            lost: [...page.querySelectorAll("nav a")].filter((link) =>
              !page.getElementById(link.getAttribute("href").slice(1))).length,
          };
        }));
    });"""
    file = tmp_path / "page.html"
    file.write_text(f"<!DOCTYPE html>\n{frames}\n<pre></pre>\n<script>{script}</script>")
    flags = (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--dump-dom",
        "--enable-logging=stderr", "--hide-scrollbars", "--window-size=1600,1200",
    )  # fmt: skip
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
    )
    assert re.findall(r'CONSOLE.*?"(.*)"', done.stderr) == ["ready"]
    answer = re.search("<pre>(.*)</pre>\n<script>", done.stdout, re.DOTALL)
    answers = json.loads(unescape(answer[1]))
    assert [shown["width"] for shown in answers] == [390, 1440, 390]
    for shown in answers:
        assert shown["content"] <= shown["width"]
        assert (shown["outside"], shown["lost"]) == (0, 0)
