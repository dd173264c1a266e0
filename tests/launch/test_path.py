"""A file of the current folder is not taken for a module, whichever process imports it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import freetickets
from freetickets.bench.step import peak_memory
from freetickets.launch.local import python

# What pip makes of the entry point, in short.
SCRIPT = "import sys; from freetickets.cli import main; sys.exit(main())"
HOSTILE = "open({marker!r}, 'a').write(__name__ + ' '); raise ImportError('of the current folder')"
OTHERS = ("freetickets", "numpy", "ray", "safetensors", "torch", "yaml")
NETS = """
from torch import nn
def build(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""
FLAGS = "--epochs 4 --tickets 2 --batch-size 16 --backend masked --quiet"


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Where each module that is imported from the current folder leaves its name; none may."""
    found, folder = tmp_path / "marker", tmp_path / "folder"
    folder.mkdir()
    for name in (*sys.stdlib_module_names, *OTHERS):
        if importlib.util.find_spec(name) is not None:  # or it is the only one of its name
            (folder / f"{name}.py").write_text(HOSTILE.format(marker=str(found)))
    (folder / "own_nets.py").write_text(NETS)
    monkeypatch.chdir(folder)
    yield found
    assert not found.exists(), found.read_text()


@pytest.fixture
def train(marker, images_npz):
    """Trains two members as users do: by a script in a folder of its own, not by `python -m`."""
    script = marker.with_name("bin") / "freetickets"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(freetickets.__file__).parents[1])}
    environment["RAY_ADDRESS"] = "local"  # not the cluster of another test, whose nodes are killed
    command = [sys.executable, str(script), "train", "dst", "--dataset", str(images_npz)]
    command += [*FLAGS.split(), "--output", "run"]

    def run(flags):
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.run(
            [*command, *flags.split()], env=environment, text=True, check=False, **pipes
        )

    return run


@pytest.mark.parametrize("model", ["mlp-8", "own_nets:build"])
def test_workers_import_nothing_from_the_current_folder_but_a_model_that_is_named(train, model):
    done = train(f"--model {model} --jobs 2")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(Path("run/tickets").iterdir())) == 2


@pytest.mark.slow
def test_nor_do_tasks_of_ray(train):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'freetickets[ray]'")
    done = train("--model own_nets:build --launcher ray")
    assert done.returncode == 0, done.stderr
    assert len(list(Path("run/tickets").iterdir())) == 2


@pytest.mark.usefixtures("marker")
def test_nor_does_the_process_whose_memory_is_measured(refused):
    refused("unknown model 'nothing'", peak_memory, "nothing", 2, 0.8, 1)


def test_a_process_has_the_path_of_the_one_that_starts_it(tmp_path, monkeypatch):
    folder = tmp_path / f"a 'folder'{os.pathsep} é"
    folder.mkdir()
    (folder / "show.py").write_text("import json, sys; print(json.dumps([sys.path, sys.argv]))")
    monkeypatch.setattr(sys, "path", [str(folder), "relative", "", *sys.path])
    arguments = ["--flag", "", "a b"]
    shown = json.loads(subprocess.check_output(python("show", arguments)))
    assert shown == [sys.path, [str(folder / "show.py"), *arguments]]
