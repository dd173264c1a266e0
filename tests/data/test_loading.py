from __future__ import annotations

import pytest

from freetickets.data import get_spec, load
from freetickets.data.root import data_root
from freetickets.errors import FreeTicketsError, UnknownNameError


def test_only_two_splits_exist():
    with pytest.raises(FreeTicketsError, match="choose 'train' or 'test'"):
        load("fashion-mini", "validation")


def test_a_name_and_its_spec_load_the_same():
    by_name, by_spec = (load(x, "test") for x in ("fashion-mini", get_spec("fashion-mini")))
    assert by_name.inputs.equal(by_spec.inputs)


def test_an_unknown_name_is_unknown_here_too(no_data):
    with pytest.raises(UnknownNameError):
        load("fashion", "test")


def test_the_data_root_is_the_argument_then_the_environment_then_data(monkeypatch):
    monkeypatch.setenv("FREETICKETS_DATA", "/from/environment")
    assert data_root("/from/argument").as_posix() == "/from/argument"
    assert data_root().as_posix() == "/from/environment"
    monkeypatch.delenv("FREETICKETS_DATA")
    assert data_root().as_posix() == "data"
