"""Keeps maps in the layout of the sparse convolutions from one layer to the next.

Where a chain of modules only convolves, normalizes, pools, adds and works element by element, its
maps stay grouped (see `ops`); they are converted where such a chain begins and where it ends. A
module that does anything else gets and returns maps as PyTorch has them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from . import ops
from .layers import SparseConv2d, can_be_sparse, geometry_of, has_hooks, hidden_modules, replace
from .library import Geometry, lanes
from .norm import BatchNormReLU, batch_norm, scale
from .operator import run

_POINTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.Hardswish,
    nn.Identity, nn.Dropout,
)  # fmt: skip
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_SAFE_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    operator.add, operator.iadd, torch.add, torch.relu, F.relu, F.relu6, F.leaky_relu, F.silu,
    F.gelu, F.hardswish,
)  # fmt: skip
_SAFE_METHODS = ("relu", "relu_", "add", "add_")


class GroupedLayout:
    """Has a network keep its maps grouped between its sparse convolutions.

    Args:
        model: The network; its convolutions were replaced by sparse ones already.
    """

    def __init__(self, model: nn.Module) -> None:
        self.batch = 0  # the samples of the maps that are on their way
        self._model = model
        self._replaced: list[tuple[nn.Module, nn.Module]] = []
        self._hooks: list[Any] = []
        self._shared = _shared_modules(model)
        if hidden_modules(model):
            return  # its code may go around the modules that would be put into their places
        for chain in list(_chains(model, self._shared)):
            if any(map(_is_convolutional, chain)):
                self._adopt(chain)

    def remove(self) -> None:
        """Leaves the network as it was."""
        for hook in self._hooks:
            hook.remove()
        for old, new in self._replaced:
            old.train(new.training)
            replace(self._model, new, old)
        self._hooks, self._replaced = [], []

    def _adopt(self, chain: list[nn.Module]) -> None:
        self._hooks.append(chain[0].register_forward_pre_hook(self._enter))
        self._hooks.append(chain[-1].register_forward_hook(self._leave))
        for bn, relu in list(_adjacent(chain)):
            if self._shared & {bn, relu}:
                continue  # elsewhere the one may stand without the other
            self._swap(relu, nn.Identity())
            self._swap(bn, _grouped(bn, self, relu=True))
        swapped = {old for old, _ in self._replaced}
        for link in chain:
            for module in list(link.modules()):
                if _has_grouped_form(module) and module not in swapped:
                    self._swap(module, _grouped(module, self))

    def _swap(self, old: nn.Module, new: nn.Module) -> None:
        new.train(old.training)
        # Hooks at the ends of a chain move along.
        new._forward_hooks, new._forward_pre_hooks = old._forward_hooks, old._forward_pre_hooks
        replace(self._model, old, new)
        self._replaced.append((old, new))

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and inputs[0].dim() == 4:
            self.batch = inputs[0].shape[0]
            return (run(ops.to_groups, inputs[0].float(), lanes()),)
        return None

    def _leave(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return run(ops.from_groups, output, self.batch) if output.dim() == 5 else output


# ---- the grouped forms of modules: they share their parameters and buffers with the originals


class _GroupedBatchNorm(nn.BatchNorm2d):
    def __init__(self, original: nn.BatchNorm2d, layout: GroupedLayout, relu: bool) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(
            {k: v for k, v in original.__dict__.items() if k not in nn.Module().__dict__}
        )
        self._parameters, self._buffers = original._parameters, original._buffers
        self._non_persistent_buffers_set = original._non_persistent_buffers_set
        self._layout = (layout,)  # in a tuple: a network that is copied keeps one layout
        self._relu = relu

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            y = super().forward(x)
            return F.relu(y, inplace=True) if self._relu else y
        batch = self._layout[0].batch
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)
        mean, variance = cast(Tensor, self.running_mean), cast(Tensor, self.running_var)
        if not self.training:
            return run(scale, x, weight, bias, mean, variance, batch, self.eps, self._relu)
        y, new_mean, new_variance = run(batch_norm, x, weight, bias, batch, self.eps, self._relu)
        with torch.no_grad():
            count = batch * x.shape[2] * x.shape[3]
            cast(Tensor, self.num_batches_tracked).add_(1)
            momentum = (
                self.momentum
                if self.momentum is not None
                else 1 / int(cast(Tensor, self.num_batches_tracked))
            )
            mean.lerp_(new_mean, momentum)
            variance.lerp_(new_variance * (count / max(1, count - 1)), momentum)
        return y


class _GroupedPool(nn.Module):
    """A pool takes no notice of what a channel is: lanes may stand for channels."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.pool = original

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 5:
            return cast(Tensor, self.pool.forward(x))  # without its hooks: they are ours now
        groups, channels, height, width, width_of_group = x.shape
        maps = x.reshape(groups * channels, height, width, width_of_group).permute(0, 3, 1, 2)
        y = self.pool.forward(maps).permute(0, 2, 3, 1).contiguous()
        return cast(Tensor, y.view(groups, channels, *y.shape[1:3], width_of_group))


class _GroupedConv2d(nn.Conv2d):
    """A dense convolution as a sparse one without zeros: it needs no conversion of its maps."""

    def __init__(self, original: nn.Conv2d) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(
            {k: v for k, v in original.__dict__.items() if k not in nn.Module().__dict__}
        )
        self._parameters = original._parameters
        self._geometry: Geometry = geometry_of(original)
        size = original.weight.numel()
        self.register_buffer("_indices", torch.arange(size, dtype=torch.int32), persistent=False)
        plan = ops.make_plan(cast(Tensor, self._indices), self._geometry)
        self.register_buffer("_plan", plan, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 5:
            return super().forward(x)
        shape, stride, padding = map(list, self._geometry)
        indices, plan = cast(Tensor, self._indices), cast(Tensor, self._plan)
        return run(
            ops.conv2d, x, self.weight.flatten(), indices, plan,
            self.bias, shape, stride, padding, 0,
        )  # fmt: skip


def _has_grouped_form(module: nn.Module) -> bool:
    return type(module) in (nn.BatchNorm2d, BatchNormReLU, nn.Conv2d, *_POOLS)


def _grouped(module: nn.Module, layout: GroupedLayout, relu: bool = False) -> nn.Module:
    if isinstance(module, nn.BatchNorm2d):
        return _GroupedBatchNorm(module, layout, relu or isinstance(module, BatchNormReLU))
    if isinstance(module, nn.Conv2d):
        return _GroupedConv2d(module)
    return _GroupedPool(module)


# ---- where maps can stay grouped


def _chains(module: nn.Module, shared: set[nn.Module]) -> Iterator[list[nn.Module]]:
    """Finds the longest chains of modules that can work on grouped maps.

    A chain neither begins nor ends with a module that stands elsewhere too.
    """
    if module in shared or not _is_convolutional(module):
        return
    if _is_safe(module):
        yield [module]
        return
    chain: list[nn.Module] = []
    for child in _children(module):
        if type(module) is nn.Sequential and _is_safe(child) and (chain or child not in shared):
            chain.append(child)
            continue
        yield from _trimmed(chain, shared)
        chain = []
        yield from _chains(child, shared)
    yield from _trimmed(chain, shared)


def _trimmed(chain: list[nn.Module], shared: set[nn.Module]) -> Iterator[list[nn.Module]]:
    while chain and chain[-1] in shared:
        chain = chain[:-1]
    if chain:
        yield chain


def _children(module: nn.Module) -> list[nn.Module]:
    """A module's children in their order; one that stands there twice comes twice."""
    return [child for child in module._modules.values() if child is not None]


def _shared_modules(model: nn.Module) -> set[nn.Module]:
    """The modules that stand in several places."""
    seen: set[nn.Module] = set()
    shared: set[nn.Module] = set()
    for parent in model.modules():
        for child in _children(parent):
            (shared if child in seen else seen).add(child)
    return shared


def _is_convolutional(module: nn.Module) -> bool:
    return any(isinstance(inside, SparseConv2d) for inside in module.modules())


def _is_safe(module: nn.Module) -> bool:
    """Whether a module does only what can be done to grouped maps."""
    if has_hooks(module):
        return False  # someone looks at its maps
    if isinstance(module, SparseConv2d) or type(module) in _POINTWISE:
        return True
    if type(module) in (nn.BatchNorm2d, BatchNormReLU):
        return bool(
            cast(nn.BatchNorm2d, module).affine and cast(nn.BatchNorm2d, module).track_running_stats
        )
    if type(module) is nn.Conv2d:
        return can_be_sparse(module)
    if type(module) in _POOLS:
        return not getattr(module, "return_indices", False)
    if type(module) is nn.Sequential:
        return len(module) > 0 and all(map(_is_safe, module))
    if type(module).__module__.startswith("torch.nn"):
        return False
    return _traces_safely(module)


class _Tracer(fx.Tracer):
    """Looks at what a module's own code does with its children."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _traces_safely(module: nn.Module) -> bool:
    """Whether a module's own code, in training and in evaluation, is safe."""
    try:
        shadow = copy.copy(module)  # its code runs, and may count or keep something
        with torch.random.fork_rng(devices=[]):
            for training in (True, False):
                shadow.training = training
                if not _is_safe_graph(module, _Tracer().trace(shadow)):
                    return False
    except Exception:  # whatever its code does, it is not for us
        return False
    return True


def _is_safe_graph(module: nn.Module, graph: fx.Graph) -> bool:
    nodes = list(graph.nodes)
    if sum(node.op == "placeholder" for node in nodes) != 1:
        return False
    for node in nodes:
        if node.op == "call_module":
            if len(node.args) != 1 or not _is_safe(module.get_submodule(str(node.target))):
                return False
        elif node.op == "call_function":
            if node.target not in _SAFE_FUNCTIONS or not _all_maps(node):
                return False
        elif node.op == "call_method":
            if node.target not in _SAFE_METHODS or not _all_maps(node):
                return False
        elif node.op == "output":
            if not isinstance(node.args[0], fx.Node):
                return False
        elif node.op != "placeholder":
            return False
    return True


def _all_maps(node: fx.Node) -> bool:
    """Whether a node adds maps to maps: a number would fill the empty lanes."""
    return all(isinstance(argument, fx.Node) for argument in node.args)


def _adjacent(chain: list[nn.Module]) -> Iterator[tuple[nn.Module, nn.Module]]:
    """The pairs of BatchNorm and ReLU that follow each other in a `Sequential`."""
    rows = [chain] + [_children(m) for c in chain for m in c.modules() if type(m) is nn.Sequential]
    for row in rows:
        for first, second in pairwise(row):
            if type(first) is nn.BatchNorm2d and type(second) is nn.ReLU:
                yield first, second
