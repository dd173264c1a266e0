"""The tool that kills real processes, with few kills."""

import importlib.util
import itertools
import random
import sys
from pathlib import Path

import pytest

from freetickets.kernels.library import available
from freetickets.storage import write_json

TOOL = Path(__file__).parents[2] / "tools" / "kill_and_resume.py"

# Two runs of two phases each: 10 and 20 steps, then 5 and 15.
PHASES = [
    {"run": run, "phase": phase, "steps": steps}
    for run, phase, steps in [(1, "a", 10), (1, "b", 20), (2, "a", 5), (2, "b", 15)]
]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("kill_and_resume", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where data classes look for their own names
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def course(tool, tmp_path):
    write_json(tmp_path / "ledger.json", {"phases": PHASES})
    return tool.Course(tmp_path)


@pytest.fixture
def board(tool, tmp_path):
    return tool.Board(tmp_path / "board", fresh=True)


@pytest.mark.slow
def test_a_training_killed_in_a_step_and_in_a_write_ends_with_the_same_tickets(
    tool, tmp_path, capfd
):
    flags = ["--model", "mlp-8", "--epochs", "4", "--tickets", "2", "--interval", "20"]
    flags += ["--backend", "sparse" if available() else "masked"]
    moments: list[str] = ["step", "write"]
    lines: list[str] = []
    outcome = tool.compare(tmp_path, "edst", flags, moments, random.Random(0), lines.append)
    assert outcome.good
    assert outcome.kills[0].place in ("step", "write")  # which comes often
    assert outcome.kills[1].place == "write"
    first, second, summary = lines
    assert first.startswith("edst, kill 1: explore of run 1, ")
    assert ", writing " in second
    assert "; 2 resumed where they were saved; 2 of 2 tickets identical; " in summary
    assert summary.endswith("nothing lost, nothing left behind")
    assert capfd.readouterr().err == ""


def test_steps_are_counted_over_all_runs(tool, course):
    assert course.steps == 50
    assert [course.name(step) for step in (1, 10, 11, 30, 31, 50)] == [
        *("a of run 1", "a of run 1", "b of run 1", "b of run 1", "a of run 2", "b of run 2")
    ]
    assert course.count(tool.Position(0, 7, 0)) == 7
    assert course.count(tool.Position(1, 3, 1)) == 33
    assert course.count(tool.Position(2, 0, 2)) == 50


def test_a_kill_is_told_by_what_it_leaves(tool, course, board):
    saved = tool.Position(1, 3, 1)

    def told(torn=()):
        return tool.line("dst", 4, course, tool.describe(board, course, saved, torn))

    rest = "saved at step 33 of 50 with 1 tickets"
    assert told() == (f"dst, kill 4: a of run 2, in start-up; {rest}, 0 steps (0.000 s) to repeat")
    board[tool.Board.FIRST], board[tool.Board.LAST] = 31, 35
    board[tool.Board.SAVED_AT], board[tool.Board.LAST_AT] = 10**9, 1_030_000_000
    assert told() == f"dst, kill 4: b of run 2, in a step; {rest}, 2 steps (0.030 s) to repeat"
    assert told((Path("checkpoint/.000007.safetensors.x1_y"),)) == (
        f"dst, kill 4: a of run 2, writing checkpoint/000007.safetensors; {rest}, 2 steps "
        "(0.030 s) to repeat"
    )
    board[tool.Board.LAST] = 50
    assert "b of run 2, behind the last step" in told()


def test_only_a_process_that_goes_on_behind_what_is_saved_has_resumed(tool, course, board):
    saved = tool.Position(1, 3, 1)
    found = {}
    for first in (0, 1, 33, 34, 35):
        board[tool.Board.FIRST] = first
        found[first] = tool.goes_on(board, course, saved)
    assert found == {0: True, 1: False, 33: False, 34: True, 35: False}


class Done:
    """A process that has ended."""

    def __init__(self, code=0):
        self._code = code

    def poll(self):
        return self._code

    def wait(self):
        return self._code


@pytest.fixture
def ended(tool, tmp_path, board, monkeypatch):
    """Two runs that are equal, and a training that is over at once."""
    for name in ("peaceful", "killed"):
        (tmp_path / name / "tickets").mkdir(parents=True)
        (tmp_path / name / "tickets" / "01.safetensors").write_bytes(b"a")
        (tmp_path / name / "log.csv").write_text(f"step,seconds,sha256\n1,{len(name)},{name}\n")
        write_json(tmp_path / name / "ledger.json", {"phases": PHASES})
    monkeypatch.setattr(tool, "start", lambda *_: (Done(), board))
    return tmp_path


def compared(tool, folder, moments=()):
    return tool.compare(folder, "edst", [], moments, random.Random(0), lambda _: None)


def test_runs_that_differ_in_times_only_are_good(tool, ended):
    outcome = compared(tool, ended)
    assert outcome.good
    assert (outcome.tickets, outcome.identical, outcome.problems) == (1, 1, ())


@pytest.mark.parametrize(
    ("file", "problems"),
    [
        ("tickets/01.safetensors", ()),
        ("tickets/02.safetensors", ("edst has other tickets: 01.safetensors, 02.safetensors",)),
        ("log.csv", ("the log of edst differs",)),
        ("checkpoint/.7.safetensors.x", ("edst left .7.safetensors.x behind",)),
    ],
)
def test_any_difference_is_told(tool, ended, file, problems):
    (ended / "killed" / file).parent.mkdir(exist_ok=True)
    (ended / "killed" / file).write_text("step,seconds,sha256\n2,0,x\n")
    outcome = compared(tool, ended)
    assert not outcome.good
    assert outcome.problems == problems
    assert "nothing lost" not in tool.summary([outcome])


def test_a_training_that_ends_before_its_kill_is_told(tool, ended):
    outcome = compared(tool, ended, ("step",))
    assert not outcome.good
    assert outcome.problems == ("edst was done before it could be killed 1 times",)


def test_a_training_that_fails_in_peace_ends_all(tool, ended, board, monkeypatch):
    monkeypatch.setattr(tool, "start", lambda *_: (Done(2), board))
    with pytest.raises(SystemExit, match="training of edst failed before anything was killed"):
        compared(tool, ended)


def test_kills_are_shared_out_and_all_moments_come_in_turn(tool, tmp_path, monkeypatch, capsys):
    calls: dict[str, list[str]] = {}
    good = {"edst": True, "pf": True, "ltr": True}

    def compare(folder, method, flags, moments, *_):
        calls[method] = moments
        kill = tool.Kill("step", "in a step", tool.Position(0, 1, 0), 1, 2, 0.01)
        kills = (kill,) * len(moments)
        return tool.Outcome(kills, len(kills), len(kills), 3, 2 + good[method], ())

    monkeypatch.setattr(tool, "compare", compare)
    log = tmp_path / "kills.txt"
    arguments = ["--kills", "10", "--log", str(log), "--methods", *good]
    assert tool.main(arguments) == 0
    assert {method: len(moments) for method, moments in calls.items()} == {
        "edst": 3, "pf": 3, "ltr": 4,
    }  # fmt: skip
    assert list(itertools.chain(*calls.values())) == [*tool.MOMENTS, *tool.MOMENTS, "step", "write"]
    assert log.read_text() == capsys.readouterr().out
    assert (
        log.read_text()
        .splitlines()[-1]
        .startswith(
            "10 kills (10 in step); 10 resumed where they were saved; 9 of 9 tickets identical; at "
            "most 2 steps, 0.010 s, to repeat"
        )
    )
    good["pf"] = False
    assert tool.main(arguments) == 1
    assert "8 of 9 tickets identical" in capsys.readouterr().out
