"""One weight held to its topology."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# The integers that are as wide as a float of so many bytes.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


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
        self._bits = _as_bits(self.mask, self.parameter.element_size())
        self.ever_active |= self.mask
        self.nonzeros = int(mask.sum())

    def mask_gradient(self) -> None:
        """Sets the gradient to zero where inactive."""
        if self.parameter.grad is not None:
            _zero_outside(self.parameter.grad, self._bits)

    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight and its optimizer state to zero where inactive."""
        self._keep(optimizer, self._bits, self._bits)

    def keep(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> None:
        """Sets all but these weights to zero, and all but this part of their optimizer state."""
        size = self.parameter.element_size()
        self._keep(optimizer, _as_bits(weights, size), _as_bits(state, size))

    def _keep(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> None:
        _zero_outside(self.parameter.data, weights)
        for value in optimizer.state.get(self.parameter, {}).values():
            if isinstance(value, Tensor) and value.shape == self.parameter.shape:
                _zero_outside(value, state)


def _as_bits(mask: Tensor, size: int) -> Tensor:
    """A mask as integers of which every bit is set where it is True."""
    return mask.to(_INTEGERS[size]).neg_()


def _zero_outside(tensor: Tensor, bits: Tensor) -> None:
    """Sets a tensor to zero outside a mask.

    A bitwise "and", unlike a product with the mask, makes zeros out of infinities and NaN too, and
    takes a twentieth of the time of `masked_fill_`, which would be felt in small networks.
    """
    if tensor.element_size() == bits.element_size():
        tensor.view(bits.dtype).bitwise_and_(bits)
    else:
        tensor.masked_fill_(bits == 0, 0)
