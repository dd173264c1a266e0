"""Rewrites a traced network for inputs of one shape, so that it predicts fast.

Nothing is assumed of the network: what is fused is fused because of the shapes that were seen, and
what works in place keeps its place.
"""

import functools
import operator
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from .blocks import Cut
from .choice import layout_time, pays
from .fused import Enter, FoldedConv2d, FusedConv2d, FusedLinear, Leave, Pool, ScaledNorm
from .layers import can_be_sparse, geometry_of, has_hooks
from .layout import BatchNormReLU
from .library import lanes
from .tracing import Trace, without_memory

# Vectors lie across samples, or across the blocks of a few; where maps can't be cut into such
# blocks, they lie along rows for up to this many samples.
FEW_SAMPLES = 4

# Of functions and methods that work in place, those that do not.
_FUNCTIONAL: dict[Any, Any] = {
    operator.iadd: operator.add, torch.relu_: torch.relu, "add_": "add", "relu_": "relu",
}  # fmt: skip
_NORMS = (nn.BatchNorm2d, BatchNormReLU)
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)


class Parts:
    """A network and what all of its compiled forms share: folded weights, plans.

    Args:
        model: The network, in evaluation mode.
        topology: Its sparse weights.
    """

    def __init__(self, model: nn.Module, topology: Mapping[str, Tensor]) -> None:
        self.model = model
        self._topology = topology
        self._convs: dict[tuple[str, str | None], FoldedConv2d] = {}
        self._linears: dict[str, FusedLinear] = {}

    @functools.cached_property
    def shadow(self) -> nn.Module:
        """The network without memory."""
        return without_memory(self.model)

    def conv(self, name: str, norm: str | None) -> FoldedConv2d:
        """A convolution with the BatchNorm that follows it, by their names."""
        if (name, norm) not in self._convs:
            self._convs[name, norm] = FoldedConv2d(
                cast(nn.Conv2d, self.model.get_submodule(name)),
                None if norm is None else cast(nn.BatchNorm2d, self.model.get_submodule(norm)),
                self._topology.get(f"{name}.weight"),
            )
        return self._convs[name, norm]

    def linear(self, name: str) -> FusedLinear | None:
        """A sparse linear layer; None if this one is not."""
        mask = self._topology.get(f"{name}.weight")
        layer = self.model.get_submodule(name)
        if mask is None or type(layer) is not nn.Linear or not can_be_sparse(layer):
            return None
        if name not in self._linears:
            self._linears[name] = FusedLinear(layer, mask)
        return self._linears[name]


class Compiler:
    """Makes a module that does what a traced network does, for inputs of the same shapes."""

    def __init__(self, parts: Parts, seen: Trace) -> None:
        self._parts, self._seen, self._graph = parts, seen, seen.graph
        self._modules: dict[str, Any] = dict(parts.model.named_modules())
        self._order = {node: place for place, node in enumerate(seen.graph.nodes)}
        # Nodes whose memory is written to: they stay what they are, where they are.
        self._fixed: set[fx.Node] = set()
        self._grouped: set[fx.Node] = set()
        self._entered: dict[fx.Node, fx.Node] = {}
        self._left: dict[fx.Node, fx.Node] = {}
        self._gone: set[fx.Node] = set()

    def compile(self) -> fx.GraphModule | None:
        """Fuses what can be fused, and puts conversions where layouts meet.

        None: it would be slower than the network itself.
        """
        for node in list(self._graph.nodes):
            if node in self._seen.changes:
                self._settle_changes(node)
        for node in list(self._graph.nodes):
            if self._is(node, nn.Dropout, nn.Identity) and len(node.args) == 1:
                self._replace(node, node.args[0])
        convs = [node for node in self._graph.nodes if self._convolves(node)]
        self._settle_layout(convs)
        for node in convs:
            self._fuse(node)
        for node in list(self._graph.nodes):
            if node not in self._gone and not self._is(node, Leave):
                self._convert(node)
        for node in list(self._graph.nodes):
            if self._is(node, ScaledNorm):
                self._move_on(node)
        times = [self._choose(node) for node in self._graph.nodes]
        if not pays(sum(ours for ours, _ in times), sum(plain for _, plain in times)):
            return None
        return fx.GraphModule(self._used(), self._graph)

    # -- what is known before anything is fused

    def _settle_changes(self, node: fx.Node) -> None:
        """Has a node that works in place make something new instead, or fixes what it touches."""
        seen = self._seen
        for changed in seen.changes[node]:
            sharing = seen.sharing(changed)
            read_later = [
                other
                for other in sharing
                if other is not node
                and any(self._order[u] > self._order[node] for u in other.users)
            ]
            # All of them are the tensor that the node returns.
            same = all(seen.is_same(n, node) for n in (changed, *read_later))
            own = all(n.op not in ("placeholder", "get_attr") for n in sharing)
            floats = all(seen.is_float(n) for n in node.all_input_nodes)
            if same and own and floats and self._make_functional(node):
                for other in read_later:
                    for user in list(other.users):
                        if self._order[user] > self._order[node]:
                            user.replace_input_with(other, node)
            else:
                self._fixed.update(sharing)

    def _make_functional(self, node: fx.Node) -> bool:
        """Has a node work out of place; tells whether there is such a form of it."""
        if self._is(node, nn.ReLU) or node.target is F.relu:
            node.op, node.target = "call_function", F.relu
            node.args, node.kwargs = node.args[:1], {}
        elif node.op in ("call_function", "call_method") and node.target in _FUNCTIONAL:
            node.target = _FUNCTIONAL[node.target]
        else:
            return False
        return True

    def _settle_layout(self, convs: list[fx.Node]) -> None:
        """Decides what lies in the lanes: samples, their blocks, or nothing."""
        shapes = [self._seen.shape(node.args[0]) for node in convs]
        samples = {shape[0] for shape in shapes}
        most = max(samples, default=0)
        grid = Cut.of(most)
        geometries = [geometry_of(self._modules[str(node.target)]) for node in convs]
        fit = all(grid.fits(g, *shape[2:]) for g, shape in zip(geometries, shapes, strict=True))
        self._grid = grid if len(samples) == 1 and most > 0 and fit else Cut()
        self._lanes = 1 if most <= FEW_SAMPLES and self._grid.blocks == 1 else lanes()

    # -- fusing

    def _fuse(self, node: fx.Node) -> None:
        """Replaces a convolution and what follows it by one fused convolution."""
        chain, norm, residual, relu = [node], None, None, False
        # Where it is fused, it reads its input later: that must still be the same.
        if cast(fx.Node, node.args[0]) not in self._fixed:
            follower = self._follower(chain[-1])
            if follower is not None and self._scales(follower):
                chain.append(follower)
                norm = str(follower.target)
                relu = type(self._modules[norm]) is BatchNormReLU
            follower = None if relu else self._follower(chain[-1])
            if follower is not None and self._adds_maps(follower):
                (residual,) = (a for a in follower.args if a is not chain[-1])
                chain.append(follower)
            follower = None if relu else self._follower(chain[-1])
            if follower is not None and self._rectifies(follower):
                chain.append(follower)
                relu = True
        fused = FusedConv2d(self._parts.conv(str(node.target), norm), relu, self._grid)
        arguments = (node.args[0],) if residual is None else (node.args[0], residual)
        # In the place of the last: what it adds must have been computed by then.
        last = chain[-1]
        new = self._insert(self._graph.inserting_after(last), fused, arguments, like=last)
        self._grouped.add(new)
        if chain[-1] in self._fixed:
            new = self._leave(new)
            self._fixed.add(new)
        for old in reversed(chain):
            self._replace(old, new)

    def _follower(self, node: fx.Node) -> fx.Node | None:
        """The node that alone reads another, if these two can become one."""
        users = list(node.users)
        return users[0] if len(users) == 1 and node not in self._fixed else None

    def _move_on(self, node: fx.Node) -> None:
        """Has convolutions scale what they read, if nothing else reads what is scaled."""
        if all(self._is(user, FusedConv2d) and node not in user.args[1:] for user in node.users):
            for user in list(node.users):
                self._modules[str(user.target)].scale = self._modules[str(node.target)]
            self._replace(node, node.args[0])

    def _choose(self, node: fx.Node) -> tuple[float, float]:
        """Has a node choose its way; what it takes, and what it took in the plain network."""
        if self._is(node, FusedConv2d, FusedLinear):
            given = self._seen.shape(node.all_input_nodes[0])
            if self._is(node, FusedLinear):
                return cast(FusedLinear, self._modules[str(node.target)]).choose(given[0])
            parts, *rest = self._grid.shape(given)
            shape = (-(-parts // self._lanes), *rest, self._lanes)
            return cast(FusedConv2d, self._modules[str(node.target)]).choose(shape)
        if self._is(node, Enter, Leave) and self._lanes > 1:
            return layout_time(self._seen.values[node].numel()), 0
        return 0, 0

    # -- what a node does

    def _is(self, node: fx.Node, *kinds: type[nn.Module]) -> bool:
        """Whether a node calls a module of just this kind, which nobody watches."""
        if node.op != "call_module":
            return False
        module = self._modules[str(node.target)]
        return type(module) in kinds and not has_hooks(module)

    def _takes_one(self, node: fx.Node) -> bool:
        """Whether a node makes maps of one batch of maps, and is told nothing else."""
        return (
            len(node.args) == 1
            and set(node.kwargs) <= {"inplace"}  # F.relu's; what works in place is settled
            and self._seen.is_map(node.args[0])
            and self._seen.is_map(node)
        )

    def _convolves(self, node: fx.Node) -> bool:
        return (
            self._is(node, nn.Conv2d)
            and can_be_sparse(self._modules[str(node.target)])
            and self._takes_one(node)
        )

    def _scales(self, node: fx.Node) -> bool:
        """Whether a node is a BatchNorm with weights, and with statistics of its own."""
        if not self._is(node, *_NORMS) or not self._takes_one(node):
            return False
        bn = cast(nn.BatchNorm2d, self._modules[str(node.target)])
        return bn.affine and bn.running_mean is not None and bn.weight.dtype == torch.float32

    def _adds_maps(self, node: fx.Node) -> bool:
        """Whether a node adds two different maps of the same shape."""
        return (
            _calls(node, "add", operator.add, torch.add)
            and not node.kwargs
            and all(self._seen.is_map(each) for each in (*node.args, node))
            and len(node.args) == len(set(node.args)) == 2
            and len(set(map(self._seen.shape, node.args))) == 1
        )

    def _rectifies(self, node: fx.Node) -> bool:
        is_relu = _calls(node, "relu", F.relu, torch.relu) or self._is(node, nn.ReLU)
        return is_relu and self._takes_one(node)

    # -- layouts

    def _convert(self, node: fx.Node) -> None:
        """Decides in which layout a node works, and has its inputs converted."""
        inputs = node.all_input_nodes
        wants_groups = node in self._grouped  # a fused convolution
        if inputs and node not in self._fixed and all(a in self._grouped for a in inputs):
            if self._scales(node):
                wants_groups = True
                self._scale(node)
            elif self._is(node, *_POOLS) and self._takes_one(node) and self._grid.blocks == 1:
                node.target = self._register(Pool(self._modules[str(node.target)]))
                wants_groups = True
            else:
                wants_groups |= self._adds_maps(node) or self._rectifies(node)
        for argument in inputs:
            if wants_groups and argument not in self._grouped:
                node.replace_input_with(argument, self._enter(argument, node))
            elif not wants_groups and argument in self._grouped:
                node.replace_input_with(argument, self._leave(argument))
        if wants_groups:
            self._grouped.add(node)
        elif self._is(node, nn.Linear) and self._seen.is_float(inputs[0]):
            layer = self._parts.linear(str(node.target))
            if layer is not None and len(self._seen.shape(inputs[0])) == 2:
                node.target = self._register(layer)

    def _scale(self, node: fx.Node) -> None:
        scaled = ScaledNorm(self._modules[str(node.target)])
        node.target = self._register(scaled)
        follower = None if scaled.relu else self._follower(node)
        if follower is not None and follower not in self._fixed and self._rectifies(follower):
            scaled.relu = True
            self._replace(follower, node)

    def _enter(self, node: fx.Node, reader: fx.Node) -> fx.Node:
        """The node's maps in groups."""
        if node not in self._entered:
            place = self._graph.inserting_before(reader)
            module = Enter(self._seen.shape(node), self._lanes, self._grid)
            entered = self._insert(place, module, (node,), like=node)
            self._grouped.add(entered)
            if node in self._fixed:
                return entered  # the next reader may find something else there
            self._entered[node] = entered
        return self._entered[node]

    def _leave(self, node: fx.Node) -> fx.Node:
        """The node's maps as PyTorch has them: the same ones for all who read them."""
        if node not in self._left:
            place = self._graph.inserting_after(node)
            module = Leave(self._seen.shape(node)[0], self._grid)
            self._left[node] = self._insert(place, module, (node,), like=node)
        return self._left[node]

    # -- the graph

    def _replace(self, node: fx.Node, new: Any) -> None:
        node.replace_all_uses_with(new)
        if not node.users:
            self._graph.erase_node(node)
            self._gone.add(node)

    def _register(self, module: nn.Module) -> str:
        name = f"_compiled_{len(self._modules)}"
        self._modules[name] = module
        return name

    def _insert(self, place: Any, module: nn.Module, arguments: Any, like: fx.Node) -> fx.Node:
        """Has the graph call a module at a place; it makes the maps of another node."""
        with place:
            new = self._graph.call_module(self._register(module), arguments)
        self._seen.values[new], self._order[new] = self._seen.values[like], self._order[like]
        return new

    def _used(self) -> dict[str, Any]:
        """What the graph uses, under names that can't be taken for a graph module's own."""
        found: dict[str, Any] = {}
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                path, node.target = str(node.target), f"part_{len(found)}"
                is_module = node.op == "call_module"
                part = self._modules[path] if is_module else attrgetter(path)(self._parts.model)
                found[node.target] = part
        return found


def _calls(node: fx.Node, method: str, *functions: Callable[..., Any]) -> bool:
    """Whether a node calls this method, or one of these functions."""
    if node.op == "call_method":
        return node.target == method
    return node.op == "call_function" and node.target in functions
