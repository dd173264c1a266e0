"""What an event sees of a training, and may do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..data.batches import Batches
from ..sparsity.sparsifier import Sparsifier
from ..sparsity.topology import Topology
from ..ticket import Ticket
from .session import Session

if TYPE_CHECKING:
    from .trainer import Trainer


@dataclass(frozen=True)
class Stage:
    """A training at the end of a phase.

    All ranks of a data-parallel training meet the same stage, and must leave it the same.

    Attributes:
        session: The network, its optimizer and its sparsifier, at work.
        batches: The training batches of this rank; `batches.whole()` gives all ranks the same.
        generator: Random numbers of this event's own, the same in a resumed run.
    """

    session: Session
    batches: Batches
    generator: torch.Generator
    _trainer: Trainer
    _take: Callable[[Mapping[str, Tensor], Topology], Ticket]

    @property
    def network(self) -> nn.Module:
        """The network as it is now."""
        return self.session.network

    @property
    def sparsifier(self) -> Sparsifier | None:
        """What holds the network to its topology; None for a dense one."""
        return self.session.sparsifier

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.session.device

    def build(self, ticket: Ticket) -> nn.Module:
        """Makes another network, with the weights of a ticket, in PyTorch's own layers."""
        with torch.random.fork_rng(devices=[]):
            network = self._trainer.build()
        network.load_state_dict(ticket.state)
        return network.to(self.device)

    @property
    def step(self) -> int:
        """How many steps the run has taken."""
        return self._trainer.state.step

    @property
    def collected(self) -> int:
        """How many tickets there are by now."""
        return self._trainer.state.tickets

    def take(
        self, weights: Mapping[str, Tensor] | None = None, topology: Topology | None = None
    ) -> Ticket:
        """Makes a ticket of the network as it is now, or of other weights and another topology."""
        own = self.network.state_dict() if weights is None else weights
        return self._take(own, self.session.topology if topology is None else topology)

    def best(self) -> Ticket:
        """The phase's best network on validation data; the present one if none was scored."""
        best = self._trainer.state.best
        return self.take() if best is None else Ticket.unpack(best)

    def collect(self, ticket: Ticket) -> str:
        """Adds a ticket to the ensemble, and saves it; returns a line for people."""
        return self._trainer.collect(ticket)

    def remember(self, name: str, ticket: Ticket) -> None:
        """Puts a network on the shelf, which is in every checkpoint until the run ends."""
        self._trainer.state.shelf[name] = ticket.pack()

    def recall(self, name: str) -> Ticket | None:
        """Takes a network from the shelf; None if nothing has this name."""
        packed = self._trainer.state.shelf.get(name)
        return None if packed is None else Ticket.unpack(packed)
