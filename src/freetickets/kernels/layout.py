"""Has a network keep its maps in groups from one convolution to the next.

Its modules stay what they are; some get a class that knows `Maps`, until `remove`.
"""

from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function

from . import ops
from .adopted import AdoptedConv2d, AdoptedLinear
from .choice import Costs, Work, convolution_ways
from .choices import Choices
from .layers import SparseConv2d, SparseLinear, can_be_sparse, geometry_of, has_hooks
from .maps import Maps, leave, rectified_norm


class GroupedLayout:
    """Has a network keep its maps in groups between its convolutions.

    A network without sparse ones is left alone, unless one can be computed in Winograd's way.

    Args:
        model: The network; its sparse convolutions were replaced or adopted already.
        choices: The ways that its dense layers take, if not the usual ones.

    Attributes:
        choices: The same.
    """

    def __init__(self, model: nn.Module, choices: Choices | None = None) -> None:
        self.choices = choices or Choices()
        self._modules = list(model.modules())
        self._sparse = [m for m in self._modules if isinstance(m, (SparseConv2d, AdoptedConv2d))]
        self._dense: list[AdoptedConv2d] = []
        self._hooks: list[Any] = []
        has_linear = any(isinstance(m, (SparseLinear, AdoptedLinear)) for m in self._modules)
        costs = self.choices.costs
        groups = self._sparse or any(_pays(module, costs) for module in self._modules)
        groups = groups and not _uses_custom_functions(model)
        for module in self._modules if groups or has_linear else ():
            if type(module) is nn.Sequential and any(_is_pair(*p) for p in pairwise(module)):
                module.__class__ = _FusingSequential
        if not groups:
            return
        for path, module in model.named_modules():
            if type(module) is nn.Conv2d and can_be_sparse(module):
                self._dense.append(AdoptedConv2d.adopt(module, self.choices, path))
        self._hooks = [
            model.register_forward_pre_hook(self._decide),
            model.register_forward_hook(_leave),
        ]
        self._keep(True)

    def remove(self) -> None:
        """Leaves the network as it was."""
        for hook in self._hooks:
            hook.remove()
        self._keep(False)
        for conv in self._dense:
            conv.abandon()
        for module in self._modules:
            if type(module) is _FusingSequential:
                module.__class__ = nn.Sequential  # type: ignore[assignment]
        self._hooks, self._dense = [], []

    def _decide(self, module: nn.Module, inputs: Any) -> None:
        """Has maps stay ordinary while somebody watches gradients.

        PyTorch puts a custom function into the graph for a backward hook, which `Maps` can't pass.
        """
        if not torch.compiler.is_compiling():
            self._keep(not any(m._backward_hooks or m._backward_pre_hooks for m in self._modules))

    def _keep(self, keep: bool) -> None:
        for conv in [*self._sparse, *self._dense]:
            conv.__dict__["keeps_groups"] = keep


def _leave(module: nn.Module, inputs: Any, output: Any) -> Any:
    # What is compiled knows no `Maps`.
    return output if torch.compiler.is_compiling() else leave(output)


def _pays(module: nn.Module, costs: Costs) -> bool:
    """Whether Winograd's way makes a dense convolution faster, at least on many maps of 16x16."""
    if type(module) is not nn.Conv2d or not can_be_sparse(module):
        return False
    work = Work(geometry_of(module), module.weight.numel(), 64, 16, 16)
    return convolution_ways(work, costs) == ops.ALL << ops.WINOGRAD


def _uses_custom_functions(model: nn.Module) -> bool:
    """Whether a network's own code has custom functions at hand: `Maps` can't pass them."""
    return any(
        isinstance(value, type) and issubclass(value, Function) and value is not Function
        for kind in {type(module) for module in model.modules()}
        if not kind.__module__.startswith(("torch.", __package__ or ""))
        for value in getattr(kind.forward, "__globals__", {}).values()
    )


# ---- modules that know `Maps`


class BatchNormReLU(nn.BatchNorm2d):
    """BatchNorm and ReLU in one module, so that they can be computed in one pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes maps and sets what is negative to zero."""
        return rectified_norm(self, x)


class _FusingSequential(nn.Sequential):
    """Computes BatchNorm, or a sparse linear layer, and the ReLU behind it in one pass.

    A dense linear layer behind a sparse one takes its samples as they lie there.
    """

    def _get_name(self) -> str:
        return "Sequential"  # a printed network looks as before

    def forward(self, x: Any) -> Any:
        modules = list(self)
        while modules:
            module = modules.pop(0)
            if torch.compiler.is_compiling():
                x = module(x)
            elif type(module) is nn.Linear and _is_columns(x) and not has_hooks(module):
                x = _dense_columns(module, x)
            elif not modules or not _is_pair(module, modules[0]):
                x = module(x)
            elif isinstance(module, (SparseLinear, AdoptedLinear)):
                x = module.rectified(x)
                modules.pop(0)
            elif type(x) is Maps:
                x = rectified_norm(cast(nn.BatchNorm2d, module), x)
                modules.pop(0)
            else:
                x = module(x)
        return x


def _is_columns(x: Any) -> bool:
    """Whether these are samples that lie side by side, as our linear layers leave them."""
    is_matrix = type(x) is Tensor and x.dim() == 2 and not torch.is_autocast_enabled("cpu")
    return is_matrix and x.shape[0] > 1 and x.stride() == (1, x.shape[0])


def _dense_columns(layer: nn.Linear, x: Tensor) -> Tensor:
    """A dense linear layer; for few outputs MKL takes five times as long in F.linear's order."""
    if layer.bias is None:
        return (layer.weight @ x.t()).t()
    return torch.addmm(layer.bias.unsqueeze(1), layer.weight, x.t()).t()


def _is_pair(first: nn.Module, second: nn.Module) -> bool:
    return (
        type(second) is nn.ReLU
        and type(first) in (nn.BatchNorm2d, SparseLinear, AdoptedLinear)
        and not has_hooks(first)
        and not has_hooks(second)
    )
