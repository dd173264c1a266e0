"""A Ray cluster of two machines, of which one is lost."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from freetickets.launch import cluster


def test_without_ray_one_line_says_how_to_get_it(cli, one_line, command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = cli(*command("dst"), "-o", tmp_path / "run", "--launcher", "ray")
    assert "pip install 'freetickets[ray]'" in one_line(answer)


def node_of(process, nodes):
    """The node whose raylet started a process."""
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return next(n for n in nodes if n.all_processes["raylet"][0].process.pid == parent)


@pytest.fixture
def two_machines():
    """A cluster of two nodes with one core each, beside a head that has none."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'freetickets[ray]'")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    found.nodes = [found.add_node(num_cpus=1) for _ in range(2)]
    found.wait_for_nodes()
    yield found
    ray.shutdown()
    found.shutdown()


# What Ray itself leaves open is not ours to close.
@pytest.mark.filterwarnings("default")
@pytest.mark.slow
def test_a_lost_machine_does_not_change_the_run(
    cli, command, finished, long, assert_same, part, two_machines, tmp_path, monkeypatch
):
    run, launch = tmp_path / "run", cluster.launch
    lost: list[Any] = []

    def with_a_loss(assignments, *more):
        for news in launch(assignments, *more):
            if not lost and 3 <= part(run, 2).epochs < 50:
                lost.append(node_of(part(run, 2).holder, two_machines.nodes))
                two_machines.remove_node(lost[0], allow_graceful=False)
            yield news

    monkeypatch.setattr(cluster, "launch", with_a_loss)
    arguments = [each for each in command("dst", long) if each != "--quiet"]
    address = ("--launcher", "ray", "--address", two_machines.address)
    answer = cli(*arguments, "-o", run, *address)
    assert answer.code == 0, answer.err
    assert lost
    assert "its process was lost" in answer.err
    assert_same(run, finished("dst", long))


@pytest.mark.slow
def test_ctrl_c_lets_tasks_save(command, long, part, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'freetickets[ray]'")
    run = tmp_path / "run"
    arguments = [*command("dst", long), "--epochs", "400", "-o", str(run), "--launcher", "ray"]
    process = subprocess.Popen(
        [sys.executable, "-m", "freetickets", *arguments], stderr=subprocess.PIPE, text=True
    )
    part(run, 1).wait(lambda part: part.epochs >= 3)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("freetickets: stopped; everything is saved")
    # Left as a stopped run is: by itself, not by a kill that would leave its lock behind.
    assert not list(run.rglob(".lock"))
    assert "stopped in run 1 after step" in (run / "parts" / "1.txt").read_text()
