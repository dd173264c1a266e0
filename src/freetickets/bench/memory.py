"""The memory that training takes, measured in a process of its own.

python -m freetickets.bench.memory MODEL BATCH SPARSITY THREADS
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch

from ..errors import FreeTicketsError
from ..launch.local import python
from .step import Step

_STEPS = 2
_TINY = "wrn-10-1"


def measure(model: str, batch: int, sparsity: float, threads: int) -> int:
    """Returns the bytes that training adds at its peak to those of Python and PyTorch."""
    arguments = [model, str(batch), str(sparsity), str(threads)]
    command = python("freetickets.bench.memory", arguments)
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
