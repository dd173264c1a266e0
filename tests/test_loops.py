"""What docs/loops.md shows is run."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.sparsity import Exploration

PAGE = Path(__file__).parents[1] / "docs" / "loops.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def names(**more):
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return {"ft": ft, "Exploration": Exploration, "model": model, "optimizer": optimizer, **more}


def test_the_two_lines_explore_as_told_and_take_topologies_over():
    found = names()
    exec(BLOCKS[0], found)
    assert found["sparsifier"].steps == 1
    lines = BLOCKS[1].splitlines()
    assert len(lines) == 2
    for line in lines:
        exec(line, names())
    source = names()
    exec(BLOCKS[0], source)
    masks = source["sparsifier"].topology
    given, chosen, later = BLOCKS[4].splitlines()
    for line in (given, chosen):
        found = names(masks=masks)
        found["model"].load_state_dict(source["model"].state_dict())
        made = eval(line.partition("#")[0], found)
        assert made.digest == source["sparsifier"].digest
    found = names(masks=masks)
    found["sparsifier"] = ft.Sparsifier(found["model"], found["optimizer"], backend="masked")
    exec(later, found)
    assert found["sparsifier"].digest == source["sparsifier"].digest


@pytest.mark.parametrize("block", [2, 3])
def test_both_orders_of_resuming_work(block):
    first, second = names(), names()
    exec(BLOCKS[0], first)
    saved = {name: first[name].state_dict() for name in ("model", "optimizer", "sparsifier")}
    if block == 3:  # a trainer has loaded these already
        second["model"].load_state_dict(saved["model"])
        second["optimizer"].load_state_dict(saved["optimizer"])
    exec(BLOCKS[block], {**second, "saved": saved})
    for mine, theirs in zip(first["model"].parameters(), second["model"].parameters(), strict=True):
        assert torch.equal(mine, theirs)
