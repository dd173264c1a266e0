"""Kill a training again and again, and check that it ends like one that was never killed.

Trains twice: once in peace, once killed by SIGKILL at random moments and resumed by the same
command until it is done. Every ticket must be the same file, byte for byte.

python tools/kill_and_resume.py --kills 20 --method edst
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from freetickets.errors import FreeTicketsError
from freetickets.storage import load_tree, read_json


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; returns 0 if all tickets are identical."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--method", default="edst")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument(
        "--backend", default="sparse", help="not auto: what is faster may differ from run to run"
    )
    parser.add_argument("--folder", type=Path, help="where to keep both runs (default: nowhere)")
    parser.add_argument("flags", nargs="*", help="more flags of the training, after --")
    parsed = parser.parse_args(arguments)
    flags = parsed.flags or ["--model", "mlp-16", "--epochs", str(max(3, parsed.kills // 2))]
    flags = [*flags, "--backend", parsed.backend]
    with tempfile.TemporaryDirectory() as temporary:
        folder = parsed.folder or Path(temporary)
        return compare(folder, parsed.method, flags, parsed.kills, random.Random(parsed.seed))


def compare(
    folder: Path, method: str, flags: Sequence[str], kills: int, draw: random.Random
) -> int:
    """Trains in peace and with kills, and compares the tickets."""
    peaceful, killed = folder / "peaceful", folder / "killed"
    start(peaceful, method, flags).wait()
    ledger = read_json(peaceful / "ledger.json")
    steps = sum(phase["steps"] for phase in ledger["phases"]) // ledger["runs"]  # of one run
    done = 0
    while done < kills:
        process = start(killed, method, flags)
        # In the next of equal parts; the last one is left to end in.
        aim = ledger["runs"] * (done + draw.random()) / (kills + 1)
        wait_for(process, killed, Position(int(aim), round(aim % 1 * steps), 0))
        time.sleep(draw.uniform(0, 0.05))
        if process.poll() is not None:
            print("the training was done before it could be killed again", flush=True)
            break
        process.kill()
        process.wait()
        done += 1
        print(f"kill {done}: {position(killed)}", flush=True)
    code = start(killed, method, flags).wait()
    expected, found = digests(peaceful), digests(killed)
    identical = sum(found.get(name) == digest for name, digest in expected.items())
    left = [file.name for file in killed.rglob(".*")]
    print(
        f"{done} kills, {identical} tickets identical"
        + (f", {len(expected) - identical} not" if found != expected else "")
        + (f", left behind: {', '.join(left)}" if left else "")
    )
    return int(code != 0 or done < kills or not expected or found != expected or bool(left))


def start(output: Path, method: str, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the training, or goes on with it."""
    command = [sys.executable, "-m", "freetickets", "train", method, "--quiet", *flags]
    command += ["--checkpoint-seconds", "0.02", "--output", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)


class Position(NamedTuple):
    """How far a run has come, as far as it is saved."""

    run: int
    step: int
    tickets: int

    def __str__(self) -> str:
        return f"saved in run {self.run + 1} at step {self.step}, {self.tickets} tickets collected"


def position(output: Path) -> Position:
    """Reads the newest checkpoint that is whole."""
    for file in sorted((output / "checkpoint").glob("*.safetensors"), reverse=True):
        with contextlib.suppress(FreeTicketsError):  # it may be removed at this moment
            state = load_tree(file, "freetickets-checkpoint")["state"]
            return Position(state["run"], state["step"], state["tickets"])
    return Position(0, 0, 0)


def wait_for(process: subprocess.Popen[bytes], output: Path, aim: Position) -> None:
    """Waits until a process has saved something new, not before a position."""
    before = position(output)
    while process.poll() is None and not (before < position(output) >= aim):
        time.sleep(0.02)


def digests(output: Path) -> dict[str, str]:
    """The SHA-256 of each ticket."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((output / "tickets").glob("*.safetensors"))
    }


if __name__ == "__main__":
    sys.exit(main())
