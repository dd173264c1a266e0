"""A corrupted data set on disk, in the layout of the published ones.

A folder holds `{corruption}.npy`, all images of severity 1, then of 2 and so on, and `labels.npy`,
as often. `corruptions.json` says how they were made, so that nothing different is ever mixed in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import FreeTicketsError
from ...reading import damaged, read_json
from ...storage import write_atomic, write_json
from ..samples import read_parts
from .apply import Bytes, Floats, corrupt
from .frost import frost_source

_BLOCK = 500  # images between two signs of life
_CHUNK = 1 << 20  # bytes that are written at a time
_REVISION = 2  # goes up with every change of the corruptions that changes bytes
_ELSE = "choose another --output"


@dataclass
class CorruptedSet:
    """A folder that is filled corruption by corruption, with images (N, H, W, 3) or (N, H, W).

    It is made if it is missing, and refused if it holds something else.
    """

    folder: Path
    dataset: str
    images: Bytes
    labels: npt.NDArray[np.int64]
    severities: Sequence[int]
    seed: int
    frost: Path | None

    def __post_init__(self) -> None:
        self._shape = (len(self.severities) * len(self.images), *self.images.shape[1:])
        self.settings = {  # what the bytes of the set depend on
            "dataset": self.dataset,
            "samples": len(self.images),
            "images": sha256(f"{self.images.shape}".encode() + self.images.tobytes()).hexdigest(),
            "seed": self.seed,
            "severities": list(self.severities),  # in the order of the files
            "frost": frost_source(self.frost),
            "revision": _REVISION,
        }
        note = self.folder / "corruptions.json"
        if note.exists():
            with damaged(note, _ELSE):
                found = read_json(note)
            for name, value in self.settings.items():
                if found.get(name) != value:
                    what = f"{name} {found.get(name)}, not {value}" if name != "images" else name
                    raise FreeTicketsError(f"{self.folder} has other settings ({what}): {_ELSE}")
        else:
            if self.folder.exists() and any(self.folder.glob("*.npy")):
                raise FreeTicketsError(f"{self.folder} holds other files: {_ELSE}")
            write_json(note, self.settings)
        kind = np.uint8 if self.labels.max() < 256 else np.int64
        self._save("labels", np.tile(self.labels.astype(kind), len(self.severities)))

    def has(self, name: str) -> bool:
        """Whether a corruption is finished."""
        try:
            found = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return False
        return bool(found.shape == self._shape and found.dtype == np.uint8)

    def write(self, name: str, processes: int = 1) -> Iterator[int]:
        """Make one corruption; its file appears when it is done. Gives counts of new images."""
        result = np.empty(self._shape, np.uint8)
        tasks = product([name], self.severities, range(0, len(self.images), _BLOCK))
        done = 0
        try:
            for part in read_parts(self._block, list(tasks), processes if processes > 1 else 0):
                result[done : done + len(part)] = part
                done += len(part)
                yield len(part)
        except RuntimeError as error:
            if processes == 1:
                raise
            raise FreeTicketsError("a worker was killed: run it again with a smaller -j") from error
        self._save(name, result)

    def _block(self, task: tuple[str, int, int]) -> Bytes:
        name, severity, start = task
        images = self.images[start : start + _BLOCK]
        return corrupt(images, name, severity, self.seed, self.frost, first=start)

    def _save(self, name: str, array: Floats) -> None:
        content = BytesIO()
        np.save(content, array)
        content.seek(0)
        write_atomic(self.folder / f"{name}.npy", iter(lambda: content.read(_CHUNK), b""))
