"""A digest of anything that a loader returns, to the last bit."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def digest(value: Any) -> str:
    """Equal for equal content only; the order of keys does not count."""
    content = hashlib.sha256()
    _add(content, value)
    return content.hexdigest()


def _add(content: hashlib._Hash, value: Any) -> None:
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
