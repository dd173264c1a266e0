import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from freetickets.cli import main
from freetickets.kernels.library import available

FLAGS = "--model mlp-8 --epochs 4 --tickets 2 --interval 2 --batch-size 16 --quiet"
# Not "auto": what is faster may differ from one run to the next, and so the bits.
FLAGS += f" --backend {'sparse' if available() else 'masked'}"


class Trained(NamedTuple):
    """A finished run: its folder, the command that made it, and what that printed."""

    folder: Path
    command: list[str]
    printed: dict[str, Any]


@pytest.fixture(scope="session")
def _trained(images_npz, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "edst"
    command = ["train", "edst", "--dataset", str(images_npz), *FLAGS.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*command, "--json", "--output", str(folder)]) == 0
    return Trained(folder, command, json.loads(out.getvalue()))


@pytest.fixture
def trained(_trained, tmp_path):
    """A finished run of two tickets that a test may do to what it likes."""
    folder = tmp_path / "edst"
    shutil.copytree(_trained.folder, folder)
    return _trained._replace(folder=folder)


@pytest.fixture
def small_run(cli, images_npz, tmp_path):
    """Trains for an epoch: the folder, and what is printed."""

    def train(method, *flags, dataset=images_npz, output=tmp_path / "run"):
        command = ["train", method, "--dataset", dataset, "--model", "mlp-8", "--epochs", 1]
        command += ["--quiet", "--json", *flags, *(() if output is None else ("-o", output))]
        answer = cli(*command)
        assert answer.code == 0, answer.err
        printed = json.loads(answer.out)
        return Path(printed["output"]), printed

    return train
