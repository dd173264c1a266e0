"""A small budget of what `tools/fuzz.py` does for hours, and whether it sees what it looks for."""

import io
from pathlib import Path

import numpy as np
import pytest
from fuzzing.kinds import KINDS
from fuzzing.trial import FAILURES, OTHER, REFUSED, SAME, WRONG, Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_damaged_loads_again_as_it_was(home, kind):
    bench = Bench(kind, home)
    for file in bench.kind.files:
        assert bench.load(file, (bench.folder / file).read_bytes()).word == SAME


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_in_one_line_or_loads_as_it_was(home, kind):
    bench = Bench(kind, home)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 32))
    def check(seed):
        outcome = bench.load(*bench.damage(str(seed)))
        assert outcome.word not in FAILURES, (outcome, seed)

    check()


@pytest.mark.parametrize(
    ("kind", "file"), [(name, file) for name, kind in KINDS.items() for file in kind.owned]
)
def test_a_file_of_another_run_is_refused(home, kind, file):
    bench = Bench(kind, home)
    assert bench.load(file, (bench.other / file).read_bytes(), refuse=True).word == REFUSED


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_failed_is_refused(home, path):
    """Files of the corpus are `<kind>/<number>-<file>`; each broke a loader when it was found."""
    bench = Bench(path.parent.name, home)
    name = path.name.partition("-")[2]
    (file,) = (file for file in bench.kind.files if Path(file).name == name)
    assert bench.load(file, path.read_bytes()).word == REFUSED


def test_the_judge_tells_a_whole_array_of_another_set_from_a_changed_one(home):
    bench = Bench("npz", home)
    own, other = (dict(np.load(folder / "data.npz")) for folder in (bench.folder, bench.other))

    def word(**changed):
        file = io.BytesIO()
        np.savez(file, **{**own, **changed})
        return bench.load("data.npz", file.getvalue()).word

    assert word() == SAME
    assert word(x_train=other["x_train"]) == OTHER
    assert word(x_train=255 - own["x_train"]) == WRONG
