"""Makes the golden files of one version: run it with the code of that version, once.

git worktree add /var/tmp/old COMMIT
PYTHONPATH=/var/tmp/old/src python tests/golden/make.py COMMIT

What it makes stays as it is: `test_golden.py` has every later version read it.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import torch

import freetickets as ft
from freetickets.cli import main
from freetickets.errors import StoppedError
from freetickets.training.progress import Reporter

HOME = Path("/var/tmp/golden")  # tickets keep the path of their data: one of no machine's own
TRAIN = (
    "train edst --dataset data.npz --model cnn-2 --epochs 6 --tickets 2 --interval 4 "
    "--batch-size 16 --validation 0.25 --trajectory 2 --backend masked --quiet --output run"
)
EVALUATE = (
    "evaluate run --corruptions brightness contrast --ood gaussian-noise --attack fgsm --features "
    "--samples 15 --quiet"
)
CELL = "reproduce cifar10 --scale smoke --only dense --seeds 1 --quiet --output all"


def run(command):
    """Runs a command, which must end well."""
    assert main(command.split()) == 0


def make_data():
    """Writes `data.npz`: tiny images of three classes, told apart by their brightness."""
    rng = np.random.default_rng(0)
    arrays = {"classes": np.array(["dark", "grey", "bright"])}
    for split, count in (("train", 48), ("test", 15)):
        labels = np.arange(count) % 3
        noise = rng.integers(0, 120, (count, 8, 8))
        arrays |= {f"x_{split}": (noise + 60 * labels[:, None, None]).astype(np.uint8)}
        arrays |= {f"y_{split}": labels}
    np.savez_compressed("data.npz", **arrays)


def train_on_arrays(x, y, output):
    """Trains for 18 steps in a folder, or goes on there."""
    method = ft.EDST(tickets=2, interval=4)
    settings = {"epochs": 6, "batch_size": 16, "backend": "masked", "quiet": True}
    return method.fit("mlp-4", (x, y), output=output, **settings)


def stop_at(step):
    """Has a training ask itself to stop, as Ctrl-C does."""
    steps = itertools.count(1)

    def shown(*_):
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGTERM)

    Reporter.step = shown


def make():
    """Writes all golden files of this version into the current folder."""
    make_data()
    run(TRAIN)
    run(EVALUATE)
    shutil.rmtree("run/checkpoint")
    with np.load("data.npz") as data:
        x, y, test = data["x_train"][:, None], data["y_train"], data["x_test"][:, None]
    ensemble = ft.load("run").calibrate(x, y, "members")
    ensemble.save("ensemble")
    ft.MIMO(members=2).fit("mlp-4", (x, y), epochs=2, quiet=True).save("mimo")
    run(CELL)
    shutil.copytree("all/smoke/results", "record/results")
    shutil.rmtree("all")
    stop_at(14)
    try:
        train_on_arrays(x, y, Path("stopped"))
    except StoppedError:
        for old in sorted(Path("stopped/checkpoint").iterdir())[:-1]:
            old.unlink()
    expected = {
        "torch": torch.__version__,
        "members": {
            name: ft.load(name).member_log_proba(test).round(6).tolist()
            for name in ("run", "ensemble", "mimo")
        },
        "joint": ensemble.predict_proba(test).round(6).tolist(),
    }
    Path("expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    here = Path(__file__).parent.absolute()
    folder = HOME / sys.argv[1]
    folder.mkdir(parents=True)
    os.chdir(folder)
    make()
    shutil.move(folder, here / folder.name)
