"""The tool that kills real processes, with few kills."""

import importlib.util
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


@pytest.mark.slow
def test_a_training_killed_in_a_step_and_in_a_write_ends_with_the_same_tickets(
    tool, tmp_path, capfd
):
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
def board(tool, tmp_path):
    return tool.Board.at(tmp_path / "board", fresh=True)


def test_a_kill_is_told_by_what_it_leaves_in_steps_of_all_runs(tool, board, tmp_path):
    write_json(tmp_path / "ledger.json", {"phases": PHASES})
    course = tool.Course(tmp_path)
    assert course.steps == 50
    names = [course.name(step) for step in (1, 10, 11, 30, 31, 50)]
    assert names == [f"{phase} of run {run}" for phase, run in zip("aabbab", "111122", strict=True)]
    places = [tool.Position(0, 7, 0), tool.Position(1, 3, 1), tool.Position(2, 0, 2)]
    assert list(map(course.count, places)) == [7, 33, 50]

    def told(torn=()):
        return tool.describe(board, course, places[1], torn)[1]

    rest = "saved at step 33 of 50 with 1 tickets"
    assert told() == f"a of run 2, in start-up; {rest}, 0 steps (0.000 s) to repeat"
    board.first, board.last, board.saved_at, board.last_at = 31, 35, 10**9, 1_030_000_000
    assert told() == f"b of run 2, in a step; {rest}, 2 steps (0.030 s) to repeat"
    assert told((Path("checkpoint/.000007.safetensors.x1_y"),)) == (
        f"a of run 2, writing checkpoint/000007.safetensors; {rest}, 2 steps (0.030 s) to repeat"
    )
    board.last = 50
    assert told().startswith("b of run 2, behind the last step; ")


class Process:
    """A training of which a test decides how it ends, and where it begins."""

    def __init__(self, code):
        self._code = code

    def poll(self):
        return self._code

    def wait(self):
        return self._code or 0

    def kill(self):
        pass


@pytest.fixture
def compared(tool, tmp_path, board, monkeypatch):
    """Compares two runs that are equal, whose trainings end with these codes; None: are killed."""
    for name in ("peaceful", "killed"):
        (tmp_path / name / "tickets").mkdir(parents=True)
        (tmp_path / name / "tickets" / "01.safetensors").write_bytes(b"a")
        (tmp_path / name / "log.csv").write_text(f"step,seconds,sha256\n1,{len(name)},{name}\n")
        write_json(tmp_path / name / "ledger.json", {"phases": PHASES})

    def run(*codes, first=0):
        lives = iter(codes)

        def start(*_):
            board.first = first
            return Process(next(lives)), board

        monkeypatch.setattr(tool, "start", start)
        monkeypatch.setattr(tool, "position", lambda _: tool.Position(1, 3, 1))
        moments = ["start-up"] * (len(codes) - 2)
        return tool.compare(tmp_path, "edst", [], moments, random.Random(0), lambda _: None)

    return run


def test_runs_that_differ_in_times_only_are_good(compared):
    outcome = compared(0, 0)
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
def test_any_difference_is_told(tool, compared, tmp_path, file, problems):
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


def test_kills_are_shared_out_and_all_moments_come_in_turn(tool, tmp_path, monkeypatch, capsys):
    calls: dict[str, list[str]] = {}
    good = {"edst": True, "pf": True, "ltr": True}

    def compare(folder, method, flags, moments, *_):
        calls[method] = moments
        kills = (tool.Kill("step", 2, 0.01),) * len(moments)
        return tool.Outcome(kills, len(kills), len(kills), 3, 2 + good[method], ())

    monkeypatch.setattr(tool, "compare", compare)
    log = tmp_path / "kills.txt"
    arguments = ["--kills", "10", "--log", str(log), "--methods", *good]
    assert tool.main(arguments) == 0
    assert [len(calls[method]) for method in good] == [3, 3, 4]
    chosen = [moment for own in calls.values() for moment in own]
    assert chosen == [*tool.MOMENTS, *tool.MOMENTS, "step", "write"]
    assert log.read_text() == capsys.readouterr().out
    assert log.read_text().splitlines()[-1].startswith(
        "10 kills (10 in step); 10 resumed where they were saved; 9 of 9 tickets identical; at "
        "most 2 steps, 0.010 s, to repeat"
    )  # fmt: skip
    good["pf"] = False
    assert tool.main(arguments) == 1
    assert "8 of 9 tickets identical" in capsys.readouterr().out
