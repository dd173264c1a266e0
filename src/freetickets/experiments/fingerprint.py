"""Fingerprints: a digest of what was chosen, so that a new option leaves old ones as they were.

What equals its default is left out. So a field that is added later, with a default that changes
nothing, changes no fingerprint, and what was finished stays finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any


def fingerprint(values: Mapping[str, Any]) -> str:
    """A digest of values; of data classes among them only what differs from their defaults."""
    text = json.dumps(chosen(values), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def chosen(value: Any) -> Any:
    """Plain values that say the same; of a data class only what is not its default.

    Example:
        >>> from freetickets.methods import EDST
        >>> chosen([EDST(tickets=7), EDST(tickets=3)])
        [{'tickets': 7}, {}]
    """
    if is_dataclass(value):
        told = {each.name: (getattr(value, each.name), _default(each)) for each in fields(value)}
        return {name: chosen(own) for name, (own, default) in told.items() if own != default}
    if isinstance(value, Mapping):
        return {str(key): chosen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [chosen(each) for each in value]
    return value


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()
