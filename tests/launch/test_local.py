"""Real processes: they are lost, stopped and killed, and the run ends as if they were not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freetickets.launch import Assignment, News, local
from freetickets.launch.assignment import Log
from freetickets.lock import hold


def start(arguments, **more):
    command = [sys.executable, "-m", "freetickets", *map(str, arguments)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes, **more)


def start_two(arguments, part, run):
    """Starts two members side by side, and returns when both are under way."""
    process = start([*arguments, "--jobs", 2])
    for number in (1, 2):
        part(run, number).wait(lambda part: part.epochs >= 3)
    return process


def test_two_side_by_side_equal_the_serial_run(cli, command, finished, assert_same, tmp_path):
    answer = cli(*command("dst"), "-o", tmp_path / "run", "--launcher", "local", "--jobs", 2)
    assert (answer.code, answer.err) == (0, "")
    assert_same(tmp_path / "run", finished("dst"))


@pytest.mark.slow
def test_a_killed_worker_starts_again_and_ends_the_same(
    cli, command, finished, long, assert_same, part, tmp_path, monkeypatch
):
    run, killed, launch = tmp_path / "run", [], local.launch

    def with_a_kill(assignments, jobs):
        told = launch(assignments, jobs)
        for news in told:
            if not killed and part(run, 2).epochs >= 5:
                killed.append(part(run, 2).holder)
                os.kill(killed[0], signal.SIGKILL)
            yield news

    monkeypatch.setattr(local, "launch", with_a_kill)
    arguments = [each for each in command("dst", long) if each != "--quiet"]
    answer = cli(*arguments, "-o", run, "--jobs", 2)
    assert answer.code == 0
    assert "warning: run 2 of 2: its process was lost (SIGKILL): it starts again" in answer.err
    assert f"process {killed[0]} on" in answer.err  # its lock was taken over
    assert "run 2 of 2: resuming run 2 after step" in answer.err
    assert_same(run, finished("dst", long))


@pytest.mark.slow
def test_ctrl_c_stops_and_saves_all_and_a_serial_command_goes_on(
    cli, command, finished, long, assert_same, part, tmp_path
):
    run = tmp_path / "run"
    process = start_two([*command("dst", long), "-o", run], part, run)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.startswith("freetickets: stopped; everything is saved: run the same command again")
    assert said.count("\n") == 1
    assert [part(run, number).holder for number in (1, 2)] == [None, None]
    assert cli(*command("dst", long), "-o", run).code == 0  # without --jobs
    assert_same(run, finished("dst", long))


@pytest.mark.slow
def test_when_the_launcher_is_killed_its_workers_save_and_stop(
    cli, command, finished, long, assert_same, part, tmp_path
):
    run = tmp_path / "run"
    process = start_two([*command("dst", long), "-o", run], part, run)
    process.kill()
    process.communicate()
    for number in (1, 2):
        part(run, number).wait(lambda part: part.holder is None)  # released, not left behind
    assert cli(*command("dst", long), "-o", run, "--jobs", 2).code == 0
    assert_same(run, finished("dst", long))


SLEEPY = """
import time, torch
from pathlib import Path
def build():
    if Path("run/.lock").exists():
        Path("asleep").touch()
        time.sleep(100)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
"""


def test_a_worker_stopped_outside_of_training_leaves_no_lock(command, tmp_path, monkeypatch):
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    monkeypatch.chdir(tmp_path)
    arguments = [*command("dense"), "--model", "sleepy:build", "-o", "run"]
    worker = local.python("freetickets.cli.worker", arguments)
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(worker, text=True, **pipes)
    until = time.monotonic() + 120
    while not Path("asleep").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    _, said = process.communicate(timeout=60)  # which ends its input
    assert (process.returncode, said) == (130, "freetickets: interrupted\n")
    assert not Path("run/.lock").exists()


def test_second_commands_are_refused_and_mistakes_not_tried_again(cli, one_line, command, tmp_path):
    line = one_line(cli(*command("dst"), "-o", tmp_path, "--jobs", 2, "--lr", "1e30"))
    assert line.startswith("freetickets: run ")
    assert "is not finite" in line
    with hold(tmp_path / "run"):
        run = tmp_path / "run"
        for process in [start([*command("dst"), "-o", run]), start(["evaluate", run])]:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 2
            (line,) = said.splitlines()
            assert f"is in use by process {os.getpid()} on " in line


CRASH = """
import os
def build(): os._exit(3)
"""


def test_a_process_that_is_always_lost_is_given_up(command, tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text(CRASH)
    monkeypatch.chdir(tmp_path)
    arguments = (*command("dst"), "--model", "crashing:build", "-o", "run", "--part", "0")
    assignment = Assignment("one", arguments, tmp_path / "log.txt")
    told = list(local.launch([assignment], jobs=1, retries=1))
    ends = [news for news in told if news.kind != "line"]
    assert [news.kind for news in ends] == ["again", "failed"]
    assert ends[-1].text == f"its process was lost (exit code 3) 2 times: see {assignment.log}"


def test_what_is_left_early_leaves_no_process(command, long, part, tmp_path):
    arguments = (*command("dst", long), "-o", str(tmp_path / "parts" / "1"), "--part", "0")
    loud = tuple(each for each in arguments if each != "--quiet")
    assignment = Assignment("one", loud, tmp_path / "log")
    told = local.launch([assignment], jobs=1)
    assert next(told).kind == "line"
    process = part(tmp_path, 1).holder
    told.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    checkpoints = list((tmp_path / "parts" / "1" / "checkpoint").iterdir())
    assert checkpoints  # it has saved


def test_cores_are_shared_and_only_whole_lines_told_once(monkeypatch, tmp_path):
    monkeypatch.setattr(local, "cores", lambda: 8)
    assert local._environment(3)["OMP_NUM_THREADS"] == "1"  # the fixture's
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert [local._environment(jobs)["OMP_NUM_THREADS"] for jobs in (1, 3, 9)] == ["8", "2", "1"]
    assignment = Assignment("one", (), tmp_path / "log")
    assignment.log.write_text("of an earlier life\n")
    log = Log(assignment)
    with assignment.log.open("a") as file:
        for text in ("a\nb", "c\n\nfreetickets: no\n", ""):
            file.write(text)
            file.flush()
            told = [news.text for news in log.news()]
            assert told == {"a\nb": ["a"], "": []}.get(text, ["bc"])
    assert log.end(2, 3) == News(assignment, "failed", "no")


@pytest.mark.slow
def test_cells_side_by_side_measure_what_they_do_one_by_one(cli, tmp_path):
    # Dense ones: of sparse layers each process measures which kernels are faster, and bits differ.
    command = ("reproduce", "fgsm", "--only", "dense", "--scale", "smoke", "--quiet", "--json")
    found = []
    for name, more in (("serial", ()), ("jobs", ("--jobs", 2))):
        answer = cli(*command, "--output", tmp_path / name, *more)
        assert answer.code == 0
        assert json.loads(answer.out)["failed"] == {}
        folder = tmp_path / name / "smoke"
        records = [json.loads(f.read_text()) for f in sorted((folder / "results").rglob("*.json"))]
        for record in records:
            del record["sha256"], record["seconds"], record["ledger"]["seconds"]
            for timed in (*record["ledger"]["phases"], record["origin"]):
                timed.pop("seconds", None)
                timed.pop("threads", None)
        found.append(records)
        assert not (folder / "logs").exists()
        assert not list(folder.rglob(".*"))
    assert len(found[0]) == 2
    assert found[0] == found[1]
