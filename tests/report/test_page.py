from __future__ import annotations

import re
from html.parser import HTMLParser

from freetickets.report import (
    Cell,
    Details,
    Page,
    Section,
    Table,
    comparison_page,
    read_run,
    read_runs,
)
from freetickets.report.comparison import phases_section

VOID = {"meta", "link"}


class Outline(HTMLParser):
    """Checks that elements nest, and keeps their text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], {}, []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_the_page_shows_every_section(html):
    outline = Outline(html)
    assert outline.texts["h1"] == ["tiny: 2 runs"]
    assert outline.texts["h2"] == [
        "Comparison",
        "Cost against quality",
        "Members and ensemble",
        "Scores of every member",
        "Training of edst",
        "Training of dense",
        "Phases and their cost",
        "Settings",
    ]
    assert len(outline.texts["figcaption"]) == 8
    assert outline.tags.count("svg") == 8


def test_the_main_table_marks_the_best(html):
    table = html[html.index("<table>") : html.index("</table>")]
    strong = re.findall("<strong>(.*?)</strong>", table)
    assert strong == [
        *("85.00%", "0.4500", "0.0200", "0.400", "0.400", "2.50"),
        *("82.00%", "0.4800", "0.0000", "6"),
    ]
    assert "edst (M=2, S=0.8)" in table


def test_every_member_and_phase_has_its_row(html):
    for text in ("member 1", "member 2", "member mean", "ensemble", "explore", "refine 2", "3,000"):
        assert f">{text}</td>" in html


def test_the_settings_are_on_the_page_closed(html):
    outline = Outline(html)
    assert outline.texts["summary"] == ["edst: edst (M=2, S=0.8), mlp-30", "dense: dense, mlp-30"]
    assert "tickets: 2" in outline.texts["pre"][0]
    assert "<details>" in html


def test_the_unit_of_cost_is_named_only_where_it_is_one(runs, write_run):
    other = read_run(write_run("longer", ledger={"dense_epochs": 9.0, "dense_flops": 1800.0}))
    alike, mixed = phases_section(runs).html(), phases_section([*runs, other]).html()
    assert "one dense training of mlp-30 for 5 epochs" in alike
    assert "for 5 epochs" not in mixed
    assert "can&#x27;t be compared" in mixed


def test_nothing_that_files_say_becomes_markup(write_run):
    evil = "<script>alert(1)<"
    folder = write_run(
        evil,
        config={"method": evil, "model": f"{evil}model", "data_dir": "</pre><script>"},
        metrics={"dataset": f"{evil}data"},
        ledger={"phases": [dict.fromkeys(("run", "steps"), 1) | PHASE | {"phase": evil}]},
    )
    html = comparison_page(read_runs([folder])).html()
    outline = Outline(html)
    assert outline.tags.count("script") == 1
    assert evil in "".join(outline.texts["td"])
    assert "</pre><script>" in "".join(outline.texts["pre"])
    assert evil in outline.texts["h1"][0]


PHASE = dict.fromkeys(("epochs", "sparsity", "explorations", "flops", "growth_flops", "seconds"), 1)


def test_the_page_asks_no_host_for_anything(html):
    outline = Outline(html)
    for name, value in outline.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster"):
            assert value.startswith(("#", "data:")), (name, value)
    assert set(re.findall(r"https?://[^\s\"']*", html)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) == {"#"}
    assert "default-src 'none'" in html


def test_equal_runs_give_equal_pages(runs, html):
    assert comparison_page(runs).html() == html


def test_one_run_makes_a_page(runs):
    html = comparison_page(runs[:1]).html()
    assert "tiny: one run" in html
    assert "<strong>" not in html


def test_a_page_can_be_made_of_any_sections():
    table = Table(["name", "size"], [[Cell("a & b"), Cell("1", 1.0)]], [("", 1), ("of it", 1)])
    sections = [Section("One", "How.", table), Section("Two", "Why.", Details([("x", "<y>")]))]
    outline = Outline(Page("Mine", "All of it.", sections).html())
    assert outline.texts["td"] == ["a & b", "1"]
    assert outline.texts["th"] == ["of it", "name", "size"]
    assert outline.texts["pre"] == ["<y>"]
