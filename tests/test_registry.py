"""What goes by a name is found and added in one way, and nothing is imported unasked."""

import importlib.metadata
import sys

import pytest

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.registry import Registry, import_reference, is_reference


def numbers(check=None):
    return Registry("number", "numbers", {"one": 1, "two": 2}, check)


def test_it_is_a_mapping_that_offers_the_nearest_name():
    found = numbers()
    assert (list(found), len(found), found["two"], "tow" in found) == (["one", "two"], 2, 2, False)
    with pytest.raises(UnknownNameError, match="unknown number 'tow': did you mean 'two'"):
        found.find("tow")
    with pytest.raises(KeyError):
        found["tow"]


def test_a_name_is_given_once():
    found, ten = numbers(), [10]
    assert found.register("ten", ten) is found.register("ten", ten) is found.find("ten")
    assert found.name_of(ten) == "ten"
    assert found.name_of([10]) is None
    with pytest.raises(FreeTicketsError, match="there is a number named 'ten' already"):
        found.register("ten", [10])


def is_number(thing):
    if not isinstance(thing, int):
        raise FreeTicketsError("not a number")


def test_what_is_of_another_kind_is_refused():
    with pytest.raises(FreeTicketsError, match="not a number"):
        numbers(is_number).register("ten", "10")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in ("a:b", "a.b:c.d", "_a:B")),
        *((name, False) for name in ("edst", "a:", "a:b:c", "C:/data", "wrn-28-10", "1a:b")),
    ],
)
def test_a_reference_is_a_module_and_a_name(name, is_one):
    assert is_reference(name) is is_one


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


def test_a_module_that_the_user_imported_is_looked_into_if_kinds_are_checked(module):
    import_reference("number", "own_numbers:three")
    assert numbers(is_number).find("own_numbers:three") == 3
    with pytest.raises(FreeTicketsError, match="not a number"):
        numbers(is_number).find("own_numbers:word")
    with pytest.raises(FreeTicketsError, match="not known here"):  # it could be any function
        numbers().find("own_numbers:three")


@pytest.mark.usefixtures("module")
def test_what_is_not_there_is_one_line():
    with pytest.raises(UnknownNameError, match="unknown name in own_numbers 'tree'"):
        numbers().load("own_numbers:tree")
    with pytest.raises(FreeTicketsError, match="cannot import nowhere_at_all"):
        numbers().load("nowhere_at_all:x")


def test_installed_packages_add_theirs(monkeypatch):
    point = importlib.metadata.EntryPoint("inf", "math:inf", "freetickets.numbers")

    def entry_points(group):
        return [point] if group == "freetickets.numbers" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    found = numbers()
    assert list(found) == ["one", "two", "inf"]
    assert found.find("inf") == float("inf")
