"""Pages from runs whose every name is an attack: text stays text, in HTML and in SVG."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from freetickets.config import read_run_config
from freetickets.experiments import load
from freetickets.experiments.page import write
from freetickets.reading import read_json
from freetickets.report.page import comparison_page
from freetickets.report.run import read_runs
from freetickets.seal import open_table, open_text, seal_table, seal_text
from freetickets.storage import write_json

from ..experiments.invented import invent_results
from .fake_runs import FAKES, write_fake
from .test_page import Outline

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&]]>"


def assert_harmless(html, scripts):
    found = Outline(html)
    assert found.tags.count("script") == scripts
    assert not {"img", "iframe", "object", "embed", "form", "base"} & {*found.tags}
    assert [name for name, _ in found.attributes if name.startswith("on")] == []
    assert not any("javascript:" in (value or "") for _, value in found.attributes)


def poison(value, names):
    """Puts the attack into every text of a tree, and into the keys of some maps."""
    if isinstance(value, dict):
        return {
            key: {f"{name}{EVIL}": poison(each, names) for name, each in inner.items()}
            if key in names
            else poison(inner, names)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [poison(each, names) for each in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


@pytest.fixture(scope="module")
def evil_runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("evil")
    folders = []
    for fake in FAKES[2:]:
        # A folder's name may hold all but a slash.
        name = f"{fake.name}{EVIL.replace('/', '')}"
        folder = write_fake(root, replace(fake, name=name), samples=60)
        for test in (folder / "predictions").glob("*.npz"):
            test.rename(test.with_name(f"{Path(f'cifar10{EVIL}').stem}.npz"))
        metrics = read_json(folder / "metrics.json")
        write_json(folder / "metrics.json", poison(metrics, ("shift", "ood")))
        write_json(folder / "ledger.json", poison(read_json(folder / "ledger.json"), ()))
        settings = open_text((folder / "config.yaml").read_text())
        evil = json.dumps(f"wrn{EVIL}")
        settings = settings.replace("model: wrn-28-10", f"model: {evil}")
        log = open_table((folder / "log.csv").read_text(), read_run_config(folder).identity)
        (folder / "config.yaml").write_text(seal_text(settings))
        (folder / "log.csv").write_text(seal_table(log, read_run_config(folder).identity))
        folders.append(folder)
    return folders


@pytest.mark.slow
def test_no_name_in_the_files_of_runs_becomes_markup(evil_runs):
    page = comparison_page(read_runs(evil_runs))
    html = page.html()
    assert_harmless(html, scripts=1)
    shown = re.sub("<script>.*?</script>", "", html, count=1, flags=re.DOTALL)
    assert "<script" not in shown
    assert "alert(1)" in html  # the names are on the page, as text


def test_no_note_or_comment_of_results_becomes_markup(tmp_path):
    experiments = [load("cifar10")]
    results = invent_results(experiments, lambda cell, seed: {"accuracy": 0.9}, (1,))
    for record in results.records.values():
        record.update({"notes": [f"left out: {EVIL}"], "data": EVIL, "model": EVIL})  # type: ignore[attr-defined]
    write(experiments, results, tmp_path, {"": EVIL, "cifar10": EVIL}, figures=())
    html = (tmp_path / "results.html").read_text()
    assert_harmless(html, scripts=1)
    assert "&lt;script&gt;alert(1)" in html
    markdown = (tmp_path / "results.md").read_text()
    assert not re.findall(r"(?<!\\)<(?!/?(?:details|summary)\b|br>|sub>|small>)\w+", markdown)
