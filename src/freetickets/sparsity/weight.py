"""One weight held to its topology: masked (or adopted), masked with a reserve, or compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ..errors import FreeTicketsError
from .topology import pack_mask, select_top, unpack_mask

if TYPE_CHECKING:
    from ..kernels.adopted import AdoptedLayer
    from ..kernels.layers import SparseLayer

# A tensor, and integers as wide as its numbers: 1 where these stay, 0 where they become zero.
Kept = tuple[Tensor, Tensor]
# The integers that are as wide as a float of this many bytes.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# So many exact zeros, as a share, are no chance: somebody has pruned.
PRUNED = 0.05


class MaskedWeight:
    """Dense in memory, zero wherever the mask is: works for every layer, on every device.

    A layer that was `adopted` computes only with the active weights, as long as others are zero.
    """

    _version = -1  # of the parameter, when it was held to the mask last

    def __init__(
        self, name: str, parameter: nn.Parameter, mask: Tensor, adopted: AdoptedLayer | None = None
    ) -> None:
        self.name, self.parameter, self._adopted = name, parameter, adopted
        self._views: dict[int, Tensor] = {}  # of memory that lasts, as integers
        self.ever_active = mask.to(parameter.device, copy=True)
        self.restore(mask)

    @property
    def mask(self) -> Tensor:
        """The topology; masks that were handed out never change."""
        return self._mask

    @property
    def tensor(self) -> Tensor:
        """The dense weight, detached."""
        return self.parameter.detach()

    @property
    def is_changed(self) -> bool:
        """Whether somebody changed the weight since; only a look at every number tells more."""
        return self._version != self.parameter._version

    def take_gradient(self) -> Tensor | None:
        """A copy of the dense gradient of the coming step, if it was announced and there is one."""
        return None if self.parameter.grad is None else self.parameter.grad.detach().clone()

    def announce_gradient(self, wanted: bool) -> None:
        """Tells whether the coming step's dense gradient will be wanted."""
        if self._adopted is not None:
            self._adopted.is_watched = wanted

    def gradients(self) -> Iterator[Kept]:
        """The gradient, of which only that of active weights stays."""
        if self.parameter.grad is not None:
            yield self.parameter.grad, self._kept

    def held(self, optimizer: Optimizer) -> Iterator[Kept]:
        """The weight and its optimizer state, of which only what is active stays."""
        return self._tensors(optimizer, self._kept, self._kept)

    def restore(self, mask: Tensor) -> None:
        """Takes a topology; the weights themselves stay as they are."""
        self._mask = mask.to(self.parameter.device)
        self.ever_active |= self._mask
        self.nonzeros = int(mask.sum())
        self._kept = _as_integers(self._mask, self.parameter)
        if self._adopted is not None:
            self._adopted.take_topology(self._mask)

    def rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        """Takes a new mask, of as many weights if compressed.

        Where `weights` is False, they start at zero; where `state` is, their optimizer state does.
        """
        self.restore(mask)
        kept = (_as_integers(each, self.parameter) for each in (weights, state))
        zero_outside(self._tensors(optimizer, *kept))

    def adapt(self, optimizer: Optimizer) -> None:
        """Gives optimizer state that was saved with the other kind of weights the form of these."""
        state = optimizer.state.get(self.parameter, {})
        state.update({k: self._adapted(v) for k, v in state.items() if isinstance(v, Tensor)})

    def check(self, mask: Tensor | None = None) -> None:
        """Raises if somebody changed the weight, and it has the zeros of another topology now.

        Then non-zeros lie outside the mask (its own, if none is given), and either no more than are
        missing inside: the number is kept, the places are not. Or zeros lie inside nearly as often
        as outside (at least half as often, and no few by chance), as if they knew nothing of it.
        What else lies outside (a new initialisation, noise, an average) may be set to zero.
        """
        if not self.is_changed:
            return
        there = self.tensor != 0
        mask = (self.mask if mask is None else mask).to(there.device)
        active, stray = int(mask.sum()), int((there & ~mask).sum())
        missing, outside = active - int((there & mask).sum()), mask.numel() - active
        if stray > 0 and (
            missing >= stray or missing / active >= max(PRUNED, (outside - stray) / outside / 2)
        ):
            raise FreeTicketsError(
                f"the weights of {self.name!r} were loaded with another topology than the "
                "sparsifier's: load the state of its own that was saved with them, or call "
                "set_topology() with their masks"
            )

    def _adapted(self, state: Tensor) -> Tensor:
        if state.shape != (self.nonzeros,):
            return state
        dense = state.new_zeros(self._mask.shape)
        dense[self._mask] = state
        return dense

    def _tensors(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> Iterator[Kept]:
        before, self._views = self._views, {}
        for tensor in (self.parameter, *self._state_of(optimizer)):
            kept = weights if tensor is self.parameter else state
            if tensor.element_size() == kept.element_size():
                # The same view in all steps, unless somebody gives the tensor other memory.
                place = tensor.data_ptr()
                view = before.get(place)
                self._views[place] = tensor = tensor.data.view(kept.dtype) if view is None else view
            yield tensor, kept
        self._version = self.parameter._version

    def _state_of(self, optimizer: Optimizer) -> list[Tensor]:
        values, shape = optimizer.state.get(self.parameter, {}).values(), self.parameter.shape
        return [v for v in values if torch.is_tensor(v) and v.shape == shape]


class ReservedWeight(MaskedWeight):
    """A masked weight that keeps all its values, as Top-KAST does.

    The active weights are in the parameter, all others are set aside. The strongest of those (a
    `share` of the weight) are the reserve: they get gradients and optimizer state, and are in the
    parameter while the optimizer takes its step. The rest waits until the others are weaker.
    """

    def __init__(
        self, name: str, parameter: nn.Parameter, mask: Tensor, share: float, ties: torch.Generator
    ) -> None:
        self._aside = parameter.detach().clone()
        self._size = round(share * parameter.numel())
        self._is_back = False
        super().__init__(name, parameter, mask)
        self._train(self._reserve(self._aside.abs(), self._mask, ties))

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

    def held(self, optimizer: Optimizer) -> Iterator[Kept]:
        """Of the weight what is active stays, of its optimizer state what trains."""
        self.set_aside()
        return self._tensors(optimizer, _as_integers(self._mask, self.parameter), self._kept)

    def choose(self, optimizer: Optimizer, scores: Tensor, generator: torch.Generator) -> None:
        """Makes the best of all weights the active ones, and the next the reserve."""
        self._aside = self.tensor
        active = select_top(scores, self.nonzeros, torch.ones_like(self._mask), generator)
        reserve = self._reserve(scores, active, generator)
        self.parameter.data.copy_(self._aside)
        self.restore(active)
        self._train(reserve)
        zero_outside(self.held(optimizer))

    def reserve_state(self) -> dict[str, Any]:
        """Returns what a resumed run needs besides the topology."""
        return {"values": self._aside.clone(), "trained": pack_mask(self._trained)}

    def load_reserve_state(self, state: dict[str, Any]) -> None:
        """Restores a `reserve_state`; the topology is restored already."""
        self._is_back = False
        self._aside = state["values"].to(self.parameter.device, copy=True)
        self._train(unpack_mask(state["trained"], self._mask.shape).to(self.parameter.device))

    def _reserve(self, scores: Tensor, active: Tensor, generator: torch.Generator) -> Tensor:
        count = min(self._size, active.numel() - int(active.sum()))
        return select_top(scores, count, ~active, generator)

    def _train(self, reserve: Tensor) -> None:
        self._trained = self._mask | reserve
        self._kept = _as_integers(self._trained, self.parameter)


class CompressedWeight(MaskedWeight):
    """Only the active weights are in memory, in a layer that computes only with them."""

    def __init__(self, name: str, layer: SparseLayer) -> None:
        self.name, self.parameter, self._layer = name, layer.values, layer
        self.nonzeros = layer.values.numel()
        self.ever_active = layer.mask

    @property
    def mask(self) -> Tensor:
        """The topology."""
        return self._layer.mask

    @property
    def tensor(self) -> Tensor:
        """The dense weight, as it was loaded if its topology is to follow."""
        weight = self._layer.weight if self._layer.pending is None else self._layer.pending
        return weight.detach()

    @property
    def is_changed(self) -> bool:
        """Whether a weight was loaded that does not fit the topology."""
        return self._layer.pending is not None

    def take_gradient(self) -> Tensor | None:
        """The dense gradient; the layer forgets it."""
        gradient, self._layer.gradient = self._layer.gradient, None
        if gradient is not None and distributed.is_available() and distributed.is_initialized():
            # A data-parallel wrapper has averaged the gradients of the values, and knows no others.
            distributed.all_reduce(gradient)
            gradient /= distributed.get_world_size()
        return gradient

    def announce_gradient(self, wanted: bool) -> None:
        """Has the layer compute the dense gradient, or not."""
        self._layer.keep_gradient = wanted
        if not wanted:
            self._layer.gradient = None

    def gradients(self) -> Iterator[Kept]:
        """None: there are no inactive weights in memory."""
        return iter(())

    def held(self, optimizer: Optimizer) -> Iterator[Kept]:
        """None, for the same reason."""
        return iter(())

    def restore(self, mask: Tensor) -> None:
        """Takes a topology of as many weights."""
        self._layer.rewire(mask)
        self.ever_active |= mask.to(self.ever_active.device)

    def rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        """Takes a new mask, as others do."""
        old = self._layer.indices.long()
        self.restore(mask)
        new = self._layer.indices.long()
        self.parameter.data *= weights.flatten()[new]
        for value in self._state_of(optimizer):
            dense = value.new_zeros(mask.numel())
            dense[old] = value
            value.copy_(dense[new] * state.flatten()[new])

    def _adapted(self, state: Tensor) -> Tensor:
        same = state.shape == self._layer.dense_shape
        return state.flatten()[self._layer.indices.long()] if same else state


def _as_integers(mask: Tensor, like: Tensor) -> Tensor:
    return mask.to(_INTEGERS[like.element_size()])


def zero_outside(tensors: Iterable[Kept]) -> None:
    """Sets numbers of tensors to zero: in one call, since on a GPU each would be a launch."""
    views, masks = [], []
    for tensor, kept in tensors:
        if tensor.element_size() == kept.element_size():
            views.append(tensor if tensor.dtype == kept.dtype else tensor.view(kept.dtype))
            masks.append(kept)
        else:
            tensor.masked_fill_(kept == 0, 0)
    if views:
        # A product of integers, unlike one of floats, makes zeros out of infinities and NaN too.
        torch._foreach_mul_(views, masks)
