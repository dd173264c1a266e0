"""One weight held to its topology: masked, with a reserve, adopted or compressed; and a watch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ..errors import FreeTicketsError
from .topology import Topology, pack_mask, select_top, unpack_mask

if TYPE_CHECKING:
    from ..kernels.adopted import AdoptedLayer
    from ..kernels.layers import SparseLayer

# The integers that are as wide as a float of this many bytes.
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# So many exact zeros, as a share, are no chance: somebody has pruned.
_PRUNED = 0.05


class MaskedWeight:
    """Dense in memory, zero wherever the mask is: works for every layer, on every device."""

    def __init__(self, name: str, parameter: nn.Parameter, mask: Tensor) -> None:
        self.name, self.parameter = name, parameter
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

    def take_gradient(self) -> Tensor | None:
        """A copy of the dense gradient of the coming step, if it was announced and there is one."""
        return None if self.parameter.grad is None else self.parameter.grad.detach().clone()

    def announce_gradient(self, wanted: bool) -> None:
        """Tells whether the coming step's dense gradient will be wanted; here it always is."""

    def mask_gradient(self) -> None:
        """Sets the gradient to zero where inactive."""
        if self.parameter.grad is not None:
            _zero_outside(self.parameter.grad, self._bits)

    def hold(self, optimizer: Optimizer) -> None:
        """Sets the weight and its optimizer state to zero where inactive."""
        self._keep(optimizer, self._bits, self._bits)

    def restore(self, mask: Tensor) -> None:
        """Takes a topology that was saved; the weights are loaded by the network itself."""
        self._mask = mask.to(self.parameter.device)
        self.nonzeros = int(mask.sum())
        self._bits = _as_bits(self._mask, self.parameter)

    def rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        """Takes a new mask, of as many weights if compressed.

        Where `weights` is False, they start at zero; where `state` is, their optimizer state does.
        """
        self.ever_active |= mask.to(self.ever_active.device)
        self._rewire(optimizer, mask, weights, state)

    def adapt(self, optimizer: Optimizer) -> None:
        """Gives optimizer state that was saved with the other kind of weights the form of these."""
        state = optimizer.state.get(self.parameter, {})
        state.update({k: self._adapted(v) for k, v in state.items() if isinstance(v, Tensor)})

    def _adapted(self, state: Tensor) -> Tensor:
        if state.shape != (self.nonzeros,):
            return state
        dense = state.new_zeros(self._mask.shape)
        dense[self._mask] = state
        return dense

    def _rewire(self, optimizer: Optimizer, mask: Tensor, weights: Tensor, state: Tensor) -> None:
        self.restore(mask)
        self._keep(optimizer, *(_as_bits(kept, self.parameter) for kept in (weights, state)))

    def _keep(self, optimizer: Optimizer, weights: Tensor, state: Tensor) -> None:
        _zero_outside(self.parameter.data, weights)
        for value in self._state_of(optimizer):
            _zero_outside(value, state)

    def _state_of(self, optimizer: Optimizer) -> list[Tensor]:
        """The optimizer's tensors that have one element for each of the parameter's."""
        tensors = [
            v for v in optimizer.state.get(self.parameter, {}).values() if torch.is_tensor(v)
        ]
        return [tensor for tensor in tensors if tensor.shape == self.parameter.shape]


class ReservedWeight(MaskedWeight):
    """A masked weight that keeps all its values, as Top-KAST does.

    The active weights are in the parameter, all others are set aside. The strongest of those (a
    `share` of the weight) are the reserve: they get gradients and optimizer state, for which they
    are put into the parameter while the optimizer takes its step. The rest stays as it is, and
    comes back when the others have become weaker.
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
        self._bits = _as_bits(self._trained, self.parameter)


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


class CompressedWeight(MaskedWeight):
    """Only the active weights are in memory, in a layer that computes only with them."""

    def __init__(self, name: str, layer: SparseLayer) -> None:
        self.name, self.parameter, self.layer = name, layer.values, layer
        self.nonzeros = layer.values.numel()
        self.ever_active = layer.mask

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


class Watch:
    """Notices weights that come with another topology, before they are set to zero.

    It is made before the weights take the masks; if those are chosen by somebody, then nothing that
    they end is lost by mistake.
    """

    def __init__(
        self, weights: Mapping[str, nn.Parameter], masks: Topology, *, chosen: bool
    ) -> None:
        self._lost = {} if chosen else _lost(weights, masks)
        self._versions: dict[str, int] = {}
        if self._lost:
            warnings.warn(
                "the network has the zeros of a topology, which a new random one replaces: pass "
                "topology='given' to keep it, or load the weights after making the Sparsifier",
                stacklevel=3,
            )

    def settle(self, weights: Iterable[MaskedWeight]) -> None:
        """Takes note that the weights fit their topology now."""
        self._versions = {weight.name: weight.parameter._version for weight in weights}

    def check(
        self, weights: Iterable[MaskedWeight], masks: Mapping[str, Tensor] | None = None
    ) -> None:
        """Raises if a weight that somebody changed since has the zeros of another topology.

        That is another one than the masks, or than its own. What lies outside for another reason (a
        new initialisation, noise, an average) may be set to zero.
        """
        for weight in weights:
            # Only a look at every number tells more, which each step would feel.
            if isinstance(weight, CompressedWeight):
                changed = weight.layer.pending is not None
            else:
                changed = self._versions.get(weight.name) != weight.parameter._version
            if not changed:
                continue
            mask = weight.mask if masks is None else masks[weight.name]
            if _is_of_another_topology(weight.tensor != 0, mask.to(weight.parameter.device)):
                raise FreeTicketsError(
                    f"the weights of {weight.name!r} were loaded with another topology than the "
                    "sparsifier's: load the state of its own that was saved with them, or call "
                    "set_topology() with their masks"
                )

    def check_order(self, weights: Iterable[MaskedWeight], masks: Mapping[str, Tensor]) -> None:
        """Raises if the weights of a saved topology are gone since the sparsifier was made."""
        for weight in weights:
            if weight.name not in self._lost or weight.name not in masks:
                continue
            wanted = self._lost[weight.name] & masks[weight.name].cpu()
            if wanted.any() and not weight.tensor[wanted.to(weight.parameter.device)].any():
                raise FreeTicketsError(
                    "the weights were loaded before the Sparsifier was made, which set those "
                    "outside its own topology to zero: load the network and the optimizer again, "
                    "and this state last; or make it with topology=state['topology']"
                )


def _is_of_another_topology(there: Tensor, mask: Tensor) -> bool:
    """Whether non-zeros lie elsewhere than a mask, instead of where it wants them.

    Either no more lie outside than are missing inside: the number is kept, the places are not. Or
    zeros lie inside nearly as often as outside (at least half as often, and no few by chance), as
    if they knew nothing of the mask.
    """
    active, stray = int(mask.sum()), int((there & ~mask).sum())
    missing = active - int((there & mask).sum())
    outside = mask.numel() - active
    return stray > 0 and (
        missing >= stray or missing / active >= max(_PRUNED, (outside - stray) / outside / 2)
    )


def _lost(weights: Mapping[str, nn.Parameter], masks: Topology) -> Topology:
    """Where a topology sets weights to zero that are active in one which the network has already.

    Empty if it has none. A weight that is zero as a whole was initialised so, not pruned.
    """
    there = {name: weight.detach().cpu() != 0 for name, weight in weights.items()}
    there = {name: mask for name, mask in there.items() if mask.any()}
    zeros = sum(int((~mask).sum()) for mask in there.values())
    if not zeros or zeros < _PRUNED * sum(mask.numel() for mask in there.values()):
        return {}
    lost = {name: there[name] & ~mask for name, mask in masks.items() if name in there}
    return {name: places for name, places in lost.items() if places.any()}


def _as_bits(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as integers, as wide as another tensor's, of which every bit is set where True."""
    return mask.to(_INTEGERS[like.element_size()]).neg_()


def _zero_outside(tensor: Tensor, bits: Tensor) -> None:
    """Sets a tensor to zero outside a mask.

    A bitwise "and", unlike a product with the mask, makes zeros out of infinities and NaN too, and
    takes a twentieth of the time of `masked_fill_`, which would be felt in small networks.
    """
    if tensor.element_size() == bits.element_size():
        tensor.view(bits.dtype).bitwise_and_(bits)
    else:
        tensor.masked_fill_(bits == 0, 0)
