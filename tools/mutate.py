"""Breaks the source in one small place at a time, and sees whether a test notices.

It works in a copy of the checkout. Each mutant is given to the tests that mirror the changed file,
or to all tests of its package if none do. A mutant that passes survives: the line is not needed, or
no test there holds it. Look at survivors; a test elsewhere may hold them.

python tools/mutate.py sparsity metrics methods --sample 120 --seed 0
"""

import argparse
import ast
import copy
import functools
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

CHECKOUT = Path(__file__).parents[1]
SOURCE = Path("src/freetickets")
OUTPUT = Path("output.txt")  # of the tests that ran last
NOTICED, HANGS, SURVIVES = "noticed", "hangs", "SURVIVES"
OTHER: dict[type, Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: to the node that `ast.walk` meets as the `index`-th of a file."""

    file: Path
    index: int
    line: int
    change: str

    @property
    def package(self) -> str:
        """The folder of the source that it is in."""
        return self.file.relative_to(SOURCE).parts[0]

    def source(self) -> str:
        """The file with the change."""
        tree = ast.parse(self.file.read_text())
        node = list(ast.walk(tree))[self.index]
        for parent in ast.walk(tree):
            for name, value in ast.iter_fields(parent):
                if value is node:
                    setattr(parent, name, changed(node))
                elif isinstance(value, list) and node in value:
                    value[value.index(node)] = changed(node)
        return ast.unparse(ast.fix_missing_locations(tree))


def changed(node: ast.AST) -> ast.AST:
    """What stands in a node's place; the same again if there is nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare() if type(new.ops[0]) in OTHER:
            new.ops[0] = OTHER[type(new.ops[0])]()
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(new.op) in OTHER:
            new.op = OTHER[type(new.op)]()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.If() | ast.IfExp():
            new.test = ast.UnaryOp(ast.Not(), new.test)
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=int() | float() as number):
            new.value = number + 1
        case ast.Return(value=ast.expr()):
            new.value = ast.Constant(None)
        case ast.Raise() | ast.Expr(value=ast.Call()):
            return ast.Pass()
    return new


def find_mutants(package: str) -> Iterator[Mutant]:
    """All changes that a package allows, except to types and to the words of messages."""
    for file in sorted((SOURCE / package).rglob("*.py")):
        tree = ast.parse(file.read_text())
        skipped = {id(inner) for node in ast.walk(tree) for inner in _beside_the_point(node)}
        for index, node in enumerate(ast.walk(tree)):
            texts = ast.unparse(node), ast.unparse(changed(node))
            if id(node) not in skipped and texts[0] != texts[1]:
                change = " -> ".join(text.partition("\n")[0] for text in texts)
                yield Mutant(file, index, getattr(node, "lineno", 0), change)


def _beside_the_point(node: ast.AST) -> Iterator[ast.AST]:
    only_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.JoinedStr) or only_types:
        yield from ast.walk(node)
    for name in ("annotation", "returns"):
        if isinstance(part := getattr(node, name, None), ast.AST):
            yield from ast.walk(part)


def fate(mutant: Mutant, seconds: float) -> str:
    """What the tests that mirror a mutant's file make of it, with the doctests in it."""
    folder, stem = Path("tests", mutant.package), mutant.file.stem
    mirrors = {*folder.glob(f"test_{stem}.py"), *folder.glob(f"test_{stem}_*.py")}
    tests = (mutant.file, *sorted(mirrors or {folder}))
    usual = _usual_seconds(tests, seconds)
    original = mutant.file.read_text()
    mutant.file.write_text(mutant.source())
    try:
        # Far beyond the usual, as the machine may have become busier since.
        code = exit_code(tests, 60 + 5 * usual)
    finally:
        mutant.file.write_text(original)
    return HANGS if code is None else NOTICED if code else SURVIVES


@functools.cache
def _usual_seconds(tests: Sequence[Path], seconds: float) -> float:
    """How long tests take without a mutant."""
    begin = time.monotonic()
    if exit_code(tests, seconds) != 0:
        print(OUTPUT.read_text()[-2000:])
        sys.exit(f"{' '.join(map(str, tests))} fail or hang without a mutant: mend them first")
    return time.monotonic() - begin


def exit_code(tests: Sequence[Path], seconds: float) -> int | None:
    """Runs tests in a fork of this process, which has PyTorch loaded; None if they hang."""
    child = multiprocessing.get_context("fork").Process(target=_run, args=(tests,))
    child.start()
    child.join(seconds)
    if child.is_alive():
        child.kill()
        child.join()
        return None
    return child.exitcode


def _run(tests: Sequence[Path]) -> None:
    with OUTPUT.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *map(str, tests)]))


def main() -> None:
    """Tries a sample, and prints the survivors and the score of each package."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="a folder of the source")
    parser.add_argument("--sample", type=int, default=120, metavar="N", help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument(
        "--seconds", type=float, default=900, help="for the tests of one file, without a mutant"
    )
    parsed = parser.parse_args()
    os.environ["CI"] = "true"  # Hypothesis draws the same examples for every mutant
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "tests", "docs", "examples"):
            shutil.copytree(CHECKOUT / part, Path(folder, part))
        shutil.copy(CHECKOUT / "pyproject.toml", folder)
        os.chdir(folder)
        sys.path.insert(0, str(Path(folder, "src")))
        os.environ["PYTHONPATH"] = sys.path[0]  # for tests that start processes
        mutants = [mutant for package in parsed.packages for mutant in find_mutants(package)]
        chosen = random.Random(parsed.seed).sample(mutants, min(parsed.sample, len(mutants)))
        print(f"{len(chosen)} of {len(mutants)} mutants, seed {parsed.seed}", flush=True)
        tried, noticed = Counter[str](), Counter[str]()
        for mutant in chosen:
            begin = time.monotonic()
            mark = fate(mutant, parsed.seconds)
            tried[mutant.package] += 1
            noticed[mutant.package] += mark != SURVIVES
            place = f"{mutant.file.relative_to(SOURCE)}:{mutant.line}  {mutant.change}"
            print(f"{mark:8} {time.monotonic() - begin:4.0f} s  {place}", flush=True)
        os.chdir(CHECKOUT)
    for package in parsed.packages:
        print(f"{package}: {noticed[package]} of {tried[package]} noticed")
    print(f"score: {noticed.total() / max(1, tried.total()):.0%}")


if __name__ == "__main__":
    main()
