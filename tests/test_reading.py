"""The one strict reader: what it makes of plain values, and the one line for all that is wrong."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

from freetickets import reading
from freetickets.errors import DamagedFileError, FreeTicketsError, NewerFileError, UnknownNameError
from freetickets.reading import Allow, Count, Natural, Text, damaged, read, read_fields, read_json
from freetickets.storage import write_json


@dataclass(frozen=True)
class Part:
    name: Text
    sizes: tuple[Count, ...] = ()


@dataclass(frozen=True)
class Whole:
    share: float
    parts: Mapping[str, Part]
    pair: tuple[int, str] = (0, "")
    best: Natural | None = None

    def __post_init__(self):
        if self.share > 1:
            raise ValueError("share is above 1")


def test_plain_values_become_data_classes_of_the_fields_that_are_there(refused):
    values = {"share": 1, "parts": {"a": {"name": "x", "sizes": [1, 2]}}, "pair": [3, "y"]}
    whole = read(Whole, values)
    assert whole == Whole(1.0, {"a": Part("x", (1, 2))}, (3, "y"))
    assert type(whole.share) is float
    assert read(Whole, {"share": np.float32(0.5), "parts": {}, "best": np.int64(2)}).best == 2
    assert read(Part, {"name": "red\x1b[31m\nb\u202e"}).name == "red�[31m�b�"  # for people
    for value in (None, "text", [["share", 1]]):
        refused(r"^it must be a map, not", read, Whole, value)
        refused("settings must be a map", read_fields, Whole, value, "settings")
    for kind in (Whole, {"best": Natural | None, "share": float}):
        assert read_fields(kind, {"best": 2}) == {"best": 2}
        with pytest.raises(UnknownNameError, match="unknown option of edst 'bset'"):
            read_fields(kind, {"bset": 2}, noun="option of edst")


def test_what_is_not_of_its_type_or_range_is_one_line_with_its_place(refused):
    for change, message in (
        ({"share": "0.5"}, "share must be a number, not '0.5'"),
        ({"share": "x" * 10_000}, "share must be a number, not 'xxx"),
        ({"share": True}, "share must be a number, not True"),
        ({"share": None}, "share must be a number, not None"),
        ({"share": math.inf}, "share must be a finite number, not inf"),
        ({"share": math.nan}, "share must be a finite number, not nan"),
        ({"share": 10**400}, "share must be a finite number"),
        ({"share": 2}, "share is above 1"),
        ({"best": -1}, "best must be at least 0, not -1"),
        ({"best": 1.0}, "best must be a whole number, not 1.0"),
        ({"best": True}, "best must be a whole number, not True"),
        ({"best": 2**63}, "best must be a number of fewer digits"),
        ({"parts": []}, r"parts must be a map, not \[\]"),
        ({"parts": {1: {"name": "x"}}}, "a key of parts must be text, not 1"),
        ({"parts": {"a": None}}, "parts.a must be a map, not None"),
        ({"parts": {"a": {}}}, "parts.a lacks name"),
        ({"parts": {"a": {"name": 3}}}, "parts.a.name must be text, not 3"),
        ({"parts": {"a": {"name": "x", "sizes": [1, 0]}}}, r"sizes\[1\] must be at least 1, not 0"),
        ({"parts": {"a": {"name": "x", "sizes": "12"}}}, "parts.a.sizes must be a list, not '12'"),
        ({"pair": [1]}, r"pair must be a list of 2, not \[1\]"),
        ({"pair": ["1", "y"]}, r"pair\[0\] must be a whole number, not '1'"),
        ({"pairs": [1, "y"]}, "unknown key 'pairs': did you mean 'pair'"),
    ):
        error = refused(message, read, Whole, {"share": 0.5, "parts": {}, **change})
        assert len(str(error)) < 100  # however long a value is


def test_ranges_end_where_they_say_and_files_may_differ_only_as_allowed(refused):
    short = Annotated[str, reading.must("be short", lambda text: len(text) < 3)]
    for kind, good, bad in (
        (Count, [1, 7], [0, -1]),
        (Natural, [0, 7], [-1]),
        (reading.Positive, [1e-9, 1], [0, -0.5]),
        (reading.NotNegative, [0, 0.5], [-1e-9]),
        (short, ["", "ab"], ["abc"]),
        (bool, [True], [1]),
        (int | tuple[int, ...] | None, [3, (1, 2), None], ["x"]),
    ):
        assert [read(kind, value) for value in good] == good
        for value in bad:
            refused(r"^it must ", read, kind, value)
    assert read(float, "1e-3", allow=Allow.TEXTS) == 1e-3
    assert read(int | None, "", allow=Allow.TEXTS) is None
    refused(r"must be a whole number, not '1\.5'", read, int, "1.5", allow=Allow.TEXTS)
    for text in ("nan", "-inf", "1e999"):
        refused("must be a finite number", read, float, text, allow=Allow.TEXTS)
    assert math.isnan(read(float, None, allow=Allow.NULLS))
    refused("must be a whole number, not None", read, int, None, allow=Allow.NULLS)
    later = {"share": 0.5, "parts": {"a": {"name": "x", "colour": 1}}, "size": 3}
    assert read(Whole, later, allow=Allow.UNKNOWN).parts["a"] == Part("x")
    left = {"share": 0.5, "parts": later["parts"]}
    refused(r"unknown key of parts\.a 'colour'", read, Whole, left, allow=Allow.NULLS)


def test_damage_is_one_line_with_the_file_and_what_to_do_and_nothing_else_is_called_so():
    path = Path("run/ledger.json")
    for error, reason in (
        (ValueError("two\nlines"), "two lines"),
        (KeyError("seconds"), "no 'seconds'"),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (FreeTicketsError("seed must be at least 0"), "seed must be at least 0"),
        (TypeError(), "TypeError"),
    ):
        raised = pytest.raises(DamagedFileError)
        with raised as caught, damaged(path, "train again"), damaged(path):  # told once
            raise error
        assert str(caught.value) == f"{path} is damaged ({reason}): train again"
    for error, kind, said in (
        (NewerFileError("is of format 9"), NewerFileError, r"^a\.json is of format 9$"),
        (MemoryError(), MemoryError, "^$"),
        (RuntimeError("can't allocate memory"), RuntimeError, "^can't allocate memory$"),
        (UnknownNameError("key", "a", ["b"]), UnknownNameError, "^unknown key"),
    ):
        with pytest.raises(kind, match=said), damaged("a.json", but=UnknownNameError):
            raise error


def test_files_of_values_and_yaml_are_read_as_they_were_written_or_refused(refused, tmp_path):
    path = tmp_path / "a.json"
    refused(r"can't read .*: No such file", read_json, path)
    write_json(path, {"seconds": 0.5, "steps": [1, None]})
    assert read_json(path) == {"seconds": 0.5, "steps": [1, None]}
    for content in (b"", b"\xff", b"[]", b"[" * 100_000, path.read_bytes()[:-3]):
        path.write_bytes(content)
        assert isinstance(refused(r"a\.json is damaged", read_json, path), DamagedFileError)
    for text, message in (
        ("a: [", "is not valid YAML"),
        ("a: &x 1\nb: *x", "aliases"),
        ("a: " + "[" * 30 + "]" * 30, "nested too deeply"),
        ("a: " + "[" * 5000, "nested too deeply|not valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("a: 2024-13-45", "is not valid YAML"),
    ):
        refused(f"settings.yaml .*({message})", reading.parse_yaml, text, "settings.yaml")
    ours = reading.parse_yaml("a: &x [1]\nb: *x", "grid.yaml", aliases=True)
    assert ours == {"a": [1], "b": [1]}
