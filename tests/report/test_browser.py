"""The page in a browser: nothing complains, sticks out, covers other text or is too faint."""

import contextlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from freetickets.experiments import experiment_names, load
from freetickets.experiments.page import write
from freetickets.report.page import comparison_page
from freetickets.report.run import read_run

from ..experiments.invented import invent_results
from .conftest import scores

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--hide-scrollbars", "--window-size=1600,1200",
)  # fmt: skip

# A window can't be as narrow as a phone; a frame can.
WRAPPER = Path(__file__).with_name("frames.html").read_text()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """Runs the browser on some HTML; returns what it prints. Whatever complains fails the test."""

    def run(html, *flags):
        folder = tmp_path_factory.mktemp("browser")
        file = folder / "page.html"
        file.write_text(html)
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, file.as_uri()]
        options = {"capture_output": True, "text": True, "check": True, "cwd": folder}
        with contextlib.suppress(subprocess.TimeoutExpired):  # on a busy machine it hangs, rarely
            return subprocess.run(command, timeout=100, **options)
        shutil.rmtree(folder / "profile", ignore_errors=True)
        return subprocess.run(command, timeout=300, **options)

    return run


@pytest.fixture(scope="module")
def browse(chromium):
    """Shows a page in frames of some widths; returns what each measures."""

    def show(html, widths=(390, 1200, 1440), dark=False):
        content = escape(html)
        frames = "".join(
            f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{content}"></iframe>'
            for width in widths
        )
        theme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        done = chromium(WRAPPER.replace("<!-- frames -->", frames), *theme, "--dump-dom")
        # The wrapper's own line, which shows that lines are seen, and no other.
        assert re.findall(r'CONSOLE.*?"(.*)"', done.stderr) == ["ready"]
        answer = re.search("<pre>(.*)</pre>\n<script>", done.stdout, re.DOTALL)
        return json.loads(unescape(answer[1]))

    return show


@pytest.fixture(scope="module")
def light(browse, full_html):
    return browse(full_html)


@pytest.fixture(scope="module")
def dark(browse, full_html):
    return browse(full_html, dark=True)


def test_every_section_fits_phones_laptops_and_desks_and_every_text_of_a_figure_has_room(light):
    phone, laptop, desk = light
    assert [shown["width"] for shown in light] == [390, 1200, 1440]
    for shown in light:
        assert shown["content"] <= shown["width"]
        assert shown["text"] >= 13
        assert all(300 < width <= shown["width"] for width in shown["figures"])
        assert shown["texts"] == {"cut": [], "covered": []}
        assert (shown["outside"], shown["lost"]) == ([], 0)  # all links of the contents lead there
    assert "main" in [section for section, *_ in phone["scrolling"]]
    assert laptop["scrolling"] == desk["scrolling"] == []


def test_all_text_stands_out_on_light_and_dark_pages(light, dark):
    assert light[0]["ground"] == "rgb(255, 255, 255)"
    assert dark[0]["ground"] == "rgb(21, 24, 28)"
    for shown in (*light, *dark):
        assert shown["faintest"] >= 4.5


def test_a_figure_is_saved_in_the_colours_that_it_has(light, dark):
    for (shown, *_), ground in ((light, "#ffffff"), (dark, "#15181c")):
        saved = shown["saved"]
        assert saved["count"] == len(shown["figures"])
        assert re.fullmatch(r"[a-z0-9-]+-\d+\.svg", saved["name"])
        root = ElementTree.fromstring(saved["text"])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root[0].get("fill") == ground
        assert "var(" not in saved["text"]
        assert float(root.get("width").removesuffix("pt")) > 300


def test_titles_sort_each_group_of_rows(browse, write_run):
    names = ("a", "b", "c-with-a-name-that-is-much-too-long-for-any-table-" * 3)
    runs = [
        read_run(write_run(name, metrics={"ensemble": scores(0.85, nll)}))
        for name, nll in zip(names, (0.3, 0.1, 0.2), strict=True)
    ]
    runs.append(replace(runs[0], name="several", ledger=replace(runs[0].ledger, runs=2.0)))
    for shown in browse(comparison_page(runs).html()):
        assert shown["content"] <= shown["width"]
        before, rising, falling = ([name[0] for name in order] for order in shown["orders"])
        assert before == ["a", "b", "c", "s"]
        assert rising == ["b", "c", "a", "s"]
        assert falling == ["a", "c", "b", "s"]


def test_the_page_prints(chromium, full_html, tmp_path):
    chromium(full_html, f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    printed = (tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert 5 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 40


def test_the_page_of_results_fits_phones_and_desks_and_nothing_complains(browse, tmp_path):
    tables = [load(name) for name in experiment_names()]
    write(tables, invent_results(tables, lambda cell, seed: {}, (1, 2)), tmp_path)
    for shown in browse((tmp_path / "results.html").read_text(), (390, 1440)):
        assert shown["content"] <= shown["width"]
        assert (shown["outside"], shown["lost"]) == ([], 0)
        # The paper's main table: whole on a desk; on a phone it scrolls, and not the page.
        wide = {"result-cifar10", "verdicts"} & {section for section, *_ in shown["scrolling"]}
        assert len(wide) == (2 if shown["width"] == 390 else 0)
