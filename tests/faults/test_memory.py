"""No memory left: one line, and what was saved is kept."""

import shutil
from functools import partial
from pathlib import Path

import fault_child
import pytest

from freetickets.cli import main
from freetickets.launch import Assignment, local
from freetickets.training.folder import Checkpoints

WIDE = ("--model", "mlp-1500-1500", "--epochs", "1")  # 9 MB of weights

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="only Linux limits the memory of a process"
)


@pytest.fixture(scope="module")
def wide(command, tmp_path_factory):
    """A finished run with large files."""
    folder = tmp_path_factory.mktemp("wide") / "run"
    assert main([*command("dense"), *WIDE, "-o", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("megabytes", [0, 8, 16, 24])
def test_a_training_without_memory_is_one_line_and_goes_on_the_same(
    child, command, wide, assert_whole, assert_same_tickets, tmp_path, megabytes
):
    train = (*command("dense"), *WIDE, "-o", tmp_path / "run")
    answer = child(*train, faults=(partial(fault_child.little_memory, 3, megabytes << 20),))
    assert "out of memory; what was saved is untouched" in answer.line
    assert "smaller --batch-size" in answer.line
    assert_whole(tmp_path / "run")
    saved = Checkpoints(tmp_path / "run" / "checkpoint", lambda _: None).load()
    assert saved is not None
    assert saved["state"]["step"] >= 2
    assert child(*train).code == 0
    assert_same_tickets(tmp_path / "run", wide)


def test_no_file_is_called_damaged_where_memory_is_missing(child, command, wide, digests, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(wide, run)
    before = {name: digests(run / name) for name in ("checkpoint", "tickets")}
    codes = []
    # Between too little and enough the answer may go to and fro: the C library sets whole arenas
    # of addresses aside for a thread as soon as there is room for one.
    for megabytes in (*range(0, 120, 12), 2048):
        fault = partial(fault_child.little_memory, 0, megabytes << 20)
        answer = child(*command("dense"), *WIDE, "-o", run, faults=(fault,))
        codes.append(answer.code)
        if answer.code != 0:
            assert "out of memory" in answer.line, megabytes
        assert {name: digests(run / name) for name in before} == before
        assert not (run / ".lock").exists()
    assert set(codes) == {0, 2}
    assert (codes[0], codes[-1]) == (2, 0)


HUNGRY = """
import os, signal, torch
def build():
    wide = 1 << 40
    layers = torch.nn.Linear(64, wide), torch.nn.Linear(wide, 3)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers)
def killed(): os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_worker_without_memory_says_so_and_one_that_the_kernel_kills_is_tried_again(
    cli, one_line, command, tmp_path, monkeypatch
):
    """No machine can hold these: one asks in vain, with one the kernel ends the process."""
    (tmp_path / "hungry.py").write_text(HUNGRY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    train = [*command("dense-ensemble"), "--model"]
    line = one_line(cli(*train, "hungry:build", "-o", "jobs", "--jobs", "2"))
    assert line.startswith("freetickets: run ")
    assert "of 2: out of memory" in line
    assert "fewer --jobs" in line
    arguments = (*train, "hungry:killed", "-o", "part", "--part", "0")
    assignment = Assignment("run 1 of 2", arguments, tmp_path / "log.txt")
    told = [n for n in local.launch([assignment], jobs=1, retries=1) if n.kind != "line"]
    lost, why = "its process was lost (SIGKILL)", "perhaps because the machine ran out of memory"
    assert [(news.kind, news.text) for news in told] == [
        ("again", f"{lost}: it starts again from its last checkpoint"),
        ("failed", f"{lost} 2 times, {why}: see {assignment.log}"),
    ]
