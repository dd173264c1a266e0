"""Results as Markdown: parsed as GitHub does, it is what was meant."""

import itertools
import re

import pytest
from markdown_it import MarkdownIt

from freetickets.experiments import experiment_names, load
from freetickets.experiments.chapters import gather
from freetickets.experiments.markdown import results_markdown

from .invented import invent_results

ALL = [load(name) for name in experiment_names()]


@pytest.fixture(scope="module")
def summary():
    return gather(ALL, invent_results(ALL, lambda cell, seed: {}, (1, 2)), {"": "<b>*all*</b>"})


@pytest.fixture(scope="module")
def tokens(summary):
    """What a parser of GitHub's dialect makes of the page."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return parser.parse(results_markdown(summary))


def words(token):
    """The text that a reader sees."""
    return "".join(part.content for part in token.children if part.type in ("text", "text_special"))


def following(tokens, kind):
    """The inline content of each block of a kind."""
    return [after for token, after in itertools.pairwise(tokens) if token.type == kind]


def test_every_link_of_the_contents_leads_to_a_heading(tokens):
    headings = [words(token) for token in following(tokens, "heading_open")]
    # As GitHub makes them: lower case, no punctuation but hyphens, hyphens for spaces.
    anchors = {
        "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_").replace(" ", "-")
        for title in headings
    }
    links = [
        part.attrs["href"]
        for token in tokens
        if token.type == "inline"
        for part in token.children
        if part.type == "link_open"
    ]
    assert len(links) == len(set(links)) == len(ALL) + 2
    assert {link.removeprefix("#") for link in links} <= anchors
    assert len(anchors) == len(headings)


def test_tables_are_tables_with_the_cells_that_were_given(summary, tokens):
    tables = [summary.substitutes, summary.verdicts, *(each.table for each in summary.chapters)]
    assert sum(token.type == "table_open" for token in tokens) == len(tables)
    cells = [words(token) for token in following(tokens, "td_open")]
    given = []
    for table in tables:
        for title, rows in table.parts():
            given += [title] + [""] * (len(table.header) - 1) if title else []
            given += [cell.text.replace("\n", "") for row in rows for cell in row]
    assert cells == given


def test_every_finding_and_note_is_in_a_fold_that_is_closed_again(summary, tokens):
    folds = [token.content for token in tokens if token.type == "html_block"]
    assert [fold.startswith("<details>") for fold in folds] == [True, False] * (len(folds) // 2)
    assert {fold.strip() for fold in folds[1::2]} == {"</details>"}
    items, depth = [], 0
    for token, after in zip(tokens, tokens[2:], strict=False):
        depth += token.content.count("<details>") - token.content.count("</details>")
        if token.type == "list_item_open" and depth:
            items.append(words(after))
    lines = [line for each in summary.chapters for line in (*each.claims, *each.notes)]
    lines = [found for line in lines for found in (line, *line.below)]
    assert sorted(items) == sorted(f"{line.bold} {line.text}".strip() for line in lines)


def test_nothing_is_struck_out_and_no_text_is_taken_for_html(tokens):
    kinds = {part.type for token in tokens if token.type == "inline" for part in token.children} | {
        token.type for token in tokens
    }
    assert not any(kind.startswith("s_") for kind in kinds)
    inline = [
        part.content
        for token in tokens
        if token.type == "inline"
        for part in token.children
        if part.type == "html_inline"
    ]
    assert set(inline) == {"<br>"}
    texts = [words(token) for token in tokens if token.type == "inline"]
    assert "<b>*all*</b>" in texts
    assert not any(re.search(r"\\[*_<~]", text) for text in texts)
