"""Train a grid of `freetickets reproduce` in the background, from code that stays as it is.

    python tools/medium_queue.py start --data-dir DIR     # the stages of medium, from this commit
    python tools/medium_queue.py status
    python tools/medium_queue.py pause                    # while something is timed; then: resume
    python tools/medium_queue.py stop                     # start goes on where it was

The package is built from a commit and installed into a folder of its own, so whatever happens to
the checkout in the meantime, the trainings don't change; the file COMMIT beside the records says
which, and later starts go on from that one. torch and the rest are those of the Python
that runs this. Trainings go on from their last checkpoint; finished records are copied into the
checkout's results/, to be committed, and what is there already is not trained again. `run` does the
same as `start` in the foreground. With --jobs 2 two cells are trained side by side.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from freetickets.experiments.grid import find_grid
from freetickets.experiments.provenance import COMMIT_FILE
from freetickets.experiments.results import answers_path, read_record

ROOT = Path(__file__).resolve().parents[1]
_COMMIT = "COMMIT"  # beside the records
_SECONDS = 30.0  # between two looks at what is finished
_CACHE = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
_HOME = os.environ.get("FREETICKETS_QUEUE") or f"{_CACHE}/freetickets/queue"


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what is asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = ("start", "run", "status", "pause", "resume", "stop", "collect")
    parser.add_argument("command", choices=what)
    parser.add_argument("names", nargs="*", metavar="STAGE", help="(default: all)")
    parser.add_argument("--scale", default="medium", help="(default: %(default)s)")
    parser.add_argument("--commit", help="of the code (default: that of the first start, or HEAD)")
    parser.add_argument("--data-dir", help="where data sets lie")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time (default: 1)")
    text = "code, runs and log (default: %(default)s)"
    parser.add_argument("--home", type=Path, default=Path(_HOME), help=text)
    parsed = parser.parse_args(arguments)
    queue = Queue(parsed.home.expanduser().resolve(), parsed.scale)
    if parsed.command in ("start", "run"):
        return queue.begin(parsed)
    if parsed.command in ("pause", "resume", "stop"):
        return queue.signal(parsed.command)
    collected = parsed.command == "collect"
    print(f"{queue.collect()} new records in {queue.kept}" if collected else queue.status())
    return 0


class Queue:
    """The trainings of one scale, below one folder; records are kept in the checkout's results."""

    def __init__(self, home: Path, scale: str, kept: Path | None = None) -> None:
        self.home, self.scale = home, scale
        self.kept = kept or ROOT / "results" / scale
        self.runs = home / "runs"
        self.log = home / f"{scale}.txt"
        self._state = home / f"{scale}.json"

    def begin(self, parsed: argparse.Namespace) -> int:
        """Builds the code if it is not there, and trains, in the background for `start`."""
        if self.pid is not None:
            raise SystemExit(f"it runs already (process {self.pid}): stop it first")
        self.home.mkdir(parents=True, exist_ok=True)
        commit = _git("rev-parse", f"{parsed.commit or self.commit or 'HEAD'}^{{commit}}")
        code = install(commit, self.home / "code" / commit)
        self.kept.mkdir(parents=True, exist_ok=True)
        (self.kept / _COMMIT).write_text(f"{commit}\n")
        self.bring_back()
        if parsed.command == "run":
            return self.run(commit, code, parsed)
        words = ["run", *parsed.names, "--scale", self.scale, "--commit", commit]
        words += ["--jobs", str(parsed.jobs), "--home", str(self.home)]
        words += ["--data-dir", parsed.data_dir] if parsed.data_dir else []
        with self.log.open("ab") as log:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            command = [sys.executable, __file__, *words]
            process = subprocess.Popen(command, start_new_session=True, **streams)
        print(f"process {process.pid} trains from commit {commit[:12]}; log: {self.log}")
        return 0

    def run(self, commit: str, code: Path, parsed: argparse.Namespace) -> int:
        """Trains until all is done or someone stops it; copies records as they come."""
        command = ["nice", "-n", "19", sys.executable, "-m", "freetickets", "reproduce"]
        command += [*(parsed.names or ["all"]), "--scale", self.scale]
        command += ["--output", str(self.runs), "--device", "cpu"]
        command += ["--data-dir", str(Path(parsed.data_dir).resolve())] if parsed.data_dir else []
        command += ["--jobs", str(parsed.jobs)] if parsed.jobs > 1 else []
        environment = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
        _check_code(code, environment)
        child = subprocess.Popen(command, env=environment, cwd=self.home, start_new_session=True)
        state = {"pid": os.getpid(), "commit": commit, "command": command}
        self._state.write_text(json.dumps(state, indent=2) + "\n")
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: child.terminate())  # it saves, and ends
        while child.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_SECONDS)
            yield_to_others(os.getpid())
            self.collect()
        self._state.unlink(missing_ok=True)
        return child.returncode

    @property
    def commit(self) -> str | None:
        """The commit that it was started from before; None if it never was."""
        file = self.kept / _COMMIT
        return file.read_text().strip() if file.exists() else None

    @property
    def pid(self) -> int | None:
        """The process that trains; None if there is none."""
        try:
            pid = int(json.loads(self._state.read_text())["pid"])
            alive = Path(__file__).name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, LookupError):
            return None
        return pid if alive else None

    def signal(self, command: str) -> int:
        """Pauses, resumes or stops the process and all that it has started."""
        pid = self.pid
        if pid is None:
            raise SystemExit("nothing runs")
        tree = list(descendants(pid))
        for each in tree:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                # Who is to stop must not be paused, or it could not save.
                os.kill(each, signal.SIGSTOP if command == "pause" else signal.SIGCONT)
        if command == "stop":
            os.kill(pid, signal.SIGTERM)
            while self.pid is not None:
                time.sleep(0.2)
        print({"stop": "stopped", "pause": "paused", "resume": "runs again"}[command])
        return 0

    def collect(self) -> int:
        """Copies finished records into the checkout; returns how many are new."""
        return _copy(self.runs / self.scale / "results", self.kept / "results")

    def bring_back(self) -> int:
        """Copies the checkout's records to the runs, if these have vanished: they are finished."""
        return _copy(self.kept / "results", self.runs / self.scale / "results", missing_only=True)

    def status(self) -> str:
        """What is finished, what runs, and how to go on."""
        grid = find_grid(self.scale)
        tasks = [(task.cell.name, task.seed) for task in grid.tasks(grid.experiments)]
        done = [key for key in tasks if read_record(_record(self.kept / "results", *key))]
        left = [f"{name}, seed {seed}" for name, seed in tasks if (name, seed) not in done]
        lines = [f"{len(done)} of {len(tasks)} cells are recorded in {self.kept}"]
        if left:
            lines.append(f"next: {'; '.join(left[:3])}")
        if self.pid is None:
            lines.append("nothing runs: 'start' goes on")
        else:
            state = json.loads(self._state.read_text())
            paused = "paused" if _stat(self.pid)[0] == "T" else "runs"
            lines.append(f"process {self.pid} {paused}, from commit {state['commit'][:12]}")
        if self.log.exists():
            lines += self.log.read_text(errors="replace").splitlines()[-3:]
        return "\n".join(lines)


def install(commit: str, folder: Path) -> Path:
    """Builds the package of a commit and installs it alone into a folder; returns that."""
    if (folder / "freetickets" / COMMIT_FILE).exists():
        return folder
    print(f"building {commit[:12]} ...", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        source, target = Path(temporary) / "source", Path(temporary) / "target"
        source.mkdir()
        packed = subprocess.check_output(["git", "-C", ROOT, "archive", commit])
        subprocess.run(["tar", "-x", "-C", source], input=packed, check=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        environment = {**os.environ, "FREETICKETS_REQUIRE_NATIVE": "1"}
        environment.pop("PYTHONPATH", None)
        subprocess.run([*pip, str(target), str(source)], check=True, env=environment)
        (target / "freetickets" / COMMIT_FILE).write_text(f"{commit}\n")
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)
    return folder


def _check_code(code: Path, environment: Mapping[str, str]) -> None:
    """Refuses to train from any other code than that which was installed."""
    words = [sys.executable, "-c", "import freetickets; print(freetickets.__path__[0])"]
    told = subprocess.run(words, env=environment, cwd=code, capture_output=True, text=True)
    if Path(told.stdout.strip()) != code / "freetickets":
        raise SystemExit(f"Python finds FreeTickets in {told.stdout.strip()}, not in {code}")


def descendants(pid: int) -> Iterator[int]:
    """A process, and all that it and those have started."""
    yield pid
    for path in Path("/proc").glob("[0-9]*"):
        if _stat(int(path.name))[1] == str(pid):
            yield from descendants(int(path.name))


def yield_to_others(pid: int) -> None:
    """Gives a process and its descendants the lowest share of the processors.

    Where Linux groups processes by session, `nice` only counts within a group, and each training
    has a session of its own.
    """
    for each in descendants(pid):
        with contextlib.suppress(OSError):  # it has ended, or there are no groups
            Path(f"/proc/{each}/autogroup").write_text("19")


def _stat(pid: int) -> tuple[str, str]:
    """The state and the parent of a process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return words[0], words[1]


def _record(results: Path, cell: str, seed: int | str) -> Path:
    return results / cell / f"{seed}.json"


def _copy(source: Path, target: Path, missing_only: bool = False) -> int:
    """Copies whole records, the answers first, so that none is ever seen without."""
    copied = 0
    for path in sorted(source.glob("*/*.json")):
        place = _record(target, path.parent.name, path.stem)
        if place.exists() and (missing_only or place.read_bytes() == path.read_bytes()):
            continue
        if read_record(path) is None:
            continue  # damaged: it will be made anew
        place.parent.mkdir(parents=True, exist_ok=True)
        for file, to in ((answers_path(path), answers_path(place)), (path, place)):
            if file.exists():
                part = to.with_name(f".{to.name}.part")
                shutil.copyfile(file, part)
                part.replace(to)
        copied += 1
    return copied


def _git(*words: str) -> str:
    return subprocess.check_output(["git", "-C", ROOT, *words], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
