"""What goes by a name is found and added in one way, and nothing is imported unasked."""

import importlib.metadata
import sys

import pytest

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.registry import Registry, import_reference, is_reference


def numbers(check=None):
    return Registry("number", "numbers", {"one": 1, "two": 2}, check)


def is_number(thing):
    if not isinstance(thing, int):
        raise FreeTicketsError("not a number")


def test_it_is_a_mapping_that_offers_the_nearest_name():
    found = numbers()
    assert (list(found), len(found), found["two"], "tow" in found) == (["one", "two"], 2, 2, False)
    with pytest.raises(UnknownNameError, match="unknown number 'tow': did you mean 'two'"):
        found.find("tow")
    with pytest.raises(KeyError):
        found["tow"]


def test_a_name_is_given_once_and_to_what_is_of_the_kind():
    found, ten = numbers(), [10]
    assert found.register("ten", ten) is found.register("ten", ten) is found.find("ten")
    assert found.name_of(ten) == "ten"
    assert found.name_of([10]) is None
    with pytest.raises(FreeTicketsError, match="there is a number named 'ten' already"):
        found.register("ten", [10])
    with pytest.raises(FreeTicketsError, match="not a number"):
        numbers(is_number).register("ten", "10")


def test_a_reference_is_a_module_and_a_name():
    assert all(map(is_reference, ("a:b", "a.b:c.d", "_a:B")))
    assert not any(map(is_reference, ("edst", "a:", "a:b:c", "C:/data", "wrn-28-10", "1a:b")))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "own_numbers.py").write_text("three = 3\nword = 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_numbers", raising=False)
    return "own_numbers"


def test_only_load_imports(module):
    found = numbers(is_number)
    with pytest.raises(FreeTicketsError, match=r"not known here: .* --import own_numbers"):
        found.find("own_numbers:three")
    assert module not in sys.modules
    assert found.load("own_numbers:three") == 3
    assert found.find("own_numbers:three") == 3
    with pytest.raises(FreeTicketsError, match="not a number"):
        found.load("own_numbers:word")
    with pytest.raises(UnknownNameError, match="unknown name in own_numbers 'tree'"):
        found.load("own_numbers:tree")
    with pytest.raises(FreeTicketsError, match="cannot import nowhere_at_all"):
        found.load("nowhere_at_all:x")


def test_a_module_that_the_user_imported_is_looked_into_if_kinds_are_checked(module):
    import_reference("number", "own_numbers:three")
    found = numbers(is_number)
    assert found.find("own_numbers:three") == 3
    with pytest.raises(FreeTicketsError, match="not a number"):
        found.find("own_numbers:word")
    with pytest.raises(FreeTicketsError, match="not known here"):
        found.find("own_numbers:tree")
    with pytest.raises(FreeTicketsError, match="not known here"):  # it could be any function
        numbers().find("own_numbers:three")


def test_installed_packages_add_theirs(monkeypatch):
    point = importlib.metadata.EntryPoint("inf", "math:inf", "freetickets.numbers")
    installed = {"freetickets.numbers": [point]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: installed.get(group, []))
    found = numbers()
    assert list(found) == ["one", "two", "inf"]
    assert found.find("inf") == float("inf")
