"""Damages files of every kind that FreeTickets loads, and looks at what loading them comes to.

Each must be refused with one line, or load to exactly what was written. Whatever has no checksum of
its own (a raw array, a JPEG) may also load to other content: "changed". "Whole other" is an intact
file of another run in the place of one that does not say whose it is. A process of its own loads
them, with 5 seconds for each and 1 GB of memory above what it has when it starts.

python tools/fuzz.py --seconds 600 --kind ticket run --seed 1
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from fuzzing.kinds import KINDS
from fuzzing.trial import CRASH, FAILURES, FINE, HANG, Bench, Outcome

_SECONDS = 5.0
_MEMORY = 1 << 30
_START = 120.0  # seconds for a worker to be ready
_AT_ONCE = 50  # trials of a kind before the next has its turn


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes for a while; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trials", type=int, help="stop after so many, if time allows")
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="the folder for files that failed")
    parsed = parser.parse_args(arguments)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in parsed.kind}
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        benches = {kind: Bench(kind, home) for kind in parsed.kind}
        worker = _Worker(home, parsed.kind)
        ends, number = time.monotonic() + parsed.seconds, 0
        try:
            while time.monotonic() < ends and number != parsed.trials:
                kind = parsed.kind[number // _AT_ONCE % len(parsed.kind)]
                seed = f"{parsed.seed} {number}"
                number += 1
                outcome = worker.run(kind, seed)
                counts[kind][outcome.word] += 1
                if outcome.word in FAILURES:
                    file, data, _ = benches[kind].damage(seed)
                    print(f"{kind} {seed!r} {file}: {outcome.word} {outcome.told}", flush=True)
                    if parsed.keep is not None:
                        parsed.keep.mkdir(parents=True, exist_ok=True)
                        (parsed.keep / f"{kind}-{number}-{Path(file).name}").write_bytes(data)
        finally:
            worker.stop()
    return _report(counts)


def _report(counts: dict[str, Counter[str]]) -> int:
    words, total = (*FINE, *FAILURES), sum(counts.values(), Counter[str]())
    print("kind".ljust(14), *(word.rjust(14) for word in ("trials", *words)))
    for kind, found in (*counts.items(), ("all", total)):
        numbers = (found.total(), *(found[word] for word in words))
        print(kind.ljust(14), *(f"{number:,}".rjust(14) for number in numbers))
    return int(any(total[word] for word in FAILURES))


class _Worker:
    """The process that loads; a new one if it crashes or hangs."""

    def __init__(self, home: Path, kinds: Sequence[str]) -> None:
        self._home, self._kinds = home, list(kinds)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._home, self._kinds))
        self._process.start()
        theirs.close()
        if not self._end.poll(_START):
            raise SystemExit("the process that loads does not start")
        self._end.recv()

    def run(self, kind: str, seed: str) -> Outcome:
        try:
            self._end.send((kind, seed))
            if self._end.poll(_SECONDS):
                return self._end.recv()
            outcome = Outcome(HANG, f"{_SECONDS:g} seconds")
        except (EOFError, OSError):
            self._process.join(_SECONDS)
            outcome = Outcome(CRASH, f"exit code {self._process.exitcode}")
        self.stop()
        self._start()
        return outcome

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._end.close()


def _work(connection: Connection, home: Path, kinds: Sequence[str]) -> None:
    # A copy: a process that was killed may have left a damaged file behind.
    own = home / f"worker-{os.getpid()}"
    for kind in kinds:
        shutil.copytree(home / kind, own / kind)
    benches = {kind: Bench(kind, own) for kind in kinds}
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    # What asks for more gets a MemoryError, which `Bench.load` sees.
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    connection.send("ready")
    while True:
        kind, seed = connection.recv()
        connection.send(benches[kind].load(*benches[kind].damage(seed)))


if __name__ == "__main__":
    sys.exit(main())
