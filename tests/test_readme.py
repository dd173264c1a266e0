"""What the README shows is run: its Python, its commands, its table of costs."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from freetickets.cli.parser import make_parser

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_two_lines_work_in_a_loop() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    names: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "criterion": nn.CrossEntropyLoss(),
        "batches": [(torch.randn(4, 8), torch.tensor([0, 1, 0, 1])) for _ in range(3)],
    }
    exec(blocks("python")[0], names)
    assert names["sparsifier"].steps == 3
    assert names["sparsifier"].sparsity == pytest.approx(0.8, abs=0.01)


def test_the_ensemble_lines_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks("python")[1]
    small = code.replace('"wrn-28-10", "cifar10"', '"mlp-8", "fashion-mini", epochs=1, quiet=True')
    assert small != code
    x = torch.zeros(5, 1, 28, 28, dtype=torch.uint8)
    names: dict[str, Any] = {"ft": __import__("freetickets"), "x": x}
    exec(small, names)
    assert names["p"].shape == (5, 10)
    assert names["u"].epistemic.shape == (5,)
    assert len(names["ensemble"]) == 3


def test_the_lines_about_metrics_work_on_anyones_arrays() -> None:
    mine, theirs = torch.randn(2, 3, 50, 4).log_softmax(-1).numpy()
    labels = torch.arange(50).remainder(4).numpy()
    names = {"ft": __import__("freetickets"), "log_probs": mine, "mine": mine, "theirs": theirs}
    lines = [line for line in blocks("python")[2].splitlines() if line]
    ece, difference = (eval(line, {**names, "labels": labels}) for line in lines)
    assert 0 < ece < 1
    assert difference.low <= difference.value <= difference.high


def test_every_command_is_one_that_the_parser_knows() -> None:
    lines = re.findall(r"^(?:\$ )?freetickets (.*)$", TEXT, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        arguments = shlex.split(line, comments=True)
        make_parser(arguments).parse_args(arguments)


def test_the_table_of_costs_is_what_plan_prints(cli: Any) -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (\w+), ([\w-]+) \| ([\d.]+)x \| ([\d.]+)x \| (\d) \|", TEXT, re.MULTILINE
    )
    assert len(rows) >= 6
    for method, dataset, model, train, test, runs in rows:
        answer = cli("plan", *method.split(), "--dataset", dataset, "--model", model, "--json")
        ledger = json.loads(answer.out)["ledger"]
        assert f"{ledger['relative_flops']:.3f}" == train, method
        assert f"{ledger['relative_test_flops']:.3f}" == test, method
        assert ledger["runs"] == int(runs)


def test_links_lead_to_files() -> None:
    for link in re.findall(r"\]\((?!http)([^)]+)\)", TEXT):
        assert (README.parent / link).exists(), link
