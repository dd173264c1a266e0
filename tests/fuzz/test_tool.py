"""The tool itself: it must see what it looks for."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fuzzing.kinds import KINDS
from fuzzing.trial import MEMORY, REFUSED, TRACEBACK, Bench

from freetickets.errors import FreeTicketsError

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
