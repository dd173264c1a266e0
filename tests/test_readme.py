"""What the README shows is run: its Python, its commands, its numbers that need no training."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from freetickets.cli.parser import make_parser

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
COSTS = (ROOT / "docs" / "costs.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_it_is_short_and_what_it_installs_runs_its_commands():
    assert len(TEXT.split()) <= 700
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert re.search(rf"^make {command}\b", TEXT, re.MULTILINE)
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    # Without the extras, `evaluate --all` and `report` would end with one line.
    assert re.search(r"^pip install 'freetickets\[all\]'", TEXT, re.MULTILINE)
    assert "evaluate runs/edst --all" in TEXT
    assert re.search(r"^all = .*report.*corruptions", (ROOT / "pyproject.toml").read_text(), re.M)


def test_the_lines_of_the_readme_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = CODE[0].replace('"mlp-512-512"', '"mlp-8"').replace("epochs=9", "epochs=1, quiet=True")
    assert "mlp-8" in small
    assert "quiet" in small
    names: dict[str, Any] = {}
    exec(small, names)
    assert names["p"].shape == (2000, 10)
    assert names["u"].epistemic.shape == (2000,)
    assert names["log_probs"].shape == (3, 2000, 10)
    loaded = names["ft"].load("my-ensemble")
    assert (loaded.predict_proba(names["test"].inputs) == names["p"]).all()
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    names: dict[str, Any] = {
        "ft": __import__("freetickets"),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "criterion": nn.CrossEntropyLoss(),
        "batches": [(torch.randn(4, 8), torch.tensor([0, 1, 0, 1])) for _ in range(3)],
    }
    exec(CODE[1], names)
    assert names["sparsifier"].steps == 3
    assert names["sparsifier"].sparsity == pytest.approx(0.8, abs=0.01)


def test_every_command_is_one_that_the_parser_knows():
    for text in (TEXT, COSTS):
        lines = re.findall(r"^freetickets (.*)$|`freetickets ([^`]*)`", text, re.MULTILINE)
        assert len(lines) >= 5
        for line in map("".join, lines):
            if "METHOD" not in line:  # it stands for any
                arguments = shlex.split(line, comments=True)
                make_parser(arguments).parse_args(arguments)


def test_the_costs_are_what_plan_prints(cli):
    (shown,) = re.findall(r"\| ([\d.]+)x of dense \| `freetickets (plan [^`]+)`", TEXT)
    ledger = json.loads(cli(*shown[1].split(), "--json").out)["ledger"]
    assert f"{ledger['relative_flops']:.3f}" == shown[0]
    row = r"^\| `([^`]+)` \| (\w+), ([\w-]+) \| ([\d.]+)x \| ([\d.]+)x \| (\d) \|"
    rows = re.findall(row, COSTS, re.MULTILINE)
    assert len(rows) >= 6
    for method, dataset, model, train, test, runs in rows:
        answer = cli("plan", *method.split(), "--dataset", dataset, "--model", model, "--json")
        ledger = json.loads(answer.out)["ledger"]
        assert f"{ledger['relative_flops']:.3f}" == train, method
        assert f"{ledger['relative_test_flops']:.3f}" == test, method
        assert ledger["runs"] == int(runs)


def test_the_verdicts_are_those_of_the_results_and_links_lead_to_files():
    results = (ROOT / "docs" / "results-small.md").read_text()
    (told,) = re.findall(r"Of (\d+) checks.*?support (\d+) and contradict (\d+)", TEXT, re.DOTALL)
    found = re.findall(r"Of (\d+) checks: (\d+) supported, \d+ undecided, (\d+) contra", results)
    assert found == [told]
    for page in ("README.md", "CONTRIBUTING.md", "docs/README.md", "docs/loops.md"):
        path = ROOT / page
        for link in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", path.read_text()):
            assert (path.parent / link).exists(), link
