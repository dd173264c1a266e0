"""Prints a digest of the weights and topologies that each method trains in a tiny run.

Two commits that print the same train the same, bit for bit (on one machine, with masked layers):

    python tools/weights_digest.py > before; git checkout ...; python tools/weights_digest.py | diff before -
"""  # noqa: E501

from __future__ import annotations

import hashlib
import sys

import torch

from freetickets.methods import METHODS
from freetickets.ticket import Ticket


def digest(tickets: list[Ticket]) -> str:
    """A digest of what tickets hold, but for what they say of themselves."""
    content = hashlib.sha256()
    for ticket in tickets:
        for parts in (ticket.state, ticket.topology):
            for name, tensor in parts.items():
                content.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
                content.update(tensor.contiguous().numpy().tobytes())
    return content.hexdigest()[:16]


def main(names: list[str]) -> None:
    """Trains methods, all or those that are named, with validation data and both presets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (192, 1, 12, 12), generator=generator).to(torch.uint8)
    y = x.float().mean((1, 2, 3)).gt(127.5).long() + torch.arange(192) % 2
    for name in names or METHODS:
        for preset in ("robust", "paper"):
            ensemble = METHODS[name]().fit(
                "cnn", (x, y), epochs=6, batch_size=32, lr=0.05, validation=0.2,
                label_smoothing=0.1, preset=preset, backend="masked", quiet=True,
            )  # fmt: skip
            print(f"{name:16} {preset:7} {digest(ensemble.tickets)}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
