"""The tickets behind predictions: a digest that ties the two together, and what only they tell."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .results import Layer

if TYPE_CHECKING:
    from ..ticket import Ticket


def digest_tickets(folder: Path) -> str | None:
    """A digest of a run's tickets and of their temperature; None if there are no tickets.

    Predictions that say another one were made by other networks.
    """
    files = sorted((folder / "tickets").glob("[0-9]*.safetensors"))
    if not files:
        return None
    content = hashlib.sha256()
    for file in (*files, folder / "calibration.json"):
        if file.exists():
            content.update(f"{file.name}|{file.stat().st_size}|".encode())
            content.update(file.read_bytes())
    return content.hexdigest()[:16]


def layer_densities(tickets: Sequence[Ticket]) -> tuple[Layer, ...]:
    """How dense each weight is in each ticket; nothing, if no ticket is sparse.

    A weight is anything of two axes or more; what the distribution left dense has density 1.
    """
    if not any(ticket.topology for ticket in tickets):
        return ()
    return tuple(
        Layer(
            name,
            tuple(
                float(ticket.topology[name].double().mean()) if name in ticket.topology else 1.0
                for ticket in tickets
            ),
            tuple(weight.shape),
        )
        for name, weight in tickets[0].state.items()
        if weight.dim() >= 2
    )
