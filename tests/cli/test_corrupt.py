import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from freetickets.data.corruptions import CORRUPTIONS, corrupt
from freetickets.data.corruptions.folder import CorruptedSet


@pytest.fixture(autouse=True)
def _no_frost_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("FREETICKETS_DATA", str(tmp_path / "data"))


def test_all_corruptions_of_a_grey_set_are_written(cli, images_npz, tmp_path):
    answer = cli("corrupt", images_npz, "--output", tmp_path, "--json")
    assert answer.code == 0
    folder = tmp_path / "bars-C"
    made = {"made": list(CORRUPTIONS), "kept": [], "frost": "synthetic"}
    assert json.loads(answer.out) == {"output": str(folder), **made}
    assert answer.err.count("\n") == 19  # a line for each in a log
    images = np.load(images_npz)
    for name in CORRUPTIONS:
        saved = np.load(folder / f"{name}.npy")
        assert (saved.shape, saved.dtype) == ((5 * 45, 8, 8), np.uint8)
        assert np.array_equal(saved[90:135], corrupt(images["x_test"], name, 3))
    assert np.array_equal(np.load(folder / "labels.npy"), np.tile(images["y_test"], 5))


def test_a_second_run_keeps_what_is_finished(cli, images_npz, tmp_path):
    flags = ("--output", tmp_path, "--samples", 7, "--severities", 5, 1, "--seed", 3)
    first = cli("corrupt", images_npz, *flags, "--corruptions", "fog", "snow")
    assert (first.code, first.out.splitlines()[0]) == (0, "2 corruptions made; frost: synthetic")
    before = (tmp_path / "bars-C" / "fog.npy").stat()
    again = cli("corrupt", images_npz, *flags, "--corruptions", "fog", "contrast", "--quiet")
    assert again.out.startswith("1 corruptions made, 1 were already there")
    assert again.err == ""
    assert (tmp_path / "bars-C" / "fog.npy").stat().st_mtime_ns == before.st_mtime_ns
    assert np.load(tmp_path / "bars-C" / "contrast.npy").shape == (14, 8, 8)
    other = cli("corrupt", images_npz, "--output", tmp_path, "--samples", 7)
    assert (other.code, other.err.count("\n")) == (2, 1)


def test_mistakes_are_one_line(cli, one_line, images_npz, tmp_path):
    x, y = np.zeros((6, 4), np.float32), np.arange(6) % 2
    np.savez(tmp_path / "table.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    for flags, text in (
        ("cifar10 --severities 6", "severity 6: choose it from 1 to 5"),
        ("cifar10 --samples 0", "--samples: give 1 or more, not 0"),
        ("cifar10 --workers 0", "--workers: give 1 or more, not 0"),
        ("imagenet", "imagenet consists of photos on disk"),
        ("fashion-mini --frost nowhere", "no frost1.png in nowhere"),
        (f"{tmp_path}/table.npz", "has no images"),
    ):
        answer = cli("corrupt", *flags.split(), "--output", tmp_path / "out")
        assert text in one_line(answer)
    assert not (tmp_path / "out").exists()
    answer = cli("corrupt", images_npz, "--output", tmp_path / "table.npz", "--quiet")
    assert "can't write" in one_line(answer)


def test_ctrl_c_reaches_the_processes_and_leaves_only_whole_files(tmp_path):
    command = [sys.executable, "-m", "freetickets", "corrupt", "fashion-mini", "-j", "2"]
    command += ["--output", str(tmp_path), "--samples", "1000"]
    pipe = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipe) as process:
        assert "gaussian_noise" in process.stderr.readline()  # the first corruption is finished
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to all processes
        rest = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "run the same command again to continue" in rest.splitlines()[-1]
    files = {path.name for path in (tmp_path / "fashion-mini-C").iterdir()}
    finished = {f"{name}.npy" for name in CORRUPTIONS} & files
    assert 1 <= len(finished) < 19
    assert files - finished == {"corruptions.json", "labels.npy"}
    for name in finished:
        assert np.load(tmp_path / "fashion-mini-C" / name).shape == (5000, 28, 28)


def test_a_stopped_run_goes_on_where_it_was(cli, images_npz, tmp_path, monkeypatch):
    write = CorruptedSet.write

    def interrupted(self, name, *rest):
        for count in write(self, name, *rest):
            if name == "impulse_noise":
                signal.raise_signal(signal.SIGINT)
            yield count

    command = ("corrupt", images_npz, "--output", tmp_path, "--corruptions", "common15")
    with monkeypatch.context() as patch:
        patch.setattr(CorruptedSet, "write", interrupted)
        stopped = cli(*command)
    assert (stopped.code, stopped.out) == (130, "")
    assert "stopped: 2 of 15 corruptions were made" in stopped.err
    assert json.loads(cli(*command, "--json").out)["kept"] == ["gaussian_noise", "shot_noise"]
