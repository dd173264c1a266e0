"""Files that are whole or absent, and that tell when they were altered.

Everything FreeTickets writes goes through `write_atomic`. Tensors with plain values around them are
one safetensors file: loading it can't run code, and its digest covers every tensor and value.
"""

import contextlib
import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from .errors import FreeTicketsError
from .reading import damaged, error_line, read_file
from .seal import seal_values, stamp, unstamp

# safetensors keeps metadata in an unordered map: with a single key, equal content is equal bytes.
_METADATA_KEY = "freetickets"


def write_atomic(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Writes a file completely or not at all, and returns once it is safe on the disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
            left.unlink(missing_ok=True)  # by a process that was killed while it wrote
        with whole_file(path) as file:
            file.writelines([data] if isinstance(data, bytes) else data)
    except OSError as error:
        raise FreeTicketsError(
            f"can't write {path}: {error.strerror or error}; what was saved before is untouched"
        ) from error


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a temporary file that becomes the file if all goes well, and goes away if not."""
    # Beside it, so that the renaming is atomic; of its own name, since several may write at once.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # made for its owner only
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes plain values as JSON that people can read, with a seal."""
    write_atomic(path, (json.dumps(seal_values(values), indent=2) + "\n").encode())


def save_tree(path: Path, tree: Any, kind: str) -> None:
    """Saves nested dicts, lists and tuples of tensors and plain values as one checked file."""
    tensors: dict[str, Tensor] = {}
    header = {"kind": kind, **stamp({"tree": _flatten(tree, tensors)})}
    header["sha256"] = _digest(header, tensors)
    metadata = {_METADATA_KEY: json.dumps(header, sort_keys=True)}
    _check_memory(3 * sum(tensor.nbytes for tensor in tensors.values()))  # as many copies
    write_atomic(path, safetensors.torch.save(tensors, metadata))


def load_tree(path: Path, kind: str) -> Any:
    """Loads what `save_tree` saved, exactly as it was written."""
    data = read_file(path)
    _check_memory(2 * len(data))
    with damaged(path):
        try:
            tensors = safetensors.torch.load(data)
        except safetensors.SafetensorError as error:
            raise ValueError(f"not a FreeTickets file: {error_line(error)}") from error
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_METADATA_KEY])
        if header.pop("sha256") != _digest(header, tensors):
            raise ValueError("its content does not match its checksum")
        if header["kind"] != kind:
            raise ValueError(f"it is a {header['kind']}, not a {kind}")
        return _unflatten(unstamp(header)["tree"], tensors)


def _check_memory(size: int) -> None:
    """Raises MemoryError where safetensors, for want of this many bytes, would end the process."""
    bytearray(size)  # which costs no time: what is never written to is never really given


def _digest(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    state = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        state.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        state.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Replaces the tensors of a tree by their names, and what JSON can't say by tagged lists."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy of its own: safetensors refuses tensors that share memory, as views of one do.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {"map": [[_flatten(k, tensors), _flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_flatten(item, tensors) for item in value]}
    if isinstance(value, list):
        return [_flatten(item, tensors) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"can't save a {type(value).__name__}")


def _unflatten(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unflatten(item, tensors) for item in value]
    if isinstance(value, dict):
        ((tag, content),) = value.items()
        if tag == "tensor":
            return tensors[content]
        if tag == "tuple":
            return tuple(_unflatten(item, tensors) for item in content)
        return {_unflatten(k, tensors): _unflatten(v, tensors) for k, v in content}
    return value
