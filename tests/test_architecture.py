"""The house is as docs/architecture.md draws it."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import freetickets

ROOT = Path(freetickets.__file__).parent

# From left to right; what stands in one line may import each other.
FLOW = (
    "errors", "_lazy seeds device registry progress", "seal reading storage lock", "kernels",
    "sparsity", "metrics tasks data", "models", "calibration cascade selection predictions ticket",
    "methods", "config", "networks", "ensemble", "training", "launch", "evaluation", "report",
    "bench", "experiments", "extend cli __init__ __main__",
)  # fmt: skip
# `Method.fit` is a shorthand for `training.fit`.
EXCEPTIONS = {("methods", "training")}


def imports(path):
    """The rooms that a module imports when it runs, wherever the line stands."""
    tree = ast.parse(path.read_text())
    package = ("freetickets", *path.relative_to(ROOT).parts[:-1])
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types:
            continue
        words = tuple((node.module or "").split(".")) if node.module else ()
        module = package[: len(package) - node.level + 1] + words if node.level else words
        if module[:1] != ("freetickets",):
            continue
        names = module[1:2] or tuple(name.name for name in node.names)
        yield from (name for name in names if not name.startswith("__"))


def test_imports_go_with_the_flow_and_no_two_classes_share_a_name():
    place = {room: number for number, line in enumerate(FLOW) for room in line.split()}
    found = {
        (room, other)
        for path in ROOT.rglob("*.py")
        for room in [path.relative_to(ROOT).parts[0].removesuffix(".py")]
        for other in imports(path)
    }
    assert len(found) > 100
    assert {pair for pair in found if place[pair[1]] > place[pair[0]]} == EXCEPTIONS
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    # Both are public: a score of predictions, and `sparsity.Score`, of weights to prune or grow.
    assert [name for name, count in names.items() if count > 1] == ["Score"]


QUICK = (  # without torch
    "dir(ft), ft.tasks.Classification()",
    "ft.data.dataset_names(), ft.data.get_spec('cifar10')",
    "ft.models.model_names(), [*map(ft.models.check_name, ('wrn-28-10', 'torch.nn:Linear'))]",
    "from freetickets.data.corruptions import corrupt; corrupt(__import__('numpy').zeros((1, 8, 8),"
    " 'u1'), 'fog', 1)",
)


@pytest.mark.parametrize(
    "code",
    [
        "assert set(ft.__all__) <= set(dir(ft)) and '__version__' in dir(ft)",
        "assert 'allocate' in dir(ft.sparsity) and 'get_spec' in dir(ft.data)",
        "assert all(getattr(ft, name) is not None for name in ft.__all__)",
        "assert all(callable(getattr(ft.data, name)) for name in ft.data.__all__)",
        "assert not hasattr(ft, 'Nothing') and not hasattr(ft.data, 'nothing')",
        "ft.evaluation.Predictions.load",
        *(f"{use}; assert 'torch' not in __import__('sys').modules" for use in QUICK),
    ],
)
def test_what_the_package_has_is_listed_and_found(code):
    command = [sys.executable, "-c", f"import freetickets as ft; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
