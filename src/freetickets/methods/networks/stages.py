"""The stages of any network: where it can be cut in two, found by tracing its code."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import pairwise

from torch import Tensor, fx, nn

from ...errors import FreeTicketsError, is_out_of_memory
from ...models.prepare import Preparable
from ..members import evaluating


class Stages:
    """The parts of a network that run one after the other.

    A stage ends where all that comes later depends on one value only, and the next one begins with
    weights. So a residual block is a stage, whatever its code looks like.

    Example:
        >>> stages = Stages(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3)))
        >>> len(stages)
        2
        >>> [sum(p.numel() for p in part.parameters()) for part in stages.split(1)]
        [12, 15]
    """

    def __init__(self, network: nn.Module) -> None:
        self._root = _Root(network)
        nodes = list(_trace(self._root).nodes)
        # The steps of the flow are what depends on the input; the others are constants.
        self._steps: list[fx.Node] = []
        for node in nodes:
            if node.op == "placeholder" or not set(node.all_input_nodes).isdisjoint(self._steps):
                self._steps.append(node)
        self._cuts = self._find_cuts()

    def __len__(self) -> int:
        return len(self._cuts) + 1

    def split(self, first: int) -> tuple[nn.Module, nn.Module]:
        """Returns the first stages as a network, and the others."""
        cut = self._cuts[first - 1]
        before, after = self._steps[1 : cut + 1], self._steps[cut + 1 : -1]
        (outputs,) = self._steps[-1].all_input_nodes
        return (
            self._part(self._steps[0], before, self._steps[cut]),
            self._part(self._steps[cut], after, outputs),
        )

    def _find_cuts(self) -> list[int]:
        """Returns the last step of each stage but the last."""
        number = {node: i for i, node in enumerate(self._steps)}
        parameters = [self._parameters(node) for node in self._steps]
        places, needed = [], 0
        for i, node in enumerate(self._steps[:-1]):
            alone = needed <= i  # no earlier value is used after this step
            needed = max([needed, *(number[user] for user in node.users)])
            # A value that is taken apart may be several, as a recurrent layer's is.
            whole = all(user.target is not operator.getitem for user in node.users)
            if alone and whole and not _tied(parameters[: i + 1], parameters[i + 1 :]):
                places.append(i)
        # Of all places between two weights the last counts: a norm belongs to what it follows.
        return [
            place
            for place, following in pairwise([*places, len(parameters)])
            if _has_weights(parameters[: place + 1])
            and _has_weights(parameters[place + 1 : following + 1])
        ]

    def _parameters(self, node: fx.Node) -> set[nn.Parameter]:
        """Returns what a step uses, itself or by constants that are made of parameters."""
        found: set[nn.Parameter] = set()
        if node.op == "call_module":
            found.update(self._root.get_submodule(str(node.target)).parameters())
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(self._root)
            found.update([value] if isinstance(value, nn.Parameter) else [])
        constants = [each for each in node.all_input_nodes if each not in self._steps]
        return found.union(*(self._parameters(each) for each in constants))

    def _part(self, start: fx.Node, steps: Iterable[fx.Node], end: fx.Node) -> nn.Module:
        graph = fx.Graph()
        copies = {start: graph.placeholder("x")}

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:  # constants come where they are first asked for
                copies[node] = graph.node_copy(node, copied)
            return copies[node]

        for step in steps:
            copied(step)
        graph.output(copied(end))
        return fx.GraphModule(self._root, graph)


class _Root(nn.Module):
    """Calls a network with one input; so its hooks and its other arguments' defaults count too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits


class _Tracer(fx.Tracer):
    """Opens what is made of other modules, but no layer: its code may ask if it is training.

    Nor what looks at training data: it has a method for that.
    """

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        kinds = set(type(m).__mro__) - {nn.Module, nn.Sequential}
        is_torch = any(kind.__module__.startswith("torch.nn.") for kind in kinds)
        return is_torch or isinstance(m, Preparable) or not any(m.children())


def _trace(root: _Root) -> fx.Graph:
    name = type(root.network).__name__
    try:
        graph = _Tracer().trace(root)
        with evaluating(root):
            in_evaluation = str(_Tracer().trace(root))
    except Exception as error:  # tracing runs the network's own code, which may do anything
        if is_out_of_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise FreeTicketsError(f"TreeNet can't find the stages of {name}: {reason}") from error
    if str(graph) != in_evaluation:
        raise FreeTicketsError(
            f"TreeNet can't cut {name}, whose forward depends on self.training: use modules such "
            "as nn.Dropout instead"
        )
    return graph


def _tied(first: list[set[nn.Parameter]], last: list[set[nn.Parameter]]) -> bool:
    return not set().union(*first).isdisjoint(set().union(*last))


def _has_weights(parameters: Iterable[set[nn.Parameter]]) -> bool:
    return any(parameter.ndim > 1 for each in parameters for parameter in each)
