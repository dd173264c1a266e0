"""A weight with a reserve: inactive values that train although the network does not see them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .topology import pack_mask, select_top, unpack_mask
from .weight import MaskedWeight, as_bits


class ReservedWeight(MaskedWeight):
    """A masked weight that keeps all its values, as Top-KAST does.

    The active weights are in the parameter, all others are set aside. The strongest of those are
    the reserve: they get gradients and optimizer state, for which they are put into the parameter
    while the optimizer takes its step. The rest stays as it is, and comes back when the others
    have become weaker.

    Args:
        name: The weight's name in the network.
        parameter: What the optimizer trains, with all its values.
        mask: The active weights.
        share: The size of the reserve, as a share of the weight.
        generator: Breaks ties.
    """

    def __init__(
        self,
        name: str,
        parameter: nn.Parameter,
        mask: Tensor,
        share: float,
        generator: torch.Generator,
    ) -> None:
        self._aside = parameter.detach().clone()
        self._size = round(share * parameter.numel())
        self._is_back = False
        super().__init__(name, parameter, mask)
        self._train(self._reserve(self._aside.abs(), self._mask, generator))

    @property
    def tensor(self) -> Tensor:
        """All values, active or not."""
        return torch.where(self._mask, self.parameter.detach(), self._aside)

    def bring_back(self) -> None:
        """Puts the reserve into the parameter, for the optimizer."""
        if not self._is_back:
            self.parameter.data.copy_(torch.where(self._trained, self.tensor, 0))
            self._is_back = True

    def set_aside(self) -> None:
        """Takes all but the active weights out of the parameter, for the network."""
        if self._is_back:
            values = self.parameter.detach()
            self._aside = torch.where(self._trained, values, self._aside)
            self._is_back = False
            self.parameter.data.copy_(torch.where(self._mask, values, 0))

    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight to zero where inactive, its optimizer state where nothing trains."""
        self.set_aside()
        self._keep(optimizer, self._active_bits, self._bits)

    def restore(self, mask: Tensor) -> None:
        """Takes a topology; what trains besides it is another matter."""
        super().restore(mask)
        self._active_bits = self._bits

    def choose(self, optimizer: Optimizer, scores: Tensor, generator: torch.Generator) -> None:
        """Makes the best of all weights the active ones, and the next the reserve."""
        self._aside = self.tensor
        active = select_top(scores, self.nonzeros, torch.ones_like(self._mask), generator)
        reserve = self._reserve(scores, active, generator)
        self.ever_active |= active
        self.parameter.data.copy_(self._aside)
        self.restore(active)
        self._train(reserve)
        self.hold(optimizer)

    def reserve_state(self) -> dict[str, Any]:
        """Returns what a resumed run needs besides the topology."""
        return {"values": self._aside.clone(), "trained": pack_mask(self._trained)}

    def load_reserve_state(self, state: dict[str, Any]) -> None:
        """Restores a `reserve_state`; the topology is restored already."""
        self._is_back = False
        self._aside = state["values"].to(self.parameter.device, copy=True)
        trained = unpack_mask(state["trained"], self._mask.shape)
        self._train(trained.to(self.parameter.device))

    def _reserve(self, scores: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        count = min(self._size, active.numel() - int(active.sum()))
        return select_top(scores, count, ~active, generator)

    def _train(self, reserve: Tensor) -> None:
        self._trained = self._mask | reserve
        self._bits = as_bits(self._trained, self.parameter.element_size())
