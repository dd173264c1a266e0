"""Kill trainings again and again, and check that they end like ones that were never killed.

Each method trains twice: once in peace, once killed by SIGKILL and resumed by the same command
until it is done. Every ticket must be the same file, byte for byte, and the log the same but for
times.

The kills go through all phases of a training. They fall at random moments, in turns: in its steps;
into the write of a file, which is made slow for that; and into its start-up.

python tools/kill_and_resume.py --kills 100 --log docs/kills.txt
python tools/kill_and_resume.py --kills 4 --methods edst -- --model cnn-4 --epochs 2
"""

import argparse
import contextlib
import csv
import ctypes
import hashlib
import itertools
import mmap
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from freetickets.errors import FreeTicketsError
from freetickets.progress import duration
from freetickets.reading import read_json
from freetickets.storage import load_tree

METHODS = ("edst", "dst", "dense-ensemble", "pf", "ltr", "snapshot")
# Explorations must come often in trainings that are this short.
OPTIONS = {"edst": ("--interval", "20"), "dst": ("--interval", "20")}
MOMENTS = ("step", "write", "step", "start-up")
CHECKPOINT_SECONDS = 0.02
SLOW_WRITE = 0.3  # seconds that are added to each write in which a kill is to fall


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; returns 0 if all went well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of all methods together")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument(
        "--backend", default="sparse", help="not auto: what is faster may differ from run to run"
    )
    parser.add_argument("--folder", type=Path, help="where to keep all runs (default: nowhere)")
    parser.add_argument("--log", type=Path, help="where to write what is printed, too")
    parser.add_argument("flags", nargs="*", help="flags of the trainings instead, after --")
    parsed = parser.parse_args(arguments)
    draw, moments = random.Random(parsed.seed), itertools.cycle(MOMENTS)
    outcomes, began = [], time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = parsed.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = stack.enter_context(parsed.log.open("w")) if parsed.log else None

        def tell(line: str) -> None:
            for file in filter(None, (sys.stdout, log)):
                print(line, file=file, flush=True)

        packages = ", ".join(f"{name} {version(name)}" for name in ("freetickets", "torch"))
        tell(f"{' '.join(sys.argv)}: {packages}, Python {platform.python_version()}")
        for place, method in enumerate(parsed.methods):
            kills = (parsed.kills + place) // len(parsed.methods)
            short = ["--model", "mlp-16", "--epochs", str(max(3, kills // 2))]
            flags = [*(parsed.flags or (*short, *OPTIONS.get(method, ())))]
            flags += ["--backend", parsed.backend]
            chosen = list(itertools.islice(moments, kills))
            outcomes.append(compare(folder / method, method, flags, chosen, draw, tell))
        tell(f"{summary(outcomes)}; all in {duration(time.monotonic() - began)}")
    return int(not all(outcome.good for outcome in outcomes))


# ---- what a watched training tells


class Board(ctypes.Structure):
    """A few numbers that a training and its watcher share; they outlive a SIGKILL.

    They are the first and the last step that the process took, counted over all runs; when it took
    the last one, and when it had last saved (ns); whether writes are to be slow.
    """

    _fields_: ClassVar = [
        (name, ctypes.c_int64) for name in ("first", "last", "last_at", "saved_at", "slow")
    ]

    @classmethod
    def at(cls, path: Path, fresh: bool = False) -> Any:
        """The board that lies in a file."""
        if fresh:
            path.write_bytes(bytes(ctypes.sizeof(cls)))
        with path.open("r+b") as file:
            return cls.from_buffer(mmap.mmap(file.fileno(), 0))


def watched(board: Any, arguments: Sequence[str]) -> int:
    """Runs a command of FreeTickets that writes on a board how far it is."""
    from freetickets.cli import main as freetickets
    from freetickets.training.folder import Checkpoints
    from freetickets.training.progress import Reporter

    def after(owner: type, name: str, note: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def noting(*given: object) -> None:
            original(*given)
            note(*given)

        setattr(owner, name, noting)

    def saved(*_: object) -> None:
        board.saved_at = time.monotonic_ns()

    def stepped(_: object, clock: Any, *__: object) -> None:
        board.last, board.last_at = clock.done, time.monotonic_ns()
        board.first = board.first or clock.done

    def slow_sync(fd: Any) -> None:
        time.sleep(SLOW_WRITE if board.slow else 0)
        sync(fd)

    after(Checkpoints, "save", saved)
    after(Reporter, "start", saved)  # it is called when a run begins or goes on
    after(Reporter, "step", stepped)
    sync, os.fsync = os.fsync, slow_sync
    return freetickets(list(arguments))


def start(output: Path, method: str, flags: Sequence[str]) -> tuple[subprocess.Popen[bytes], Any]:
    """Starts the training, or goes on with it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    path = output.with_suffix(".board")
    board = Board.at(path, fresh=True)
    command = [sys.executable, __file__, "watched", str(path), "train", method, "--quiet", *flags]
    command += ["--checkpoint-seconds", str(CHECKPOINT_SECONDS), "--output", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment), board


# ---- where a training is


class Position(NamedTuple):
    """How far a training has come, as far as it is saved."""

    run: int
    step: int
    tickets: int


def position(output: Path) -> Position:
    """Reads the newest checkpoint that is whole."""
    for file in sorted((output / "checkpoint").glob("*.safetensors"), reverse=True):
        with contextlib.suppress(FreeTicketsError):
            state = load_tree(file, "freetickets-checkpoint")["state"]
            return Position(state["run"], state["step"], state["tickets"])
    return Position(0, 0, 0)


class Course:
    """The phases of all runs of a training, by the steps at which they end."""

    def __init__(self, output: Path) -> None:
        self._phases, self.steps = [], 0
        for phase in read_json(output / "ledger.json")["phases"]:
            self.steps += phase["steps"]
            name = f"{phase['phase']} of run {phase['run']}"
            self._phases.append((self.steps, name, phase["run"]))

    def name(self, step: int) -> str:
        """The phase that a step belongs to."""
        return next(name for end, name, _ in self._phases if step <= end)

    def count(self, saved: Position) -> int:
        """The steps of all runs up to a position."""
        ended = (end for end, _, run in self._phases if run <= saved.run)
        return max(ended, default=0) + saved.step


def temporaries(output: Path) -> set[Path]:
    """The files that are being written, or whose writing was never ended."""
    return {file for file in output.rglob(".*") if file.name != ".lock"}


# ---- kills


@dataclass(frozen=True)
class Kill:
    """What one kill hit."""

    place: str  # "step", "write", "start-up", "evaluation"
    repeated: int  # the steps beyond what was saved, which are lost
    seconds: float  # between the last checkpoint and the last of those steps


@dataclass(frozen=True)
class Outcome:
    """What came of the kills of one method."""

    kills: tuple[Kill, ...]
    wanted: int
    resumed: int
    tickets: int
    identical: int
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all kills were made, and nobody could tell from what is left."""
        whole = self.tickets > 0 and self.identical == self.tickets and not self.problems
        return whole and len(self.kills) == self.resumed == self.wanted


def compare(
    folder: Path,
    method: str,
    flags: Sequence[str],
    moments: Sequence[str],
    draw: random.Random,
    tell: Callable[[str], None],
) -> Outcome:
    """Trains in peace, and with a kill at each of some moments; compares what is left."""
    peaceful, killed = folder / "peaceful", folder / "killed"
    began = time.monotonic()
    process, board = start(peaceful, method, flags)
    while process.poll() is None and not board.first:
        time.sleep(0.01)
    start_up = time.monotonic() - began
    if process.wait() != 0:
        raise SystemExit(f"the training of {method} failed before anything was killed")
    course = Course(peaceful)
    kills: list[Kill] = []
    resumed, problems = 0, []
    for number, moment in enumerate([*moments, "the end"]):
        before, left = position(killed), temporaries(killed)
        process, board = start(killed, method, flags)
        # In the next of equal parts of the training; the last one is left to end in.
        aim = round((number + draw.random()) / (len(moments) + 1) * course.steps)
        if moment == "start-up":
            time.sleep(draw.uniform(0, start_up))
        elif moment == "the end":
            process.wait()
        while moment in ("step", "write") and process.poll() is None and board.last < max(1, aim):
            time.sleep(0.002)
        if moment == "write":
            board.slow = 1
            while process.poll() is None and not temporaries(killed) - left:
                time.sleep(0.002)
        pause = {"step": 2 * CHECKPOINT_SECONDS, "write": SLOW_WRITE / 2}.get(moment, 0)
        time.sleep(draw.uniform(0, pause))
        code = process.poll()
        process.kill()
        process.wait()
        # It went on behind what was saved, if it came to a step at all.
        resumed += bool(kills) and board.first in (0, course.count(before) + 1)
        if code is None:
            torn = sorted(file.relative_to(killed) for file in temporaries(killed) - left)
            kill, words = describe(board, course, position(killed), torn)
            kills.append(kill)
            if position(killed) < before:
                problems.append(f"{method} lost what was saved before kill {len(kills)}")
            tell(f"{method}, kill {len(kills)}: {words}")
            continue
        if moment != "the end":
            problems.append(f"{method} was done before it could be killed {len(moments)} times")
        if code != 0:
            problems.append(f"{method} could not be resumed")
        break
    expected, found = digests(peaceful), digests(killed)
    if set(found) != set(expected):
        problems.append(f"{method} has other tickets: {', '.join(found)}")
    if log(peaceful) != log(killed):
        problems.append(f"the log of {method} differs")
    problems += [f"{method} left {file.name} behind" for file in sorted(temporaries(killed))]
    same = sum(found.get(name) == digest for name, digest in expected.items())
    outcome = Outcome(tuple(kills), len(moments), resumed, len(expected), same, tuple(problems))
    tell(f"{method}: {summary([outcome])}")
    return outcome


def describe(board: Any, course: Course, saved: Position, torn: Sequence[Path]) -> tuple[Kill, str]:
    """Tells what a kill has hit, from what the process has left, also in words."""
    done = course.count(saved)
    if torn:
        place, words = "write", f"writing {torn[0].parent / torn[0].stem.lstrip('.')}"
    elif not board.first:
        place, words = "start-up", "in start-up"
    elif board.last == course.steps:
        place, words = "evaluation", "behind the last step"
    else:
        place, words = "step", "in a step"
    repeated = max(0, board.last - done)
    seconds = (board.last_at - board.saved_at) / 1e9 if repeated else 0.0
    at = min(done + repeated + (place != "write"), course.steps)
    return Kill(place, repeated, seconds), (
        f"{course.name(at)}, {words}; saved at step {done} of {course.steps} with "
        f"{saved.tickets} tickets, {repeated} steps ({seconds:.3f} s) to repeat"
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """What came of all kills, in one line."""
    kills = [kill for outcome in outcomes for kill in outcome.kills]
    places = Counter(kill.place for kill in kills)
    steps = max((kill.repeated for kill in kills), default=0)
    seconds = max((kill.seconds for kill in kills), default=0.0)
    told = ", ".join(f"{count} in {place}" for place, count in sorted(places.items()))
    parts = [
        f"{len(kills)} kills" + (f" ({told})" if told else ""),
        f"{sum(outcome.resumed for outcome in outcomes)} resumed where they were saved",
        f"{sum(outcome.identical for outcome in outcomes)} of "
        f"{sum(outcome.tickets for outcome in outcomes)} tickets identical",
        f"at most {steps} steps, {seconds:.3f} s, to repeat with a checkpoint every "
        f"{CHECKPOINT_SECONDS} s",
        *(problem for outcome in outcomes for problem in outcome.problems),
    ]
    if all(outcome.good for outcome in outcomes):
        parts.append("nothing lost, nothing left behind")
    return "; ".join(parts)


# ---- what is compared


def digests(output: Path) -> dict[str, str]:
    """The SHA-256 of each ticket."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted((output / "tickets").glob("*.safetensors"))
    }


def log(output: Path) -> list[dict[str, str]]:
    """The rows of the log, without times and the seal over them."""
    with (output / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "sha256")} for row in rows]


if __name__ == "__main__":
    if sys.argv[1:2] == ["watched"]:
        sys.exit(watched(Board.at(Path(sys.argv[2])), sys.argv[3:]))
    sys.exit(main())
