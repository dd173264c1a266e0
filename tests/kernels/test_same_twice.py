"""Equal runs have equal bits: nothing that is computed depends on the clock, nor on threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Wide enough for all three ways: dense layers by Winograd, sparse ones, strided ones.
SCRIPT = """
import hashlib, sys, torch
torch.set_num_threads(int(sys.argv[1]))
import freetickets as ft
from freetickets.kernels.inference import compile_network
from freetickets.models import create_model

torch.manual_seed(0)
network = create_model("wrn-10-2", (3, 16, 16), 10)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
sparsifier = ft.Sparsifier(network, optimizer, float(sys.argv[2]), exploration=None, seed=0)
for step in range(4):
    x = torch.randn(24, 3, 16, 16, generator=torch.Generator().manual_seed(step))
    loss = torch.nn.functional.cross_entropy(network(x), torch.arange(24) % 10)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sparsifier.step()
topology = sparsifier.topology
sparsifier.detach()
predict = compile_network(network.eval(), topology)
with torch.no_grad():
    answers = [predict(x[:n]) for n in (24, 3, 24)]
digest = hashlib.sha256()
for tensor in (*network.state_dict().values(), *answers):
    digest.update(tensor.contiguous().numpy().tobytes())
print(digest.hexdigest())
"""


def digest(path: Path, threads: int, sparsity: float) -> str:
    path.write_text(SCRIPT)
    command = [sys.executable, str(path), str(threads), str(sparsity)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("sparsity", [0.6, 0.9])
def test_two_processes_train_and_predict_the_same_bits(tmp_path: Path, sparsity: float) -> None:
    first = digest(tmp_path / "script.py", 1, sparsity)
    assert len(first) == 64
    assert digest(tmp_path / "script.py", 1, sparsity) == first
