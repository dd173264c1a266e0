"""Has a network compute with active weights only, by one of two kinds of layers; and takes it back.

Compressed layers take the places of a network's own and hold only active weights. Adopted ones are
the network's own, and hold what they held.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .adopted import adopt_sparse
from .choices import Choices
from .layers import SparseLayer, can_be_sparse, hidden_modules, make_dense, make_sparse, replace
from .layout import GroupedLayout
from .library import release_memory
from .ops import gather, scatter


class Adoption:
    """The layers of a network that stay its own: see `adopted`.

    Args:
        model: The network.
        masks: The topology, by the names of weights; layers that can't be sparse are left alone.
    """

    def __init__(self, model: nn.Module, masks: Mapping[str, Tensor]) -> None:
        self.choices = Choices()
        self.layers = adopt_sparse(model, masks, self.choices)
        self._layout = GroupedLayout(model, self.choices) if self.layers else None

    def remove(self, optimizer: Optimizer) -> dict[str, nn.Parameter]:
        """Makes them PyTorch's own layers again, and returns their weights."""
        if self._layout is not None:
            self._layout.remove()
        for layer in self.layers.values():
            layer.abandon()
        release_memory()
        return {name: layer.weight for name, layer in self.layers.items()}


class Compression:
    """The layers of a network that were replaced by ones that hold only active weights.

    The optimizer trains their values from now on, with the state that it has of them.

    Args:
        model: The network.
        optimizer: Its optimizer.
        masks: The topology, by the names of weights; layers that can't be sparse are left alone.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, masks: Mapping[str, Tensor]) -> None:
        self._model = model
        self.choices = Choices()
        self.layers: dict[str, SparseLayer] = {}
        tied, hidden = _tied_weights(model), hidden_modules(model)
        for name, mask in masks.items():
            path, _, own_name = name.rpartition(".")
            old = model.get_submodule(path)
            is_own = bool(path) and own_name == "weight" and old not in hidden
            if not is_own or not can_be_sparse(old) or old.weight in tied:
                continue
            new = make_sparse(old, mask, self.choices, path)
            replace(model, old, new)
            take = partial(gather, indices=new.indices)
            _swap(optimizer, cast(nn.Parameter, old.weight), new.values, take)
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
            put = partial(scatter, indices=old.indices, shape=list(weight.shape))
            _swap(optimizer, old.values, weight, put)
            found[name] = weight
        release_memory()
        return found


# The layers of a network that skip zeros, by the names of their weights; and their ways.
Engine = Adoption | Compression


def _tied_weights(model: nn.Module) -> set[Tensor]:
    """The parameters that several modules share."""
    uses = Counter(p for module in model.modules() for p in module._parameters.values())
    return {p for p, count in uses.items() if p is not None and count > 1}


@torch.no_grad()
def _swap(
    optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, convert: Callable[[Tensor], Tensor],
) -> None:  # fmt: skip
    """Has an optimizer train one parameter instead of another, with what it has of that."""
    for group in optimizer.param_groups:
        # In place: LBFGS holds on to the list.
        group["params"][:] = [new if each is old else each for each in group["params"]]
    state = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: convert(value) if isinstance(value, Tensor) and value.shape == old.shape else value
            for key, value in state.items()
        }
    if old.grad is not None:
        new.grad = convert(old.grad)
