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
    """Compares two runs that are equal, whose trainings end with these codes; None: are killed."""
    board = tool.Board.at(tmp_path / "board", fresh=True)
    for name in ("peaceful", "killed"):
        (tmp_path / name / "tickets").mkdir(parents=True)
        (tmp_path / name / "tickets" / "01.safetensors").write_bytes(b"a")
        (tmp_path / name / "log.csv").write_text(f"step,seconds,sha256\n1,{len(name)},{name}\n")
        write_json(tmp_path / name / "ledger.json", {"phases": PHASES})

    def run(*codes, first=0):
        lives = iter(codes)

        def start(*_):
            board.first = first
            code = next(lives)
            said = {"poll": lambda: code, "wait": lambda: code or 0, "kill": lambda: None}
            return SimpleNamespace(**said), board

        monkeypatch.setattr(tool, "start", start)
        monkeypatch.setattr(tool, "position", lambda _: tool.Position(1, 3, 1))
        moments = ["start-up"] * (len(codes) - 2)
        return tool.compare(tmp_path, "edst", [], moments, random.Random(0), lambda _: None)

    return run


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
    outcome = compared(0, 0)  # as it is, the two differ in times only
    assert (outcome.good, outcome.tickets, outcome.identical, outcome.problems) == (True, 1, 1, ())
    (tmp_path / "killed" / file).parent.mkdir(exist_ok=True)
    (tmp_path / "killed" / file).write_text("step,seconds,sha256\n2,0,x\n")
    outcome = compared(0, 0)
    assert not outcome.good
    assert outcome.problems == problems
    assert "nothing lost" not in tool.summary([outcome])


def test_only_a_training_that_is_killed_and_goes_on_behind_what_is_saved_has_resumed(compared):
    for first, resumed in {0: 1, 1: 0, 33: 0, 34: 1, 35: 0}.items():
        outcome = compared(0, None, 0, first=first)
        assert (outcome.resumed, outcome.good) == (resumed, bool(resumed))
    assert compared(0, 0, 0).problems == ("edst was done before it could be killed 1 times",)
    assert compared(0, None, 2).problems == ("edst could not be resumed",)
    with pytest.raises(SystemExit, match="training of edst failed before anything was killed"):
        compared(2, 0)
