"""A ticket: one trained network, with its topology and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import is_out_of_memory
from .sparsity.topology import Topology, pack_mask, unpack_mask
from .storage import DAMAGE, DamagedFileError, load_tree, save_tree

_KIND = "freetickets-ticket"


@dataclass
class Ticket:
    """One member on disk: only the active weights are stored, and one bit for each place.

    Attributes:
        state: The network's `state_dict`, with zeros outside the topology.
        topology: The masks of the sparse layers; empty for a dense network.
        info: How it was made: model, data, method, run, step, validation score.
    """

    state: dict[str, Tensor]
    topology: Topology = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Mapping[str, Tensor], topology: Topology, info: Mapping[str, Any]) -> Ticket:
        """Takes a copy of a network as it is now."""
        copies: dict[Any, Tensor] = {}
        for tensor in state.values():
            if _place(tensor) not in copies:  # tied weights stay tied in the copy
                copies[_place(tensor)] = tensor.detach().cpu().clone()
        return cls(
            {name: copies[_place(tensor)] for name, tensor in state.items()},
            {name: mask.cpu().clone() for name, mask in topology.items()},
            dict(info),
        )

    def save(self, path: Path) -> None:
        """Writes the ticket; equal tickets are equal files, byte for byte."""
        save_tree(path, self.pack(), _KIND)

    @classmethod
    def load(cls, path: Path) -> Ticket:
        """Reads a ticket and checks it.

        Raises:
            DamagedFileError: The file was truncated or altered.
        """
        try:
            return cls.unpack(load_tree(path, _KIND))
        except DAMAGE as error:
            if is_out_of_memory(error):
                raise
            raise DamagedFileError(f"{path} is damaged: {error}") from error

    def pack(self) -> dict[str, Any]:
        """The ticket as a tree of small tensors and plain values."""
        sparse = {
            name: {
                "shape": list(mask.shape),
                "topology": pack_mask(mask),
                "values": self.state[name][mask],
            }
            for name, mask in self.topology.items()
        }
        dense = {name: tensor for name, tensor in self.state.items() if name not in sparse}
        # A tied weight stands under several names: store it once, point to it from the others.
        first: dict[int, str] = {id(self.state[name]): name for name in sparse}
        same = {}
        for name, tensor in self.state.items():
            original = first.setdefault(id(tensor), name)
            if original != name:
                same[name] = original
                del dense[name]
        order = list(self.state)
        return {"info": self.info, "order": order, "sparse": sparse, "dense": dense, "same": same}

    @classmethod
    def unpack(cls, tree: Mapping[str, Any]) -> Ticket:
        """Undoes `pack`."""
        found = dict(tree["dense"])
        topology = {}
        for name, parts in tree["sparse"].items():
            shape = torch.Size(parts["shape"])
            if parts["topology"].numel() != -(-shape.numel() // 8):
                raise ValueError(f"the topology of {name} is not of its shape {tuple(shape)}")
            mask = unpack_mask(parts["topology"], shape)
            weight = torch.zeros(mask.shape, dtype=parts["values"].dtype)
            weight[mask] = parts["values"]
            found[name], topology[name] = weight, mask
        for name, original in tree["same"].items():
            found[name] = found[original]
        return cls({name: found[name] for name in tree["order"]}, topology, dict(tree["info"]))


def _place(tensor: Tensor) -> Any:
    """What two names of one weight have in common."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def ticket_path(folder: Path, number: int) -> Path:
    """Where a run folder keeps a ticket."""
    return folder / "tickets" / f"{number:02d}.safetensors"
