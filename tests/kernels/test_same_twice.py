"""Equal runs have equal bits: nothing that is computed depends on the clock, nor on threads."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import freetickets as ft
from freetickets.kernels.inference import CompiledNetwork
from freetickets.models import create_model
from freetickets.training.folder import read_choices

COMMANDS = """
import sys
from freetickets.cli import main

data, folder = sys.argv[1:]
wanted = ["--dataset", data, "--model", "cnn-32", "--epochs", "3", "-b", "16", "--quiet"]
for method, more in (("edst", ["--tickets", "2", "--sparsity", "0.6"]), ("dense", [])):
    output = f"{folder}/{method}"
    assert main(["train", method, *wanted, *more, "--output", output]) == 0
    assert main(["evaluate", output, "--corruptions", "fog"]) == 0
"""


def test_trainings_and_evaluations_by_the_commands_repeat_their_bits(tmp_path, images_npz, digests):
    """In two processes."""
    (tmp_path / "script.py").write_text(COMMANDS)
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        command = [sys.executable, str(tmp_path / "script.py"), str(images_npz), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for method, tickets in (("edst", 2), ("dense", 1)):
        one, two = (
            (
                digests(run / "tickets") | digests(run / "predictions"),
                json.loads((run / "metrics.json").read_text()),
                read_choices(run),
            )
            for run in (folder / method for folder in folders)
        )
        assert one == two
        assert len(one[0]) == tickets + 3
        assert one[2]["kernels"]
        assert one[2]["ways"]


def computed(sparsity):
    """What one step of a network makes, and its predictions."""
    torch.manual_seed(0)
    network = create_model("wrn-10-2", (3, 16, 16), 10)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = ft.Sparsifier(network, optimizer, sparsity, exploration=None, seed=0)
    x = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    logits = network(x)
    F.cross_entropy(logits, torch.arange(24) % 10).backward()
    found = {"logits": logits.detach()}
    found |= {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    topology = sparsifier.topology
    sparsifier.detach()
    predict = CompiledNetwork(network.eval(), topology)
    return found | {f"{n} samples": predict(x[:n]) for n in (24, 3)}


@pytest.mark.parametrize("sparsity", [0.6, 0.9])
def test_the_number_of_threads_changes_no_bit_but_of_what_pytorch_computes(threads, sparsity):
    """That is the classifier's gradient: a matrix product, which PyTorch's library shares out."""
    threads(1)
    wanted = computed(sparsity)
    assert len(wanted) > 20
    for count in (2, 3):
        threads(count)
        found = computed(sparsity)
        differ = {name for name in wanted if not torch.equal(found[name], wanted[name])}
        assert differ <= {"fc.weight"}
