import hashlib
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets import seal
from freetickets.errors import NewerFileError
from freetickets.seal import BrokenSealError, open_table, open_text, open_values, seal_values

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
PLAIN |= st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
VALUES = st.dictionaries(st.text(max_size=5), TREES, min_size=1, max_size=4)
CELLS = st.text(string.ascii_letters + string.digits + " .-", max_size=5)
ROWS = st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=2, max_size=5)


@given(VALUES, st.data())
def test_no_value_can_be_lost_added_or_changed(values, data):
    sealed = seal_values(values)
    assert open_values(json.dumps(sealed, indent=2)) == values
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


def test_what_has_no_seal_is_refused_and_values_without_a_stamp_are_read():
    values, table = ('{"accuracy": 0.5}', "{}", "[1, 2]"), ("a,b\n1,2\n", "a,b\n", "")
    for read, texts in ((open_values, values), (open_text, ("seed: 0\n", "")), (open_table, table)):
        for text in texts:
            with pytest.raises(BrokenSealError):
                read(text)
    digest = hashlib.sha256(b'{"a": 1}').hexdigest()
    assert open_values(json.dumps({"sha256": digest, "a": 1})) == {"a": 1}
    values = {"pair": (1, 2), "by class": {3: 0.5}}
    assert open_values(json.dumps(seal_values(values))) == {"pair": [1, 2], "by class": {"3": 0.5}}


def test_later_formats_none_and_numbers_that_nothing_can_hold_are_refused(monkeypatch):
    for number in ("9" * 20, "-" + "9" * 20, "9" * 400, "1e999", "-Infinity"):
        sealed = json.dumps({"sha256": "", "accuracy": [0]}).replace("0", number)
        with pytest.raises(ValueError, match=r"digits|not a number"):
            open_values(sealed)
    for version in (0, -1, "1", None, True, 1.5, [1]):
        with pytest.raises(ValueError, match="its format is"):
            seal.unstamp({"version": version})
    monkeypatch.setattr(seal, "FORMAT", 2)
    monkeypatch.setattr(seal, "__version__", "7.0")
    text = json.dumps(seal_values({"accuracy": 0.5}))
    assert open_values(text) == {"accuracy": 0.5}
    monkeypatch.setattr(seal, "FORMAT", 1)
    told = r"^is of format 2.*the version that wrote it \(7\.0\)"
    with pytest.raises(NewerFileError, match=told):
        open_values(text)


@given(st.text(string.printable, min_size=1), st.data())
def test_a_sealed_text_has_no_part_that_could_change(text, data):
    sealed = seal.seal_text(text)
    assert open_text(sealed) == text
    place = data.draw(st.integers(0, len(sealed) - 1))
    for changed in (sealed[:place], f"{sealed[:place]}~{sealed[place:]}"):
        with pytest.raises(BrokenSealError):
            open_text(changed)


@given(ROWS, st.data())
def test_a_sealed_table_loses_gains_and_moves_no_row(rows, data):
    text = "".join(f"{','.join(row)}\n" for row in rows)
    sealed = seal.seal_table(text, "mine")
    assert open_table(sealed, "mine") == text
    lines = sealed.splitlines(keepends=True)
    place = data.draw(st.integers(1, len(lines) - 1))
    changes = [lines[:place], [*lines, lines[place]], [*lines[:place], *lines[place + 1 :]]]
    for changed in changes:
        with pytest.raises(BrokenSealError):
            open_table("".join(changed), "mine")
    with pytest.raises(BrokenSealError):
        open_table(sealed, "other")
