"""One training step of a network, and the memory that training takes.

The memory is measured in a process of its own:
python -m freetickets.bench.step MODEL BATCH SPARSITY THREADS
"""

import re
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from ..errors import FreeTicketsError
from ..kernels.layout import GroupedLayout
from ..kernels.library import available
from ..launch.local import python
from ..models import create_model
from ..sparsity import Sparsifier
from ..sparsity.distribution import Distribution
from ..sparsity.network import Backend

CIFAR = (3, 32, 32)
_STEPS = 2
_TINY = "wrn-10-1"


class Step:
    """One training step of a network, dense (sparsity 0) or sparse.

    Its backend is that of our own trainer, if not given; `ours` puts a dense one on our kernels.
    """

    def __init__(
        self, model: str, batch: int, sparsity: float = 0.0, backend: Backend | None = None,
        shape: tuple[int, ...] = CIFAR, *, ours: bool = False, distribution: Distribution = "erk",
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        torch.manual_seed(0)
        self.network: nn.Module = create_model(model, shape, 10)
        # As our own trainer has it; PyTorch's side is what its users write.
        fused = fused if fused is not None else True if ours or sparsity else None
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused
        )
        self.sparsifier = (
            Sparsifier(
                self.network, self.optimizer, sparsity,
                distribution=distribution, exploration=None,
                backend=backend or ("sparse" if available() else "masked"),
            )
            if sparsity
            else None
        )  # fmt: skip
        if ours and available():
            GroupedLayout(self.network)
        self._inputs = torch.randn(batch, *shape)
        self._labels = torch.randint(10, (batch,))

    def __call__(self) -> None:
        """Takes the step."""
        loss = F.cross_entropy(self.network(self._inputs), self._labels)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        if self.sparsifier is not None:
            self.sparsifier.step()


def peak_memory(model: str, batch: int, sparsity: float, threads: int) -> int:
    """Returns the bytes that training adds at its peak to those of Python and PyTorch."""
    arguments = [model, str(batch), str(sparsity), str(threads)]
    command = python("freetickets.bench.step", arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise FreeTicketsError(f"the memory of {model} can't be measured: {lines[-1]}")
    return int(done.stdout)


def main() -> None:
    """Trains for some steps and prints the bytes."""
    model, batch, sparsity, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    # What a first step loads, PyTorch's code and ours, is no memory that training takes.
    Step(_TINY, 2, float(sparsity))()
    before = _resident("VmRSS")
    step = Step(model, int(batch), float(sparsity))
    for _ in range(_STEPS):
        step()
    print(_resident("VmHWM") - before)


def _resident(key: str) -> int:
    """The bytes of this process that lie in memory: now (VmRSS), or at their peak (VmHWM)."""
    # Not getrusage: Linux hands down the peak of the process that started this one.
    status = Path("/proc/self/status")
    if not status.exists():
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    found = re.search(rf"^{key}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


if __name__ == "__main__":
    main()
