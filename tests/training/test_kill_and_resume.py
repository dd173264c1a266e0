"""The tool that kills real processes, with few kills."""

import random
from types import SimpleNamespace

import pytest

from freetickets.kernels.library import available
from freetickets.storage import write_json

from ..tools.loading import load_script

# Two runs of two phases each: 10 and 20 steps, then 5 and 15.
PHASES = [
    {"run": run, "phase": phase, "steps": steps}
    for run, phase, steps in [(1, "a", 10), (1, "b", 20), (2, "a", 5), (2, "b", 15)]
]


@pytest.fixture(scope="module")
def tool():
    return load_script("tools/kill_and_resume.py")


@pytest.mark.slow
def test_a_training_killed_in_a_step_and_in_a_write_ends_the_same(tool, tmp_path, capfd):
    flags = ["--model", "mlp-8", "--epochs", "4", "--tickets", "2", "--interval", "20"]
    flags += ["--backend", "sparse" if available() else "masked"]
    lines: list[str] = []
    outcome = tool.compare(
        tmp_path, "edst", flags, ["step", "write"], random.Random(0), lines.append
    )
    assert outcome.good
    assert outcome.kills[0].place in ("step", "write")  # which comes often
    assert outcome.kills[1].place == "write"
    first, second, summary = lines
    assert first.startswith("edst, kill 1: explore of run 1, ")
    assert ", writing " in second
    assert "; 2 resumed where they were saved; 2 of 2 tickets identical; " in summary
    assert summary.endswith("nothing lost, nothing left behind")
    assert capfd.readouterr().err == ""


@pytest.fixture
def compared(tool, tmp_path, monkeypatch):
    """Compares two finished runs that are equal but for the times."""
    board = tool.Board.at(tmp_path / "board", fresh=True)
    for name in ("peaceful", "killed"):
        (tmp_path / name / "tickets").mkdir(parents=True)
        (tmp_path / name / "tickets" / "01.safetensors").write_bytes(b"a")
        (tmp_path / name / "log.csv").write_text(f"step,seconds,sha256\n1,{len(name)},{name}\n")
        write_json(tmp_path / name / "ledger.json", {"phases": PHASES})

    ended = SimpleNamespace(**dict.fromkeys(("poll", "wait", "kill"), lambda: 0))
    monkeypatch.setattr(tool, "start", lambda *_: (ended, board))
    return lambda: tool.compare(tmp_path, "edst", [], [], random.Random(0), lambda _: None)


@pytest.mark.parametrize(
    ("file", "problems"),
    [
        ("tickets/01.safetensors", ()),
        ("tickets/02.safetensors", ("edst has other tickets: 01.safetensors, 02.safetensors",)),
        ("log.csv", ("the log of edst differs",)),
        ("checkpoint/.7.safetensors.x", ("edst left .7.safetensors.x behind",)),
    ],
)
def test_any_difference_is_told(tool, compared, tmp_path, file, problems):
    outcome = compared()  # as it is, the two differ in times only
    assert (outcome.good, outcome.tickets, outcome.identical, outcome.problems) == (True, 1, 1, ())
    (tmp_path / "killed" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "killed" / file).write_text("step,seconds,sha256\n2,0,x\n")
    outcome = compared()
    assert not outcome.good
    assert outcome.problems == problems
    assert "nothing lost" not in tool.summary([outcome])
