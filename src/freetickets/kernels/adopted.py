"""Layers that stay PyTorch's own, with their own parameters, and compute only with active weights.

A layer is given another class, until it is abandoned; its parameters, its name and its place stay.
Whoever holds them (an optimizer, an average of weights, a list for clipping) notices nothing. The
gradient has the shape of the weight, and is exactly 0 where that is inactive.

The weight is anyone's to write to: after `nn.init`, or in an average over several topologies, there
are numbers outside of this layer's. They are looked for in each pass, which costs little beside the
gathering of the active ones, and if there are any, the layer computes with all of its weight.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function

from . import ops
from .choices import Choices
from .layers import can_be_sparse, geometry_of
from .library import Geometry, call
from .linear import linear_layer
from .maps import Maps, as_autocast, enter, give, kernels_take
from .operator import run


class Active(NamedTuple):
    """What the kernels take for a weight: numbers, their places, and the plan to visit them."""

    values: Tensor
    places: Tensor
    plan: Tensor


class AdoptedLayer(nn.Module):
    """What adopted layers share; none of it is a parameter, a buffer or in a `state_dict`.

    Attributes:
        is_watched: Whether the gradient is wanted for the whole weight, since growth looks at it.
    """

    weight: nn.Parameter
    is_watched: bool = False
    _geometry: Geometry
    _choices: Choices
    _path: str
    _places: Tensor | None = None  # of the active weights; None: all are
    _plan: Tensor | None = None  # made as soon as it is needed

    @classmethod
    def adopt(cls, layer: nn.Module, choices: Choices, path: str) -> Any:
        """Gives a layer this class."""
        geometry = geometry_of(cast(Any, layer))
        layer.__class__ = cls
        layer.__dict__.update(_geometry=geometry, _choices=choices, _path=path)
        return layer

    def abandon(self) -> None:
        """Makes it PyTorch's own layer again."""
        for name in (*AdoptedLayer.__annotations__, *type(self).__annotations__):
            self.__dict__.pop(name, None)
        self.__class__ = _PYTORCHS[type(self)]  # type: ignore[assignment]

    def take_topology(self, mask: Tensor) -> None:
        """Computes only with the weights of this mask from now on, as long as others are zero."""
        self.__dict__.update(_places=mask.cpu().flatten().nonzero().flatten().int(), _plan=None)

    def _get_name(self) -> str:
        return _PYTORCHS[type(self)].__name__  # a printed network looks as before

    def active(self) -> Active | None:
        """The active weights; None if all weights count in this pass."""
        if self._places is None or self.is_watched:
            return None
        values, others = _Take.apply(self.weight, self._places)  # type: ignore[no-untyped-call]
        if others:
            return None
        if self._plan is None:
            self._plan = ops.make_plan(self._places, self._geometry)
        return Active(values, self._places, self._plan)


class AdoptedConv2d(AdoptedLayer, nn.Conv2d):  # type: ignore[misc]
    """A convolution that skips zeros, if it has any, and whose maps stay in groups.

    Attributes:
        keeps_groups: Whether its result stays in groups, as `Maps`.
    """

    keeps_groups: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """Convolves maps (N, C, H, W) or (C, H, W)."""
        if torch.compiler.is_compiling():  # what must be looked at in each pass can't be compiled
            return super().forward(x)
        if not ((type(x) is Maps or x.dim() == 4) and kernels_take(x, self.weight)):
            return super().forward(x)
        active = self.active()
        if active is None and not self.keeps_groups:
            return super().forward(x)
        groups, size = enter(x), self.weight.numel()
        nonzeros = size if active is None else active.values.numel()
        ways = self._choices.conv2d(self._path, self._geometry, nonzeros, groups)
        if active is None:
            places = _all_places(size)
            # A plan is needed by directions that neither PyTorch nor Winograd computes.
            needed = ~(ways | ways >> ops.WINOGRAD) & ops.ALL
            plan = self._full_plan() if needed else places[:0]
            active = Active(self.weight.flatten(), places, plan)
        y = run(ops.conv2d, groups, *active, self.bias, *map(list, self._geometry), ways)
        return give(y, x, keep=self.keeps_groups)

    def _full_plan(self) -> Tensor:
        """The plan of all weights; only that of a layer without zeros is kept."""
        if self._places is None and self._plan is not None:
            return self._plan
        plan = ops.make_plan(_all_places(self.weight.numel()), self._geometry)
        if self._places is None:
            self._plan = plan
        return plan


class AdoptedLinear(AdoptedLayer, nn.Linear):  # type: ignore[misc]
    """A linear layer that skips zeros."""

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in_features) to (..., out_features)."""
        if torch.compiler.is_compiling():
            return super().forward(x)
        return self._forward(x, relu=False)

    def rectified(self, x: Tensor) -> Tensor:
        """ReLU of what the layer makes of x, in one pass if it can be."""
        return self._forward(x, relu=True)

    def _forward(self, x: Tensor, relu: bool) -> Tensor:
        fits = x.dim() > 0 and x.shape[-1] == self.in_features and kernels_take(x, self.weight)
        active = self.active() if fits else None
        if active is None:
            y = super().forward(x)
            return y.relu_() if relu else y
        choose = partial(self._choices.linear, self._path, self._geometry, active.values.numel())
        return as_autocast(linear_layer(x, active, self.bias, self._geometry, choose, relu)[0])


_PYTORCHS: dict[type, type[nn.Module]] = {AdoptedConv2d: nn.Conv2d, AdoptedLinear: nn.Linear}


def adopt_sparse(
    model: nn.Module, masks: Mapping[str, Tensor], choices: Choices
) -> dict[str, AdoptedLayer]:
    """Adopts the layers of a topology that the kernels can compute; returns them by weight."""
    found: dict[str, AdoptedLayer] = {}
    for name, mask in masks.items():
        path, _, own_name = name.rpartition(".")
        layer = model.get_submodule(path)
        if own_name == "weight" and can_be_sparse(layer):
            kind = AdoptedLinear if isinstance(layer, nn.Linear) else AdoptedConv2d
            found[name] = kind.adopt(layer, choices, path)
            found[name].take_topology(mask)
    return found


class _Take(Function):
    """Takes the active weights, and says how many others are not zero."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, places: Tensor) -> tuple[Tensor, int]:
        ctx.save_for_backward(places)
        ctx.shape = weight.shape
        values = weight.new_empty(places.numel())
        others = torch.zeros(1, dtype=torch.int64)
        memory = weight.detach().contiguous()
        call(
            "ft_take", memory, memory.numel(), places, places.numel(), values, others,
            torch.get_num_threads(),
        )  # fmt: skip
        return values, int(others)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # it is to be differentiated again
            return ops.scatter(gradient, places, list(ctx.shape)), None
        return ops.put(gradient, places, ctx.shape), None


_places = torch.arange(0, dtype=torch.int32)


def _all_places(count: int) -> Tensor:
    """The places of all weights of a layer; layers share them."""
    global _places
    if _places.numel() < count:
        _places = torch.arange(count, dtype=torch.int32)
    return _places[:count]
