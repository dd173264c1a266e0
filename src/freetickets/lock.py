"""One process an output folder: a lock that vanishes with the process that holds it.

The operating system holds the lock, so a killed process never leaves one behind. The file says who
holds it, for the message, and for file systems whose locks don't reach other machines: there a
holder is believed dead once it has not touched the file for a while.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import FreeTicketsError
from .reading import Count, Text, error_line, read
from .seal import parse_json

NAME = ".lock"

# Seconds between two signs of life, and after how many without one a holder elsewhere is dead.
_BEAT = 10.0
STALE = 60.0

_held: set[Path] = set()  # by this process: a record lock does not keep out its own process
_guard = threading.Lock()


class FolderInUseError(FreeTicketsError):
    """Another process works in the folder."""


@dataclass(frozen=True)
class Holder:
    """Who holds a folder; `start` tells a process from a later one with the same number."""

    process: Count
    host: Text
    start: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _this_process() -> Holder:
    return Holder(os.getpid(), socket.gethostname(), process_start(os.getpid()) or "")


@contextlib.contextmanager
def hold(
    folder: str | Path, tell: Callable[[str], None] = lambda line: None, wait: float = 0.0
) -> Iterator[None]:
    """Keeps other processes out of a folder, which is made if it is not there.

    Waits so many seconds for another to leave; tells when the folder of a dead one is taken over.
    """
    folder = Path(folder)
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    key, path = folder.resolve(), folder / NAME
    deadline = time.monotonic() + wait
    try:
        while True:
            try:
                descriptor = _take(key, path, tell)
                break
            except FolderInUseError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(0.2, wait))
        over = threading.Event()

        def give_signs_of_life() -> None:
            while not over.wait(_BEAT):
                with contextlib.suppress(OSError):
                    os.utime(descriptor)

        try:
            threading.Thread(target=give_signs_of_life, daemon=True).start()
            yield
        finally:
            over.set()
            with _guard, contextlib.suppress(OSError):
                _held.discard(key)
                try:
                    if _is_at(descriptor, path):
                        path.unlink()  # still locked: who waits for this file sees that it is gone
                finally:
                    os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            for each in made:  # where nothing was written
                each.rmdir()


def process_start(process: int) -> str | None:
    """When a process of this machine began, reboots told apart; None if there is none.

    Example:
        >>> process_start(os.getpid()) == process_start(os.getpid()), process_start(2**22 + 1)
        (True, None)
    """
    try:
        # The name, in brackets, may hold spaces; the 22nd field is the start since the boot.
        state, *values = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + values[18]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(process)]
        told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        state, _, start = told.strip().partition(" ")
    # What is dead but not yet buried by its parent (Z) still has its number.
    return start.strip() if state and state[0] not in "ZX" else None


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FreeTicketsError(f"can't write {path}: {error_line(error)}") from error


def _take(key: Path, path: Path, tell: Callable[[str], None]) -> int:
    """Takes the lock; returns the open file that holds it."""
    with _guard:
        if key in _held:
            raise _in_use(path, _this_process())
        while True:
            with _writing(path):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                locked = _lock(descriptor)
                if not _is_at(descriptor, path):  # its holder has just left and removed it
                    os.close(descriptor)
                    continue
                holder = _read(descriptor)
                if not locked or (holder is not None and _lives(holder, descriptor, path.parent)):
                    raise _in_use(path, holder)
                if holder is not None:
                    tell(f"{holder} died while it worked in {path.parent}: its lock is taken over")
                with _writing(path):
                    try:
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, json.dumps(asdict(_this_process())).encode(), 0)
                    except OSError:  # no room: nothing half written may stay
                        path.unlink(missing_ok=True)
                        raise
            except BaseException:
                os.close(descriptor)
                raise
            _held.add(key)
            return descriptor


def _lock(descriptor: int) -> bool:
    """Asks the operating system for the lock; True also where the file system has none to give."""
    # Not flock: data loaders fork, and what they inherit must not outlive the process.
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> Holder | None:
    try:
        text = os.pread(descriptor, 4096, 0).decode()
        return Holder(**vars(read(Holder, parse_json(text))))
    except (FreeTicketsError, ValueError):  # empty, or half written before the power was lost
        return None


def _lives(holder: Holder, descriptor: int, folder: Path) -> bool:
    """Whether a holder that the operating system knows no lock of works all the same."""
    if holder.host != socket.gethostname():
        with tempfile.TemporaryFile(dir=folder) as now:  # by the clock of the file system
            age = os.fstat(now.fileno()).st_mtime - os.fstat(descriptor).st_mtime
        if age < 0:  # the clock was put back since: it has as long from now on to give another
            os.utime(descriptor)
        return age < STALE
    return holder.process != os.getpid() and process_start(holder.process) == holder.start


def _in_use(path: Path, holder: Holder | None) -> FolderInUseError:
    hint = ""
    if holder is not None:
        here = holder.host == socket.gethostname()
        hint = ", or stop it" if here else f"; if it is dead, try again in {STALE:.0f} s"
    who = holder or "another process"
    return FolderInUseError(f"{path.parent} is in use by {who}: wait until it ends{hint}")
