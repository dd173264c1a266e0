"""A small budget of what `tools/fuzz.py` does for hours, and whether it sees what it looks for."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fuzzing.kinds import KINDS
from fuzzing.trial import CHANGED, FAILURES, MEMORY, OTHER, REFUSED, SAME, TRACEBACK, WRONG, Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freetickets.errors import FreeTicketsError

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


def test_the_judge_tells_a_loader_that_lets_damage_pass(home):
    bench = Bench("idx", home)
    data = bytearray((bench.folder / "raw").read_bytes())
    data[-1] ^= 1
    assert bench.load("raw", bytes(data)).word == CHANGED  # nothing in the format can tell
    bench.kind = replace(bench.kind, sealed=True)
    assert bench.load("raw", bytes(data)).word == WRONG


TOOLS = Path(__file__).parents[2] / "tools"

# A loader with a fault for each trial, told by the only byte of the file.
FAULTY = """
import os, sys, time
from dataclasses import replace
import numpy as np
import fuzz
from fuzzing import trial

def load(folder):
    data = (folder / "raw").read_bytes()
    if len(data) > 1:
        return 0
    if data == b"0":
        raise KeyError("no line for people")
    if data == b"1":
        return np.ones(300 << 20)
    time.sleep(100) if data == b"2" else os._exit(9)

trial.KINDS["idx"] = replace(trial.KINDS["idx"], load=load)
trial.Bench.damage = lambda self, seed: ("raw", seed.split()[1].encode(), False)
fuzz._SECONDS = 2.0

if __name__ == "__main__":
    sys.exit(fuzz.main(["--kind", "idx", "--trials", "4", "--keep", sys.argv[1]]))
"""


@pytest.mark.slow
def test_a_traceback_a_flood_a_hang_and_a_crash_are_each_seen_and_kept(tmp_path):
    script = tmp_path / "faulty.py"
    code = f"import sys; sys.path.insert(0, {str(TOOLS)!r})\n"
    script.write_text(code + FAULTY)
    command = [sys.executable, str(script), str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    faults = [line.partition(" raw: ")[2] for line in done.stdout.splitlines()[:4]]
    assert [fault.split()[0] for fault in faults] == ["traceback", "memory", "hang", "crash"]
    kept = sorted((tmp_path / "kept").iterdir())
    assert [path.read_bytes() for path in kept] == [b"0", b"1", b"2", b"3"]


def test_memory_behind_a_message_and_a_message_of_two_lines_are_seen(home):
    def fail(data):
        if data != b"memory":
            raise FreeTicketsError(data.decode())
        try:
            raise MemoryError
        except MemoryError as error:
            raise FreeTicketsError("it is damaged") from error

    bench = Bench("idx", home)
    bench.kind = replace(KINDS["idx"], load=lambda folder: fail((folder / "raw").read_bytes()))
    for data, word in (("memory", MEMORY), ("one line", REFUSED), ("two\nlines", TRACEBACK)):
        assert bench.load("raw", data.encode()).word == word
