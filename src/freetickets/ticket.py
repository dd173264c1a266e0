"""A ticket: one trained network, with its topology and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import FreeTicketsError
from .reading import Allow, Count, Natural, Positive, damaged, read_fields, types_of
from .sparsity.topology import Topology, pack_mask, unpack_mask
from .storage import load_tree, save_tree

_KIND = "freetickets-ticket"


# What a ticket says of itself, by type; it may say more, and one made by hand less.
_INFO = {
    str: "model method combine task dataset phase",
    dict[str, Any]: "options model_options task_options",
    tuple[str, ...]: "classes",
    tuple[Count, ...]: "input_shape",
    tuple[float, ...]: "mean",
    tuple[Positive, ...]: "std",
}
_INFO_OR_NONE = {
    Count: "number tickets outputs image_size run",
    Natural: "seed step",
    float: "epoch sparsity validation_loss validation_accuracy",
    str: "settings data",
}


@dataclass
class Ticket:
    """One member on disk: only the active weights are stored, plus one bit for each position.

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
        """Makes a ticket from a copy of a network as it is now.

        The `state_dict` may be that of a wrapped network (`torch.compile`, data-parallel); it is
        stored under the network's own names, which the topology uses too.
        """
        if not topology.keys() <= state.keys():
            own = (name.replace("_orig_mod.", "").removeprefix("module.") for name in state)
            state = dict(zip(own, state.values(), strict=True))
        if missing := sorted(topology.keys() - state.keys()):
            raise FreeTicketsError(f"the topology has a layer {missing[0]!r} that the state lacks")
        copies: dict[Any, Tensor] = {}
        own_state = {}
        for name, tensor in state.items():
            place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
            if place not in copies:  # tied weights stay tied in the copy
                copies[place] = tensor.detach().cpu().clone()
            own_state[name] = copies[place]
        masks = {name: mask.cpu().clone() for name, mask in topology.items()}
        return cls(own_state, masks, dict(info))

    def save(self, path: str | Path) -> None:
        """Writes the ticket; equal tickets are equal files, byte for byte."""
        save_tree(Path(path), self.pack(), _KIND)

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """Reads and checks a ticket; an altered one raises a `DamagedFileError`."""
        with damaged(Path(path)):
            return cls.unpack(load_tree(Path(path), _KIND))

    def pack(self) -> dict[str, Any]:
        """The ticket as a tree of small tensors and plain values."""
        sparse = {}
        for name, mask in self.topology.items():
            packed, values = pack_mask(mask), self.state[name][mask]
            sparse[name] = {"shape": list(mask.shape), "topology": packed, "values": values}
        # A tied weight stands under several names: store it once, point to it from the others.
        first: dict[int, str] = {id(self.state[name]): name for name in sparse}
        dense, same = {}, {}
        for name, tensor in self.state.items():
            if (original := first.setdefault(id(tensor), name)) != name:
                same[name] = original
            elif name not in sparse:
                dense[name] = tensor
        order = list(self.state)
        return {"info": self.info, "order": order, "sparse": sparse, "dense": dense, "same": same}

    @classmethod
    def unpack(cls, tree: Mapping[str, Any]) -> Ticket:
        """Undoes `pack`."""
        info = read_fields(types_of(_INFO, _INFO_OR_NONE), tree["info"], allow=Allow.UNKNOWN)
        mean, std, shape = (info.get(name, ()) for name in ("mean", "std", "input_shape"))
        if mean and len({len(mean), len(std), *shape[:1]}) > 1:
            raise ValueError("mean and std must have a number for each channel")
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


def ticket_path(folder: Path, number: int) -> Path:
    """Where a run folder keeps a ticket."""
    return folder / "tickets" / f"{number:02d}.safetensors"
