"""Networks for prediction only: BatchNorm folded into convolutions, additions and ReLU fused."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from . import ops
from .choice import dense_is_faster
from .layers import can_be_sparse, geometry_of
from .library import Geometry, available, lanes
from .linear import linear
from .norm import BatchNormReLU, scale
from .operator import run

# Up to this many samples, vectors lie along the rows of a map; from there on, across samples.
_FEW_SAMPLES = 4

_ADDITIONS = (operator.add, operator.iadd, torch.add)
_RELU_FUNCTIONS = (F.relu, torch.relu)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


class CompiledNetwork(nn.Module):
    """A network that can only predict, on the CPU, but fast.

    Args:
        model: The network, in evaluation mode; it is not changed.
        topology: Its sparse weights.
        batch_size: The most samples of a call that it is made for; any number works.
    """

    def __init__(self, model: nn.Module, topology: Mapping[str, Tensor], batch_size: int) -> None:
        super().__init__()
        self._state = _State(1 if batch_size <= _FEW_SAMPLES else lanes())
        self._original = model
        self._use_original: bool | None = None
        model = copy.deepcopy(model).eval().requires_grad_(False)
        graph = _Tracer().trace(model)
        self._network = _Compiler(model, graph, topology, self._state).compile()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Returns what the network returns."""
        self._state.batch = len(x)
        if self._use_original is None:
            # Each layer takes its faster way; whether that pays as a whole, one more look tells.
            self._network(x)
            self._use_original = dense_is_faster(
                None, lambda: self._network(x), lambda: self._original(x)
            )
        return cast(Tensor, self._original(x) if self._use_original else self._network(x))


def compile_network(model: nn.Module, topology: Mapping[str, Tensor], batch_size: int) -> nn.Module:
    """Returns a network that predicts the same, faster; the network itself if there is no way.

    That is a dense network, or one whose code can't be traced (it branches on its inputs, say).
    """
    if not available() or not topology:
        return model
    try:
        return CompiledNetwork(model, topology, batch_size)
    except Exception:  # tracing runs the network's own code, which may do anything
        return model


class _State:
    """What the parts of a compiled network share."""

    def __init__(self, width: int) -> None:
        self.lanes = width
        self.batch = 0


class _Tracer(fx.Tracer):
    """Traces through a network's own modules down to those of PyTorch."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, BatchNormReLU) or super().is_leaf_module(m, module_qualified_name)


# ---- the parts of a compiled network: maps come and go grouped


class _Enter(nn.Module):
    def __init__(self, state: _State) -> None:
        super().__init__()
        self._state = state

    def forward(self, x: Tensor) -> Tensor:
        if self._state.lanes == 1:
            return x.contiguous().unsqueeze(-1)
        return run(ops.to_groups, x, self._state.lanes)


class _Leave(nn.Module):
    def __init__(self, state: _State) -> None:
        super().__init__()
        self._state = state

    def forward(self, x: Tensor) -> Tensor:
        if self._state.lanes == 1:
            return x.squeeze(-1)
        return cast(Tensor, run(ops.from_groups, x, self._state.batch))


class _FusedConv2d(nn.Module):
    """relu?(convolution + bias + residual), by the faster way, which the first call finds.

    Attributes:
        relu: Whether ReLU follows.
        scale: The BatchNorm that comes before it.
    """

    def __init__(self, weight: Tensor, bias: Tensor, geometry: Geometry, mask: Tensor) -> None:
        super().__init__()
        self.geometry = geometry
        self.relu = False
        self.scale: _Scale | None = None
        indices = mask.flatten().nonzero().flatten().int()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("values", weight.flatten()[indices.long()])
        self.register_buffer("plan", ops.make_plan(indices, geometry))
        self._entries: dict[tuple[int, ...], Tensor | None] = {}

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        size = (*x.shape[2:], torch.get_num_threads())
        if size not in self._entries:
            self._entries[size] = self._choose(x)
        entries = self._entries[size]
        return self._dense(x, residual) if entries is None else self._sparse(x, residual, entries)

    def _choose(self, x: Tensor) -> Tensor | None:
        """The prepared weights, or None if dense is faster."""
        values, plan = cast(Tensor, self.values), cast(Tensor, self.plan)
        entries = ops.prepare(x, values, plan, self.geometry)
        few = x[:4]  # groups enough to tell
        key = (
            f"fused {self.geometry} {values.numel()} {tuple(few.shape)} "
            f"{self.scale is not None} x{torch.get_num_threads()}"
        )
        dense = dense_is_faster(
            key, lambda: self._sparse(few, None, entries), lambda: self._dense(few, None)
        )
        return None if dense else entries

    def _sparse(self, x: Tensor, residual: Tensor | None, entries: Tensor) -> Tensor:
        values, plan, bias = (cast(Tensor, t) for t in (self.values, self.plan, self.bias))
        return ops.fused_conv2d(
            x, values, plan, self.geometry, bias, residual, self.relu, entries,
            None if self.scale is None else self.scale.scaling,
        )  # fmt: skip

    def _dense(self, x: Tensor, residual: Tensor | None) -> Tensor:
        if self.scale is not None:
            x = self.scale(x)
        groups, width = x.shape[0], x.shape[4]
        plain = x.squeeze(-1) if width == 1 else run(ops.from_groups, x, groups * width)
        weight, bias = cast(Tensor, self.weight), cast(Tensor, self.bias)
        y = F.conv2d(plain, weight, bias, self.geometry.stride, self.geometry.padding)
        grouped = y.contiguous().unsqueeze(-1) if width == 1 else run(ops.to_groups, y, width)
        if residual is not None:
            grouped += residual
        return grouped.relu_() if self.relu else grouped


class _Scale(nn.Module):
    """A BatchNorm that the convolution before it could not take in, with ReLU or without."""

    def __init__(self, bn: nn.BatchNorm2d, state: _State) -> None:
        super().__init__()
        self._bn, self._state = bn, state
        self.relu = isinstance(bn, BatchNormReLU)

    @functools.cached_property
    def scaling(self) -> ops.Scaling:
        """What it does, in the form that a convolution can do it to its input."""
        factor, shift = _factor_and_shift(self._bn)
        return ops.Scaling(factor, shift, self.relu)

    def forward(self, x: Tensor) -> Tensor:
        bn = self._bn
        weight, bias = cast(Tensor, bn.weight), cast(Tensor, bn.bias)
        mean, variance = cast(Tensor, bn.running_mean), cast(Tensor, bn.running_var)
        if x.shape[4] > 1:
            batch = x.shape[0] * x.shape[4]
            return run(scale, x, weight, bias, mean, variance, batch, bn.eps, self.relu)
        y = F.batch_norm(x.squeeze(-1), mean, variance, weight, bias, eps=bn.eps)
        return (y.relu_() if self.relu else y).unsqueeze(-1)


def _factor_and_shift(bn: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """What a BatchNorm multiplies by and adds, when it predicts."""
    factor = bn.weight / torch.sqrt(cast(Tensor, bn.running_var) + bn.eps)
    return factor, bn.bias - cast(Tensor, bn.running_mean) * factor


class _Pool(nn.Module):
    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self._pool = pool

    def forward(self, x: Tensor) -> Tensor:
        groups, channels, height, width, width_of_group = x.shape
        maps = x.reshape(groups * channels, height, width, width_of_group).permute(0, 3, 1, 2)
        y = self._pool(maps).permute(0, 2, 3, 1).contiguous()
        return cast(Tensor, y.view(groups, channels, *y.shape[1:3], width_of_group))


class _SparseLinear(nn.Module):
    """A linear layer for plain inputs, sparse or dense: the faster, found at the first call."""

    def __init__(self, layer: nn.Linear, mask: Tensor) -> None:
        super().__init__()
        self._layer = layer
        self._shape = [layer.out_features, layer.in_features]
        indices = mask.flatten().nonzero().flatten().int()
        self.register_buffer("indices", indices)
        self.register_buffer("values", layer.weight.detach().flatten()[indices.long()])
        self.register_buffer("plan", ops.make_plan(indices, geometry_of(layer)))
        self._dense: dict[tuple[int, int], bool] = {}

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            return cast(Tensor, self._layer(x))
        key = (len(x), torch.get_num_threads())
        if key not in self._dense:
            name = f"linear {self._shape} {cast(Tensor, self.values).numel()} {key}"
            self._dense[key] = dense_is_faster(
                name, lambda: self._sparse(x), lambda: self._layer(x)
            )
        return cast(Tensor, self._layer(x)) if self._dense[key] else self._sparse(x)

    def _sparse(self, x: Tensor) -> Tensor:
        values, indices, plan = (cast(Tensor, t) for t in (self.values, self.indices, self.plan))
        return run(linear, x, values, indices, plan, self._layer.bias, self._shape, lanes(), 0)


# ---- the compiler


class _Compiler:
    """Rewrites a traced network."""

    def __init__(
        self, model: nn.Module, graph: fx.Graph, topology: Mapping[str, Tensor], state: _State
    ) -> None:
        self._model, self._graph, self._state = model, graph, state
        self._topology = topology
        self._grouped: set[fx.Node] = set()
        self._modules = dict(model.named_modules())
        self._added = 0

    def compile(self) -> fx.GraphModule:
        """Fuses what can be fused, and puts conversions where layouts meet."""
        for node in list(self._graph.nodes):
            if self._is(node, nn.Dropout, nn.Identity):
                node.replace_all_uses_with(node.args[0])
                self._graph.erase_node(node)
        for node in list(self._graph.nodes):
            if self._is(node, nn.Conv2d) and can_be_sparse(self._module(node)):
                self._fuse(node)
        for node in self._graph.nodes:  # not a copy: a node may erase the one that follows it
            self._convert(node)
        for node in list(self._graph.nodes):
            if self._is(node, _Scale):
                self._move_on(node)
        self._erase_unused()
        self._graph.lint()
        return fx.GraphModule(self._model, self._graph)

    # -- fusing

    def _fuse(self, node: fx.Node) -> None:
        """Replaces a convolution and what follows it by one fused convolution."""
        conv = cast(nn.Conv2d, self._module(node))
        weight = conv.weight.detach()
        bias = torch.zeros(conv.out_channels) if conv.bias is None else conv.bias.detach().clone()
        last, residual, relu = node, None, False
        bn_node = self._only_user(node)
        if bn_node is not None and self._scales(bn_node):
            bn = cast(nn.BatchNorm2d, self._module(bn_node))
            factor, shift = _factor_and_shift(bn)
            weight = weight * factor[:, None, None, None]
            bias = bias * factor + shift
            last, relu = bn_node, isinstance(bn, BatchNormReLU)
        if not relu:
            addition = self._only_user(last)
            if addition is not None and self._adds_maps(addition):
                (other,) = (a for a in addition.args if a is not last)
                residual, last = cast(fx.Node, other), addition
            rectifier = self._only_user(last)
            if rectifier is not None and self._rectifies(rectifier):
                last, relu = rectifier, True
        mask = self._topology.get(f"{node.target}.weight")
        mask = torch.ones_like(weight, dtype=torch.bool) if mask is None else mask
        fused = _FusedConv2d(weight.detach(), bias.detach(), geometry_of(conv), mask)
        fused.relu = relu
        arguments = (node.args[0],) if residual is None else (node.args[0], residual)
        # In the place of the last: what it adds must have been computed by then.
        new = self._insert(last, fused, arguments)
        last.replace_all_uses_with(new)
        self._erase_unused()

    def _move_on(self, node: fx.Node) -> None:
        """Has convolutions scale what they read, if nothing else reads what is scaled."""
        if all(self._is(user, _FusedConv2d) and node not in user.args[1:] for user in node.users):
            for user in list(node.users):
                cast(_FusedConv2d, self._module(user)).scale = cast(_Scale, self._module(node))
                user.replace_input_with(node, cast(fx.Node, node.args[0]))

    def _scales(self, node: fx.Node) -> bool:
        """Whether a node is a BatchNorm with weights, and with statistics of its own."""
        if not self._is(node, nn.BatchNorm2d):
            return False
        bn = cast(nn.BatchNorm2d, self._module(node))
        return bn.affine and bn.running_mean is not None

    def _adds_maps(self, node: fx.Node) -> bool:
        """Whether a node adds two different maps."""
        return (
            node.op == "call_function"
            and node.target in _ADDITIONS
            and not node.kwargs
            and len(set(node.args)) == 2
            and all(isinstance(argument, fx.Node) for argument in node.args)
        )

    def _rectifies(self, node: fx.Node) -> bool:
        is_function = node.op == "call_function" and node.target in _RELU_FUNCTIONS
        is_method = node.op == "call_method" and node.target in ("relu", "relu_")
        return is_function or is_method or self._is(node, nn.ReLU)

    # -- layouts

    def _convert(self, node: fx.Node) -> None:
        """Decides in which layout a node works, and has its inputs converted."""
        if node.op in ("placeholder", "get_attr"):
            return
        inputs = node.all_input_nodes
        if self._is(node, _FusedConv2d):
            wants_groups = True
        elif self._scales(node):
            wants_groups = inputs[0] in self._grouped
            if wants_groups:
                scaled = _Scale(cast(nn.BatchNorm2d, self._module(node)), self._state)
                user = self._only_user(node)
                node.target = self._register(scaled)
                if user is not None and self._rectifies(user) and not scaled.relu:
                    scaled.relu = True
                    user.replace_all_uses_with(node)
                    self._erase_unused()
        elif self._is(node, *_POOLS):
            wants_groups = inputs[0] in self._grouped
            if wants_groups:
                node.target = self._register(_Pool(self._module(node)))
        elif self._adds_maps(node) or self._rectifies(node):
            wants_groups = all(argument in self._grouped for argument in inputs)
        else:
            wants_groups = False
        for argument in inputs:
            if wants_groups and argument not in self._grouped:
                entered = self._insert(node, _Enter(self._state), (argument,), before=True)
                self._grouped.add(entered)
                node.replace_input_with(argument, entered)
            elif not wants_groups and argument in self._grouped:
                left = self._insert(node, _Leave(self._state), (argument,), before=True)
                node.replace_input_with(argument, left)
        if wants_groups:
            self._grouped.add(node)
        elif self._is(node, nn.Linear):
            mask = self._topology.get(f"{node.target}.weight")
            if mask is not None and can_be_sparse(self._module(node)):
                layer = cast(nn.Linear, self._module(node))
                node.target = self._register(_SparseLinear(layer, mask))

    # -- the graph

    def _erase_unused(self) -> None:
        for node in reversed(list(self._graph.nodes)):
            if not node.users and node.op not in ("placeholder", "output"):
                self._graph.erase_node(node)

    def _module(self, node: fx.Node) -> nn.Module:
        return self._modules[str(node.target)]

    def _is(self, node: fx.Node, *kinds: type[nn.Module]) -> bool:
        return node.op == "call_module" and isinstance(self._module(node), kinds)

    def _only_user(self, node: fx.Node) -> fx.Node | None:
        users = list(node.users)
        return users[0] if len(users) == 1 else None

    def _register(self, module: nn.Module) -> str:
        self._added += 1
        name = f"_compiled_{self._added}"
        self._model.add_module(name, module)
        self._modules[name] = module
        return name

    def _insert(
        self, at: fx.Node, module: nn.Module, arguments: Any, before: bool = False
    ) -> fx.Node:
        name = self._register(module)
        with self._graph.inserting_before(at) if before else self._graph.inserting_after(at):
            return self._graph.call_module(name, arguments)
