import re
from html.parser import HTMLParser

from freetickets.report.comparison import Comparison
from freetickets.report.page import Page, comparison_page
from freetickets.report.parts import Folded, Section, Table, TableCell, Text
from freetickets.report.run import read_run, read_runs
from freetickets.report.sections import make

from .conftest import scores

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


def test_a_full_page_has_every_section_leads_to_each_and_asks_no_host(full_html):
    outline = Outline(full_html)
    assert outline.texts["h2"] == [
        *("Comparison", "Cost against quality", "Differences from dense", "Confidence intervals"),
        *("Member means and sizes", "Members and ensemble", "Scores of every member"),
        *("Size of the ensemble", "Correlations over runs"),
        *("Diversity of the members", "Pairs of members", "By class", "Feature maps by layer"),
        "Training trajectories (t-SNE)",
        *("Corruptions", "Corruptions by severity", "Corruptions by type", "Every corrupted set"),
        *("Attacks", "Accuracy under FGSM", "Transfer of FGSM between members"),
        *("More scores", "Reliability", "Risk and coverage"),
        *("Out-of-distribution detection", "ROC curves", "Novelty of known and unknown samples"),
        *("Training of dense", "Training of dense-ensemble", "Training of dst"),
        *("Training of edst", "Density of the layers", "Phases and their cost", "Settings"),
    ]
    assert len(outline.texts["figcaption"]) == len(outline.texts["h2"])
    assert all(text.endswith(".") for text in outline.texts["figcaption"])
    outline = Outline(full_html)
    targets = [value for name, value in outline.attributes if name == "href" and value[:1] == "#"]
    links = [target for target in targets if f'<a href="{target}">' in full_html]
    assert len(links) == len(outline.texts["h2"])
    names = re.findall(r' id="([^"]*)"', full_html)
    assert len(names) == len(set(names))
    assert {link[1:] for link in links} <= set(names)
    assert len(full_html.encode()) < 5e6
    html = full_html
    outline = Outline(html)
    for name, value in outline.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster"):
            assert value.startswith(("#", "data:")), (name, value)
    assert set(re.findall(r"https?://[^\s\"']*", html)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in html
    assert set(re.findall(r"url\((.)", html)) == {"#"}
    assert "default-src 'none'" in html


def test_rows_stand_in_the_papers_groups_and_costs_in_units_if_one(full_html, runs, write_run):
    table = full_html[full_html.index("<table>") : full_html.index("</table>")]
    groups = re.findall(r'<th scope="rowgroup">(.*?)</th>.*?<tr><td>(.*?)</td>', table, re.DOTALL)
    assert groups == [
        ("single dense model", "dense"),
        ("one-pass", "edst"),
        ("multi-pass", "dst"),
        ("dense ensemble", "dense-ensemble"),
    ]
    other = read_run(write_run("longer", ledger={"dense_epochs": 9.0, "dense_flops": 1800.0}))
    alike, mixed = (
        make(Comparison.of(compared), "phases").html() for compared in (runs, [*runs, other])
    )
    assert "one dense training of mlp-30 for 5 epochs" in alike
    assert "for 5 epochs" not in mixed
    assert "can&#x27;t be compared" in mixed


def test_the_best_of_one_pass_is_bold_and_of_multi_pass_blue(write_run):
    given = (("a", 1, 0.85), ("b", 1, 0.86), ("c", 3, 0.95), ("d", 1.5, 0.96))
    runs = [
        write_run(name, ledger={"runs": passes}, metrics={"ensemble": scores(accuracy)})
        for name, passes, accuracy in given
    ]
    html = comparison_page(read_runs(runs)).html()
    table = html[html.index("<table>") : html.index("</table>")]
    # Of runs a lower number is the better one too.
    assert re.findall("<strong(.*?)>(.*?)</strong>", table) == [
        ("", "86.00%"),
        *((' class="second"', text) for text in ("96.00%", "1.5")),
    ]


def test_a_small_page_shows_what_it_has_and_its_settings_closed(html, runs):
    assert comparison_page(runs).html() == html  # equal runs give equal pages
    outline = Outline(html)
    assert outline.texts["h1"] == ["tiny: 2 runs"]
    assert (len(outline.texts["h2"]), outline.tags.count("svg")) == (9, 10)
    for text in ("member 1", "member 2", "member mean", "ensemble", "explore", "refine 2", "3,000"):
        assert f">{text}</td>" in html
    alone = comparison_page(runs[:1]).html()
    assert "tiny: one run" in alone
    assert "<strong>" not in alone
    assert outline.texts["summary"] == ["edst: edst (M=2, S=0.8), mlp-30", "dense: dense, mlp-30"]
    assert "tickets: 2" in outline.texts["pre"][0]
    assert "<details>" in html


def test_a_page_can_be_made_of_any_sections():
    cells = [TableCell("a & b"), TableCell("1", 1.0)]
    table = Table(["name", "size"], [cells], [("", 1), ("of it", 1)])
    bodies = (table, Folded("x", Text("<y>", "pre")), Folded("1 row", table))
    sections = [Section("Title", "How.", body) for body in bodies]
    outline = Outline(Page("Mine", "All of it.", sections).html())
    assert outline.texts["summary"] == ["x", "1 row"]
    assert outline.texts["td"] == ["a & b", "1"] * 2
    assert outline.texts["th"] == ["of it", "name", "size"] * 2
    assert outline.texts["pre"] == ["<y>"]
    assert "nav" not in outline.tags
