"""A ticket: one trained network, with its topology and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import FreeTicketsError
from .reading import Allow, Count, Natural, Positive, damaged, read
from .sparsity.topology import Topology, pack_mask, unpack_mask
from .storage import load_tree, save_tree

_KIND = "freetickets-ticket"


@dataclass(frozen=True)
class _Info:
    """The types of what a ticket says of itself; it may say more, and one made by hand less."""

    number: Count | None = None
    tickets: Count | None = None
    model: str = ""
    model_options: dict[str, Any] = field(default_factory=dict)
    method: str = "dense"
    options: dict[str, Any] = field(default_factory=dict)
    combine: str = ""
    input_shape: tuple[Count, ...] = ()
    classes: tuple[str, ...] = ()
    task: str = "classification"
    task_options: dict[str, Any] = field(default_factory=dict)
    outputs: Count | None = None
    mean: tuple[float, ...] = ()
    std: tuple[Positive, ...] = ()
    dataset: str = ""
    image_size: Count | None = None
    settings: str | None = None
    data: str | None = None
    run: Count | None = None
    seed: Natural | None = None
    phase: str = ""
    step: Natural | None = None
    epoch: float | None = None
    sparsity: float | None = None
    validation_loss: float | None = None
    validation_accuracy: float | None = None

    def __post_init__(self) -> None:
        channels = {len(self.mean), len(self.std), *self.input_shape[:1]}
        if self.mean and len(channels) > 1:
            raise ValueError("mean and std must have a number for each channel")


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
        """Takes a copy of a network as it is now.

        Args:
            state: Its `state_dict`; that of a network in wrappers (`torch.compile`, data-parallel)
                will do, and is stored under the network's own names.
            topology: Its masks, by the network's own names.
            info: How it was made.

        Example:
            >>> network = torch.nn.Linear(2, 1)
            >>> state = torch.nn.DataParallel(network).state_dict()
            >>> mask = torch.ones(1, 2, dtype=torch.bool)
            >>> list(Ticket.of(state, {"weight": mask}, {}).state)
            ['weight', 'bias']
        """
        if not topology.keys() <= state.keys():
            own = (name.replace("_orig_mod.", "").removeprefix("module.") for name in state)
            state = dict(zip(own, state.values(), strict=True))
        if missing := sorted(topology.keys() - state.keys()):
            raise FreeTicketsError(f"the topology has a layer {missing[0]!r} that the state lacks")
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
        """Reads a ticket and checks it; one that was altered is a `DamagedFileError`."""
        with damaged(path):
            return cls.unpack(load_tree(path, _KIND))

    def pack(self) -> dict[str, Any]:
        """The ticket as a tree of small tensors and plain values."""
        sparse = {}
        for name, mask in self.topology.items():
            packed, values = pack_mask(mask), self.state[name][mask]
            sparse[name] = {"shape": list(mask.shape), "topology": packed, "values": values}
        dense = {name: tensor for name, tensor in self.state.items() if name not in sparse}
        # A tied weight stands under several names: store it once, point to it from the others.
        first: dict[int, str] = {id(self.state[name]): name for name in sparse}
        same = {}
        for name, tensor in self.state.items():
            if (original := first.setdefault(id(tensor), name)) != name:
                same[name] = original
                del dense[name]
        order = list(self.state)
        return {"info": self.info, "order": order, "sparse": sparse, "dense": dense, "same": same}

    @classmethod
    def unpack(cls, tree: Mapping[str, Any]) -> Ticket:
        """Undoes `pack`."""
        read(_Info, tree["info"], allow=Allow.UNKNOWN)
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
