"""One weight held to its topology, in one of three ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from ..kernels.adopted import AdoptedLayer
    from ..kernels.layers import SparseLayer

# The integers that are as wide as a float of this many bytes.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class SparseWeight(ABC):
    """One weight held to its topology.

    Attributes:
        name: The weight's name in the network.
        parameter: What the optimizer trains.
        nonzeros: How many weights are active.
        ever_active: Which weights have ever been active.
    """

    def __init__(self, name: str, parameter: nn.Parameter, mask: Tensor) -> None:
        self.name = name
        self.parameter = parameter
        self.nonzeros = int(mask.sum())
        self.ever_active = mask.to(parameter.device, copy=True)

    @property
    @abstractmethod
    def mask(self) -> Tensor:
        """The topology; masks that were handed out never change."""

    @property
    @abstractmethod
    def tensor(self) -> Tensor:
        """The dense weight, detached."""

    @abstractmethod
    def take_gradient(self) -> Tensor | None:
        """A copy of the dense gradient of the coming step, if it was announced and there is one."""

    @abstractmethod
    def announce_gradient(self, wanted: bool) -> None:
        """Tells whether the coming step's dense gradient will be wanted."""

    @abstractmethod
    def mask_gradient(self) -> None:
        """Sets the gradient to zero where inactive."""

    @abstractmethod
    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight and its optimizer state to zero where inactive."""

    @abstractmethod
    def restore(self, mask: Tensor) -> None:
        """Takes a topology that was saved; the weights are loaded by the network itself."""

    def rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        """Takes a new topology; only masked weights can have more or fewer than before.

        Args:
            optimizer: Who has state of this weight.
            mask: The new topology.
            weights: The weights that keep their values; the others start at zero.
            state: The weights that keep their optimizer state.
        """
        self.ever_active |= mask.to(self.ever_active.device)
        self._rewire(optimizer, mask, weights, state)

    def adapt(self, optimizer: Optimizer) -> None:
        """Gives optimizer state that was saved with the other kind of weights the form of these."""
        state = optimizer.state.get(self.parameter, {})
        for key, value in state.items():
            if isinstance(value, Tensor):
                state[key] = self._adapted(value)

    @abstractmethod
    def _adapted(self, state: Tensor) -> Tensor: ...

    @abstractmethod
    def _rewire(
        self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor
    ) -> None: ...

    def _state_of(self, optimizer: Optimizer) -> list[Tensor]:
        """The optimizer's tensors that have one element for each of the parameter's."""
        return [
            value
            for value in optimizer.state.get(self.parameter, {}).values()
            if isinstance(value, Tensor) and value.shape == self.parameter.shape
        ]


class MaskedWeight(SparseWeight):
    """Dense in memory, zero wherever the mask is: works for every layer, on every device."""

    def __init__(self, name: str, parameter: nn.Parameter, mask: Tensor) -> None:
        super().__init__(name, parameter, mask)
        self.restore(mask)

    @property
    def mask(self) -> Tensor:
        """The topology."""
        return self._mask

    @property
    def tensor(self) -> Tensor:
        """The dense weight."""
        return self.parameter.detach()

    def take_gradient(self) -> Tensor | None:
        """A copy of the dense gradient: the gradient itself is masked next."""
        return None if self.parameter.grad is None else self.parameter.grad.detach().clone()

    def announce_gradient(self, wanted: bool) -> None:
        """Does nothing: the gradient is always dense."""

    def mask_gradient(self) -> None:
        """Sets the gradient to zero where inactive."""
        if self.parameter.grad is not None:
            _zero_outside(self.parameter.grad, self._bits)

    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight and its optimizer state to zero where inactive."""
        self._keep(optimizer, self._bits, self._bits)

    def restore(self, mask: Tensor) -> None:
        """Takes a topology that was saved."""
        self._mask = mask.to(self.parameter.device)
        self.nonzeros = int(mask.sum())
        self._bits = as_bits(self._mask, self.parameter.element_size())

    def _adapted(self, state: Tensor) -> Tensor:
        if state.shape != (self.nonzeros,):
            return state
        dense = state.new_zeros(self._mask.shape)
        dense[self._mask] = state
        return dense

    def _rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        self.restore(mask)
        size = self.parameter.element_size()
        self._keep(optimizer, as_bits(weights, size), as_bits(state, size))

    def _keep(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> None:
        _zero_outside(self.parameter.data, weights)
        for value in self._state_of(optimizer):
            _zero_outside(value, state)


class AdoptedWeight(MaskedWeight):
    """Masked, in a layer that computes only with the active weights as long as others are zero."""

    def __init__(self, name: str, layer: AdoptedLayer, mask: Tensor) -> None:
        self.layer = layer
        super().__init__(name, layer.weight, mask)

    def announce_gradient(self, wanted: bool) -> None:
        """Has the layer compute the gradient for the whole weight, or not."""
        self.layer.is_watched = wanted

    def restore(self, mask: Tensor) -> None:
        """Takes a topology that was saved."""
        super().restore(mask)
        self.layer.take_topology(self._mask)


class CompressedWeight(SparseWeight):
    """Only the active weights are in memory, in a layer that computes only with them."""

    def __init__(self, name: str, layer: SparseLayer) -> None:
        super().__init__(name, layer.values, layer.mask)
        self.layer = layer

    @property
    def mask(self) -> Tensor:
        """The topology."""
        return self.layer.mask

    @property
    def tensor(self) -> Tensor:
        """The dense weight, as it was loaded if its topology is to follow."""
        weight = self.layer.weight if self.layer.pending is None else self.layer.pending
        return weight.detach()

    def take_gradient(self) -> Tensor | None:
        """The dense gradient; the layer forgets it."""
        gradient, self.layer.gradient = self.layer.gradient, None
        if gradient is not None and distributed.is_available() and distributed.is_initialized():
            # A data-parallel wrapper has averaged the gradients of the values, and knows no others.
            distributed.all_reduce(gradient)
            gradient /= distributed.get_world_size()
        return gradient

    def announce_gradient(self, wanted: bool) -> None:
        """Has the layer compute the dense gradient, or not."""
        self.layer.keep_gradient = wanted
        if not wanted:
            self.layer.gradient = None

    def mask_gradient(self) -> None:
        """Does nothing: there are no inactive weights in memory."""

    def hold(self, optimizer: Optimizer) -> None:
        """Does nothing, for the same reason."""

    def restore(self, mask: Tensor) -> None:
        """Takes a topology that was saved."""
        self.layer.rewire(mask)

    def _adapted(self, state: Tensor) -> Tensor:
        same = state.shape == self.layer.dense_shape
        return state.flatten()[self.layer.indices.long()] if same else state

    def _rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        old = self.layer.indices.long()
        self.layer.rewire(mask)
        new = self.layer.indices.long()
        self.parameter.data *= weights.flatten()[new]
        for value in self._state_of(optimizer):
            dense = value.new_zeros(mask.numel())
            dense[old] = value
            value.copy_(dense[new] * state.flatten()[new])


def as_bits(mask: Tensor, size: int) -> Tensor:
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
