"""One weight held to its topology."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class SparseWeight:
    """One weight held to its topology: dense in memory, zero wherever the mask is."""

    def __init__(self, name: str, parameter: nn.Parameter, mask: Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.ever_active = torch.zeros_like(mask, device=parameter.device)
        self.rewire(mask)

    def rewire(self, mask: Tensor) -> None:
        """Gives the weight another topology; masks that were handed out stay as they are."""
        self.mask = mask.to(self.parameter.device)
        self.inactive = ~self.mask
        self.ever_active |= self.mask
        self.nonzeros = int(mask.sum())

    def mask_gradient(self) -> None:
        """Sets the gradient to zero where inactive."""
        if self.parameter.grad is not None:
            self.parameter.grad.masked_fill_(self.inactive, 0)

    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight and its optimizer state to zero where inactive."""
        self.clear(optimizer, self.inactive, self.inactive)

    def clear(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> None:
        """Sets these weights to zero, and this part of all optimizer state of the weight's shape.

        Filling, unlike a product with the mask, makes zeros out of infinities and NaN too.
        """
        self.parameter.data.masked_fill_(weights, 0)
        for value in optimizer.state.get(self.parameter, {}).values():
            if isinstance(value, Tensor) and value.shape == self.parameter.shape:
                value.masked_fill_(state, 0)
