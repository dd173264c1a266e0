"""Replaces the layers of a network, in place, by sparse ones; and takes that back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .choices import Choices
from .layers import (
    SparseLayer,
    can_be_sparse,
    hidden_modules,
    make_dense,
    make_sparse,
    replace,
)
from .layout import GroupedLayout
from .library import release_memory


class Engine:
    """The sparse layers of a network.

    The optimizer trains their values from now on, with the state that it has of them.

    Args:
        model: The network.
        optimizer: Its optimizer.
        masks: The topology, by the names of weights; layers that can't be sparse are left alone.
        choose: Whether a layer may run in another way where that is faster.

    Attributes:
        layers: The sparse layers, by the names of their weights.
        choices: The ways that they and the dense layers take.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        masks: Mapping[str, Tensor],
        *,
        choose: bool,
    ) -> None:
        self._model = model
        self.choices = Choices(choose)
        self.layers: dict[str, SparseLayer] = {}
        tied, hidden = _tied_weights(model), hidden_modules(model)
        for name, mask in masks.items():
            path, _, own_name = name.rpartition(".")
            old = model.get_submodule(path)
            if not path or own_name != "weight" or not can_be_sparse(old):
                continue
            if old.weight in tied or old in hidden:
                continue
            new = make_sparse(old, mask, self.choices, path)
            replace(model, old, new)
            _swap(optimizer, old.weight, new.values, new.indices.long())  # type: ignore[arg-type]
            self.layers[name] = new
        self._layout = GroupedLayout(model, self.choices)

    def remove(self, optimizer: Optimizer) -> dict[str, nn.Parameter]:
        """Puts dense layers in the places of the sparse ones, and returns their weights."""
        self._layout.remove()
        found = {}
        for name, old in self.layers.items():
            new = make_dense(old)
            replace(self._model, old, new)
            weight = cast(nn.Parameter, new.weight)
            _swap_back(optimizer, old, weight)
            found[name] = weight
        release_memory()
        return found


def _tied_weights(model: nn.Module) -> set[Tensor]:
    """The parameters that several modules share."""
    seen: set[Tensor] = set()
    tied: set[Tensor] = set()
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                (tied if parameter in seen else seen).add(parameter)
    return tied


@torch.no_grad()
def _swap(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, places: Tensor) -> None:
    """Has an optimizer train the values instead of the weight whose places they are."""
    _exchange(optimizer, old, new)
    state = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: value.flatten()[places]
            if isinstance(value, Tensor) and value.shape == old.shape
            else value
            for key, value in state.items()
        }
    if old.grad is not None:
        new.grad = old.grad.flatten()[places]


@torch.no_grad()
def _swap_back(optimizer: Optimizer, layer: SparseLayer, new: nn.Parameter) -> None:
    old, places = layer.values, layer.indices.long()
    _exchange(optimizer, old, new)

    def dense(values: Tensor) -> Tensor:
        return values.new_zeros(new.numel()).index_copy(0, places, values).view(new.shape)

    state = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: dense(value) if isinstance(value, Tensor) and value.shape == old.shape else value
            for key, value in state.items()
        }
    if old.grad is not None:
        new.grad = dense(old.grad)


def _exchange(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter) -> None:
    for group in optimizer.param_groups:
        # In place: LBFGS holds on to the list.
        group["params"][:] = [
            new if parameter is old else parameter for parameter in group["params"]
        ]
