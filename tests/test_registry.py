"""What goes by a name is found and added in one way, and nothing is imported unasked."""

import importlib.metadata
import sys

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.registry import Registry, is_reference


def is_number(thing):
    if not isinstance(thing, int):
        raise FreeTicketsError("not a number")


def numbers(check=is_number):
    return Registry("number", "numbers", {"one": 1, "two": 2}, check)


def test_it_maps_names_given_once_also_by_installed_packages(refused, monkeypatch):
    found = numbers()
    assert (list(found), len(found), found["two"], "tow" in found) == (["one", "two"], 2, 2, False)
    refused("unknown number 'tow': did you mean 'two'", found.find, "tow")
    with pytest.raises(KeyError):
        found["tow"]
    assert all(map(is_reference, ("a:b", "a.b:c.d", "_a:B")))
    assert not any(map(is_reference, ("edst", "a:", "a:b:c", "C:/data", "wrn-28-10", "1a:b")))
    found, ten = numbers(check=None), [10]
    assert found.register("ten", ten) is found.register("ten", ten) is found.find("ten")
    assert found.name_of(ten) == "ten"
    assert found.name_of([10]) is None
    refused("there is a number named 'ten' already", found.register, "ten", [10])
    refused("not a number", numbers().register, "ten", "10")
    point = importlib.metadata.EntryPoint("inf", "math:inf", "freetickets.numbers")
    installed = {"freetickets.numbers": [point]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: installed.get(group, []))
    found = numbers(check=None)
    assert list(found) == ["one", "two", "inf"]
    assert found.find("inf") == float("inf")


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_numbers.py").write_text("three = 3\nword = 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_numbers", raising=False)
    return "own_numbers"


def test_only_load_imports(refused, module):
    found = numbers()
    refused(r"not known here: .* --import own_numbers", found.find, "own_numbers:three")
    assert module not in sys.modules
    assert found.load("own_numbers:three") == found.find("own_numbers:three") == 3
    for name, message in (
        ("own_numbers:word", "not a number"),
        ("own_numbers:tree", "unknown name in own_numbers 'tree'"),
        ("nowhere_at_all:x", "cannot import nowhere_at_all"),
    ):
        refused(message, found.load, name)
    # Now that the user has imported it, it is looked into, if kinds are checked.
    found = numbers()
    assert found.find("own_numbers:three") == 3
    for registry, name, message in (
        (found, "word", "not a number"),
        (found, "tree", "not known here"),
        (numbers(check=None), "three", "not known here"),  # it could be any function
    ):
        refused(message, registry.find, f"own_numbers:{name}")
