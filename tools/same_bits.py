"""Trains every method for a moment with the code of another commit and with this checkout's.

    python tools/same_bits.py cf4cc3d

Says which methods have the same tickets, weights and topologies bit for bit, and exits with 1 if
one has not. PyTorch's kernels are used on both sides (`--backend masked`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from freetickets.methods import METHODS
from freetickets.ticket import Ticket

ROOT = Path(__file__).resolve().parents[1]
FLAGS = "--dataset fashion-mini --train-samples 320 --batch-size 32 --backend masked --quiet"
EPOCHS = {"snapshot": "12", "fge": "24"}  # a cycle for each of their tickets
MODELS = {"treenet": "cnn-4", "mimo": "cnn-4"}


def main() -> int:
    """Compares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commit")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        theirs = Path(folder, "commit")
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "-q", "--detach", theirs, parsed.commit],
            check=True,
        )
        try:
            known = _run(theirs, "methods", "--json").stdout
            same = {
                name: _tickets(theirs, name, Path(folder, "a", name))
                == _tickets(ROOT, name, Path(folder, "b", name))
                for name in parsed.methods
                if f'"{name}"' in known
            }
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", theirs], check=True)
    for name in parsed.methods:
        print(f"{name:16} {'same' if same.get(name) else 'DIFFERENT' if name in same else 'new'}")
    return 0 if all(same.values()) else 1


def _run(code: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(code / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "freetickets", *words]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def _tickets(code: Path, name: str, output: Path) -> list[dict[str, bytes]]:
    words = ["train", name, *FLAGS.split(), "--model", MODELS.get(name, "mlp-16-16")]
    done = _run(code, *words, "--epochs", EPOCHS.get(name, "6"), "--output", str(output))
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    tickets = [Ticket.load(file) for file in sorted((output / "tickets").iterdir())]
    return [
        {
            f"{part} {key}": tensor.numpy().tobytes()
            for part in ("state", "topology")
            for key, tensor in getattr(ticket, part).items()
        }
        for ticket in tickets
    ]


if __name__ == "__main__":
    sys.exit(main())
