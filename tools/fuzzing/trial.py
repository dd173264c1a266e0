"""One trial: a folder with a damaged file is loaded, and what happens is judged."""

import dataclasses
import hashlib
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from freetickets.errors import FreeTicketsError

from .kinds import KINDS, Kind
from .mutations import mutate

# What is as it should be, and what is not.
FINE = REFUSED, SAME, CHANGED, OTHER = "refused", "same", "changed", "whole other"
FAILURES = ("silently wrong", "traceback", "memory", "hang", "crash")
WRONG, TRACEBACK, MEMORY, HANG, CRASH = FAILURES


@dataclass(frozen=True)
class Outcome:
    """What a load came to; `told` is the message or the fault."""

    word: str
    told: str = ""


class Bench:
    """Valid folders of one kind, made below a home, to damage one file of them at a time."""

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.kind: Kind = KINDS[name]
        self.folder, self.other = home / name / "1", home / name / "2"
        for number, folder in ((1, self.folder), (2, self.other)):
            if not folder.exists():
                folder.mkdir(parents=True)
                self.kind.make(folder, number)
        own = self.kind.load(self.folder)
        self.expected = digest(own)
        self._parts = _digests(own), _digests(self.kind.load(self.other))
        self._alien = {file: self._with_other(file) for file in self.kind.files}

    def damage(self, seed: str) -> tuple[str, bytes, bool]:
        """A file, what damage makes of it, and whether it must be refused, all by the seed."""
        draw = random.Random(f"{self.name} {seed}")
        file = draw.choice(self.kind.files)
        own, others = ((folder / file) for folder in (self.folder, self.other))
        other = others.read_bytes() if others.exists() else b""
        if file in self.kind.owned and draw.random() < 0.02:
            return file, other, True
        return file, mutate(own.read_bytes(), other, draw), False

    def load(self, file: str, data: bytes, refuse: bool = False) -> Outcome:
        """Loads the folder with other bytes in one of its files, and judges what comes of it."""
        with self._replaced(file, data):
            try:
                content = self.kind.load(self.folder)
                found = digest(content)
            except FreeTicketsError as error:
                if _wanted_memory(error):
                    return Outcome(MEMORY, str(error))
                several = "\n" in str(error)
                return Outcome(TRACEBACK if several else REFUSED, str(error))
            except MemoryError as error:
                return Outcome(MEMORY, repr(error))
            except Exception as error:  # any other is what is looked for
                return Outcome(TRACEBACK, f"{type(error).__name__}: {error}"[:300])
        if refuse:
            return Outcome(WRONG, f"{file} of another run was accepted")
        if found == self.expected:
            return Outcome(SAME)
        if file not in self.kind.owned and (found == self._alien[file] or self._is_mixed(content)):
            return Outcome(OTHER)  # a good file in the wrong place: only an owned one can tell
        return Outcome(WRONG if self.kind.sealed else CHANGED)

    def _is_mixed(self, content: Any) -> bool:
        """Whether each array is whole, of this folder or of the other: a file ties no arrays."""
        parts = zip(_digests(content), *self._parts, strict=True)
        return isinstance(content, tuple) and all(part in both for part, *both in parts)

    def _with_other(self, file: str) -> str:
        """What the folder holds with a file of the other one; nothing, if that is refused."""
        other = self.other / file
        if not other.exists():
            return ""
        with self._replaced(file, other.read_bytes()):
            try:
                return digest(self.kind.load(self.folder))
            except FreeTicketsError:
                return ""

    @contextmanager
    def _replaced(self, file: str, data: bytes) -> Iterator[None]:
        path = self.folder / file
        kept = path.with_name(f"{path.name}.kept")
        if not kept.exists():
            shutil.copy(path, kept)
        path.write_bytes(data)
        try:
            yield
        finally:
            kept.replace(path)


def _digests(content: Any) -> list[str]:
    return [digest(part) for part in content] if isinstance(content, tuple) else []


def _wanted_memory(error: BaseException | None) -> bool:
    if error is None or isinstance(error, MemoryError):
        return error is not None
    return _wanted_memory(error.__cause__ or error.__context__)


def digest(value: Any) -> str:
    """Equal for equal content only, to the last bit; the order of keys does not count."""
    content = hashlib.sha256()
    _add(content, value)
    return content.hexdigest()


def _add(content: "hashlib._Hash", value: Any) -> None:
    content.update(f"<{type(value).__name__}>".encode())
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous()
        content.update(f"{value.dtype}{tuple(value.shape)}".encode())
        content.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):
        content.update(f"{value.dtype}{value.shape}".encode())
        content.update(np.ascontiguousarray(value).tobytes())
    elif dataclasses.is_dataclass(value):
        _add(content, {each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            _add(content, key)
            _add(content, value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            _add(content, item)
    else:
        content.update(repr(value).encode())
    content.update(b"</>")
