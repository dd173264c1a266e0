"""Several processes train like one: real processes, real signals, a real torchrun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import freetickets as ft
from freetickets.errors import FreeTicketsError
from freetickets.training import parallel

from .conftest import read_log

CASES = Path(__file__).with_name("parallel_cases.py")
COMMAND = [
    *("train", "edst", "--dataset", "fashion-mini", "--model", "mlp-16", "--epochs", "1"),
    *("--tickets", "2", "--interval", "6", "--batch-size", "300", "--device", "cpu"),
    *("--backend", "masked", "--checkpoint-seconds", "0", "--quiet"),
]
PATIENCE = 240  # seconds until a test that hangs is given up

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases():
    from . import parallel_cases

    return parallel_cases


@pytest.fixture(scope="module")
def environment():
    path = os.pathsep.join([str(Path(ft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


@pytest.fixture(scope="module")
def killed(tmp_path_factory, environment):
    """A run that torchrun has started with 2 ranks, one of which was killed; what it said."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", "2", "-m", "freetickets", *COMMAND, "--output", str(folder)]
    process = subprocess.Popen(torchrun, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE
    while not any(int(file.stem) >= 10 for file in folder.glob("checkpoint/0*.safetensors")):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail(process.communicate()[1] or "torchrun hangs")
        time.sleep(0.005)
    ranks = subprocess.check_output(["pgrep", "-P", str(process.pid)], text=True).split()
    os.kill(int(ranks[-1]), signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE)[1]
    return folder, said


@pytest.fixture(scope="module")
def results(tmp_path_factory, environment, killed):
    """What each rank of 2 and of 3 has to tell, and the folder in which they worked."""
    folder = tmp_path_factory.mktemp("ranks")
    for world in (2, 3):
        shutil.copytree(killed[0], folder / str(world) / "resumed")
    script = [sys.executable, str(CASES), str(folder), *COMMAND]
    done = subprocess.run(
        script, env=environment, timeout=PATIENCE, capture_output=True, text=True, check=True
    )
    files = {w: [folder / str(w) / f"{rank}.pt" for rank in range(w)] for w in (2, 3)}
    assert all(file.exists() for world in files.values() for file in world), done.stderr
    return folder, {
        world: [torch.load(file, weights_only=True) for file in files[world]] for world in files
    }


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_ranks_trains_like_one_process(results, cases, world):
    alone = cases.same_as_one_process(world)
    wanted = set(cases.OPTIMIZERS) if world == 2 else {"sgd", "adam"}
    assert {name.split(",")[0] for name in alone} >= wanted
    for rank in results[1][world]:
        for name, one in alone.items():
            several = rank["same"][name]
            assert several["digests"] == one["digests"], name
            for mine, other in zip(several["tickets"], one["tickets"], strict=True):
                torch.testing.assert_close(mine, other, rtol=0, atol=1e-4)
            assert several["scores"] == pytest.approx(one["scores"], abs=1e-4), name
        assert len(rank["same"]["sgd, masked"]["digests"]) == 5


def test_batch_norm_has_the_statistics_of_pytorchs_own_data_parallel_training(results, same):
    first, second = (rank["normalised"] for rank in results[1][2])
    torch.testing.assert_close(first["ours"], first["theirs"], rtol=0, atol=1e-6)
    # PyTorch leaves the second rank with statistics of its own; our tickets are the same on all.
    assert not torch.allclose(second["theirs"]["1.running_var"], first["ours"]["1.running_var"])
    assert same(dict(first["ours"]), dict(second["ours"]))
    assert len(first["sparse"]["digests"]) == 5
    assert same(first["sparse"]["digests"], second["sparse"]["digests"])
    assert same(first["sparse"]["topologies"], second["sparse"]["topologies"])


def test_what_goes_wrong_on_one_rank_is_said_by_all_and_a_stopped_run_goes_on(results, same):
    ranks = results[1][3]
    told = [{**rank["troubles"]["errors"], "small": ""} for rank in ranks]
    assert told == [told[0]] * 3
    assert "rank 2 and rank 0 have different topologies in '0.weight'" in told[0]["topology"]
    assert "not finite at step" in told[0]["nan"]
    stopped = "StoppedError: stopped in run 1 after step 8; everything is saved"
    assert told[0]["stopped"].startswith(stopped)
    for rank in ranks:
        assert "a batch needs a sample for each rank" in rank["troubles"]["errors"]["small"]
        assert same(rank["troubles"]["resumed"]["tickets"], rank["same"]["sgd, masked"]["tickets"])


def test_ranks_do_not_wait_forever_for_one_that_hangs(results):
    for number, rank in enumerate(results[1][2]):
        assert f"rank {number} lost contact with another rank" in rank["hanging"]["error"]


def test_when_a_rank_is_killed_the_other_says_so_in_one_line(killed):
    said = [line for line in killed[1].splitlines() if "freetickets: " in line]
    assert len(said) == 1, killed[1]
    assert said[0].startswith("freetickets: rank 0 lost contact with another rank")
    assert "[rank0]: Traceback" not in killed[1]
    assert not (killed[0] / "metrics.json").exists()


def test_a_killed_run_ends_with_the_same_bytes_when_resumed_with_as_many_ranks(results, digests):
    folder, worlds = results
    assert [(rank["code"], rank["peaceful code"]) for rank in worlds[2]] == [(0, 0), (0, 0)]
    peaceful = digests(folder / "2" / "peaceful" / "tickets")
    assert sorted(peaceful) == ["01.safetensors", "02.safetensors"]
    assert digests(folder / "2" / "resumed" / "tickets") == peaceful


@pytest.mark.parametrize("world", [1, 3])
def test_a_run_can_be_resumed_with_another_number_of_ranks(results, killed, tmp_path, cli, world):
    folder = results[0] / "3" / "resumed"
    if world == 1:
        folder = tmp_path / "run"
        shutil.copytree(killed[0], folder)
        assert cli(*COMMAND, "--output", folder).code == 0
    rows, expected = read_log(folder), read_log(results[0] / "2" / "peaceful")
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for column in ("train_loss", "validation_loss"):
        losses = [float(row[column]) for row in rows]
        assert losses == pytest.approx([float(row[column]) for row in expected], rel=1e-2)


# ---- what needs no second process


def test_batch_norm_is_synchronised_on_accelerators_only(cli, tmp_path):
    assert "--sync-batchnorm" in cli(*COMMAND, "--sync-batchnorm", "-o", tmp_path / "run").line
    assert not (tmp_path / "run").exists()


def test_torchruns_environment_is_used_and_ranks_that_never_meet_are_one_line(refused, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert parallel.meet(torch.device("cpu")).world == 1
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    words = r"rank 3 can't reach the other ranks: .*MASTER_ADDR"
    refused(words, parallel.meet, torch.device("cpu"))


def test_a_rank_that_lost_another_is_not_ended_before_it_has_said_so(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with (
            pytest.raises(FreeTicketsError, match="rank 0 lost contact with another rank"),
            parallel.lost_ranks_in_one_line(),
        ):
            raise RuntimeError("Connection closed by peer")
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # torchrun sends it
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_error_that_is_not_about_ranks_stays_as_it_is():
    with pytest.raises(RuntimeError, match="shapes"), parallel.lost_ranks_in_one_line():
        raise RuntimeError("shapes do not match")
