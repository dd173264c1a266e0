"""A corrupted data set on disk, in the layout of the published ones.

A folder holds `{corruption}.npy`, all images of severity 1, then of 2 and so on, and `labels.npy`,
as often. `corruptions.json` says how they were made, so that nothing different is ever mixed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import FreeTicketsError
from ...reading import damaged, read_json
from .apply import corrupt
from .frost import frost_source
from .streams import Bytes, Floats

_BLOCK = 500  # images between two signs of life
_CHUNK = 1 << 20  # bytes that are written at a time
_REVISION = 2  # goes up with every change of the corruptions that changes bytes


class CorruptedSet:
    """A folder that is filled corruption by corruption, with images (N, H, W, 3) or (N, H, W).

    It is made if it is missing, and refused if it holds something else.
    """

    def __init__(
        self,
        folder: Path,
        dataset: str,
        images: Bytes,
        labels: npt.NDArray[np.int64],
        severities: Sequence[int],
        seed: int,
        frost: Path | None,
    ) -> None:
        self.folder, self._severities = folder, tuple(severities)
        self._images, self._shared = images, (images, seed, frost)
        self._shape = (len(self._severities) * len(images), *images.shape[1:])
        # What the bytes of the set depend on.
        self.settings = {
            "dataset": dataset,
            "samples": len(images),
            "images": sha256(f"{images.shape}".encode() + images.tobytes()).hexdigest(),
            "seed": seed,
            "severities": list(severities),  # in the order of the files
            "frost": frost_source(frost),
            "revision": _REVISION,
        }
        self._open()
        kind = np.uint8 if labels.max() < 256 else np.int64
        self._save("labels", np.tile(labels.astype(kind), len(self._severities)))

    def _open(self) -> None:
        """Claim the folder, or check that it was made with these settings."""
        note = self.folder / "corruptions.json"
        if note.exists():
            with damaged(note, "choose another --output"):
                found = read_json(note)
            for name, value in self.settings.items():
                if found.get(name) != value:
                    what = f"{name} {found.get(name)}, not {value}" if name != "images" else name
                    raise FreeTicketsError(
                        f"{self.folder} has other settings ({what}): choose another --output"
                    )
            return
        if self.folder.exists() and any(self.folder.glob("*.npy")):
            raise FreeTicketsError(f"{self.folder} holds other files: choose another --output")
        from ...storage import write_json  # not above: workers need no torch

        write_json(note, self.settings)

    def has(self, name: str) -> bool:
        """Whether a corruption is finished."""
        try:
            found = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return False
        return bool(found.shape == self._shape and found.dtype == np.uint8)

    def write(self, name: str, workers: ProcessPoolExecutor | None = None) -> Iterator[int]:
        """Make one corruption; its file appears when it is done. Gives counts of new images."""
        result = np.empty(self._shape, np.uint8)
        starts = range(0, len(self._images), _BLOCK)
        tasks = [(name, severity, start) for severity in self._severities for start in starts]
        done = 0
        here = (_corrupt_block(*self._shared, task) for task in tasks)
        parts = here if workers is None else workers.map(_work, tasks)
        try:
            for part in parts:
                result[done : done + len(part)] = part
                done += len(part)
                yield len(part)
        except BrokenProcessPool as error:
            raise FreeTicketsError("a worker was killed: run it again with a smaller -j") from error
        self._save(name, result)

    @contextmanager
    def workers(self, count: int) -> Iterator[ProcessPoolExecutor | None]:
        """Processes that share the work while the block runs; None if one is enough."""
        if count == 1:
            yield None
            return
        # Not forked: this process may have threads, of torch for example.
        pool = ProcessPoolExecutor(count, get_context("spawn"), _start, self._shared)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)

    def _save(self, name: str, array: Floats) -> None:
        from ...storage import write_atomic

        content = BytesIO()
        np.save(content, array)
        content.seek(0)
        write_atomic(self.folder / f"{name}.npy", iter(lambda: content.read(_CHUNK), b""))


_shared: tuple[Bytes, int, Path | None]


def _start(*shared: Any) -> None:
    """Keep what all tasks of a worker need; Ctrl-C is for the process that hands out the tasks."""
    global _shared
    _shared = shared
    signal(SIGINT, SIG_IGN)


def _work(task: tuple[str, int, int]) -> Bytes:
    return _corrupt_block(*_shared, task)


def _corrupt_block(
    images: Bytes, seed: int, frost: Path | None, task: tuple[str, int, int]
) -> Bytes:
    name, severity, start = task
    return corrupt(images[start : start + _BLOCK], name, severity, seed, frost, first=start)
