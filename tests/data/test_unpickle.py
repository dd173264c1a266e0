from __future__ import annotations

import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from freetickets.data.unpickle import read_pickle
from freetickets.errors import FreeTicketsError

CONTENT = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [2, 0, 1]}


def test_the_dialect_of_cifar_is_read(tmp_path, write_pickle):
    write_pickle(tmp_path / "a", CONTENT)
    content = read_pickle(tmp_path / "a")
    assert np.array_equal(content["data"], CONTENT[b"data"])
    assert content["labels"] == [2, 0, 1]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("run",)


def test_nothing_in_a_pickle_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in (Evil(), {"data": Evil()}):
        (tmp_path / "evil").write_bytes(pickle.dumps(value, protocol=2))
        with pytest.raises(FreeTicketsError, match=r"wants to run posix\.mkdir"):
            read_pickle(tmp_path / "evil")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dtype", [np.int64, object])
def test_arrays_of_anything_but_bytes_are_refused(tmp_path, write_pickle, dtype):
    write_pickle(tmp_path / "a", {b"data": np.zeros(3, dtype)})
    with pytest.raises(FreeTicketsError, match="not of bytes"):
        read_pickle(tmp_path / "a")


def test_a_pickle_of_something_else_and_no_file_are_refused(tmp_path, write_pickle):
    write_pickle(tmp_path / "a", [1, 2])
    with pytest.raises(FreeTicketsError, match="no dictionary"):
        read_pickle(tmp_path / "a")
    with pytest.raises(FreeTicketsError, match="cannot read"):
        read_pickle(tmp_path / "b")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, 150),
    flips=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
@example(cut=0, flips=[(18, 92)])  # an escape in a text that is none
def test_a_damaged_pickle_is_one_clear_error_or_data(tmp_path, write_pickle, cut, flips):
    path = tmp_path / "a"
    write_pickle(path, CONTENT)
    content = bytearray(path.read_bytes())
    for position, value in flips:
        content[position % len(content)] = value
    path.write_bytes(content[: len(content) - cut])
    with contextlib.suppress(FreeTicketsError):
        read_pickle(path)
