from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets.seal import (
    BrokenSealError,
    open_table,
    open_text,
    open_values,
    seal_table,
    seal_text,
    seal_values,
)

VALUES = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key != "sha256"),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)
CELLS = st.text(string.ascii_letters + string.digits + " .-", max_size=5)
ROWS = st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=2, max_size=5)


@given(VALUES)
def test_values_come_back_without_their_seal(values):
    assert open_values(json.dumps(seal_values(values), indent=2)) == values


@given(VALUES, st.data())
def test_no_value_can_be_lost_added_or_changed(values, data):
    sealed = seal_values(values)
    key = data.draw(st.sampled_from(list(values)))
    changed = [
        {name: value for name, value in sealed.items() if name != key},
        {**sealed, key: [values[key]]},
        {**sealed, f"{key}+": 1},
        {f"{name}+" if name == "sha256" else name: value for name, value in sealed.items()},
        {"in": sealed},
    ]
    for each in changed:
        with pytest.raises(BrokenSealError):
            open_values(json.dumps(each))


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (open_values, '{"accuracy": 0.5}'),
        (open_values, "{}"),
        (open_values, "[1, 2]"),
        (open_text, "seed: 0\n"),
        (open_text, ""),
        (open_table, "a,b\n1,2\n"),
        (open_table, "a,b\n"),
        (open_table, ""),
    ],
)
def test_what_has_no_seal_is_refused(read, text):
    with pytest.raises(BrokenSealError):
        read(text)


def test_tuples_and_numbers_as_keys_are_sealed_as_json_has_them():
    values = {"pair": (1, 2), "by class": {3: 0.5}}
    assert open_values(json.dumps(seal_values(values))) == {"pair": [1, 2], "by class": {"3": 0.5}}


@given(st.text(string.printable, min_size=1), st.data())
def test_a_sealed_text_has_no_part_that_could_change(text, data):
    sealed = seal_text(text)
    assert open_text(sealed) == text
    place = data.draw(st.integers(0, len(sealed) - 1))
    for changed in (sealed[:place], f"{sealed[:place]}~{sealed[place:]}"):
        with pytest.raises(BrokenSealError):
            open_text(changed)


@given(ROWS, st.data())
def test_a_sealed_table_loses_gains_and_moves_no_row(rows, data):
    text = "".join(f"{','.join(row)}\n" for row in rows)
    sealed = seal_table(text, "mine")
    assert open_table(sealed, "mine") == text
    lines = sealed.splitlines(keepends=True)
    place = data.draw(st.integers(1, len(lines) - 1))
    changes = [lines[:place], [*lines, lines[place]], [*lines[:place], *lines[place + 1 :]]]
    for changed in changes:
        with pytest.raises(BrokenSealError):
            open_table("".join(changed), "mine")
    with pytest.raises(BrokenSealError):
        open_table(sealed, "other")
