"""What a traced network does with inputs of one shape: its shapes, shared memory, work in place.

Nothing is computed: the network runs on tensors without memory. (If it can't, because its shapes
depend on numbers, say, it runs once as it is.)
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_iter, tree_map_only


class Place(NamedTuple):
    """Where the numbers of a tensor lie, within the memory that it may share with others."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Observation:
    """What was seen of the nodes of a graph.

    Attributes:
        places: Of nodes whose result is one tensor.
        dtypes: The same nodes' types of numbers.
        constants: The results of nodes that are no tensors, but numbers that follow from shapes.
        changes: The nodes whose memory a node works on in place.
    """

    def __init__(self) -> None:
        self.places: dict[fx.Node, Place] = {}
        self.dtypes: dict[fx.Node, torch.dtype] = {}
        self.constants: dict[fx.Node, Any] = {}
        self.changes: dict[fx.Node, list[fx.Node]] = {}
        self._memory: dict[fx.Node, int] = {}  # nodes of one number share memory

    def is_map(self, node: Any) -> bool:
        """Whether a node's result is a batch of maps, in single precision."""
        return self.is_float(node) and len(self.places[node].shape) == 4

    def is_float(self, node: Any) -> bool:
        """Whether a node's result is a tensor in single precision, with samples in it."""
        return (
            self.dtypes.get(node) == torch.float32
            and len(self.places[node].shape) > 0
            and 0 not in self.places[node].shape
        )

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of a node's result."""
        return self.places[node].shape

    def sharing(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that share memory with one, and itself."""
        return [n for n, memory in self._memory.items() if memory == self._memory[node]]

    def see(self, node: fx.Node, result: Any, inputs: dict[fx.Node, list[Tensor]]) -> None:
        """Notes what a node has made of its inputs."""
        tensors = [t for t in tree_iter(result) if isinstance(t, Tensor)]
        if isinstance(result, Tensor):
            self.places[node] = Place(
                tuple(result.shape), result.stride(), int(result.storage_offset())
            )
            self.dtypes[node] = result.dtype
        elif not tensors:
            self.constants[node] = result
        self._memory[node] = len(self._memory)
        for other, theirs in inputs.items():
            if any(torch._C._is_alias_of(a, b) for a in tensors for b in theirs):  # type: ignore[attr-defined]
                old, new = self._memory[other], self._memory[node]
                for each, memory in self._memory.items():
                    if memory == old:
                        self._memory[each] = new


def observe(model: nn.Module, graph: fx.Graph, inputs: Sequence[Any]) -> Observation:
    """Watches a traced network.

    Args:
        model: The network.
        graph: What it does.
        inputs: Its inputs.
    """
    # Out of inference mode, where tensors don't count what is written into them.
    with torch.inference_mode(False), torch.no_grad():
        try:
            with torch.device("meta"):
                return _watch(_without_memory(model), graph, [_meta(x) for x in inputs])
        except Exception:  # whatever has no such form: the real thing has no such limits
            return _watch(model, graph, tree_map_only(Tensor, torch.clone, list(inputs)))


def _watch(model: nn.Module, graph: fx.Graph, inputs: Sequence[Any]) -> Observation:
    observer = _Observer(model, graph)
    observer.run(*inputs)
    return observer.seen


def _without_memory(model: nn.Module) -> nn.Module:
    kept = [*model.parameters(), *model.buffers()]
    constants = [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor)]
    return copy.deepcopy(model, {id(t): _meta(t) for t in kept + constants})


def _meta(x: Any) -> Any:
    return torch.empty_like(x, device="meta") if isinstance(x, Tensor) else x


class _Observer(fx.Interpreter):
    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__(model, graph=graph)
        self.seen = Observation()

    def run_node(self, n: fx.Node) -> Any:
        inputs = {
            node: [t for t in tree_iter(self.env[node]) if isinstance(t, Tensor)]
            for node in n.all_input_nodes
        }
        before = {node: [t._version for t in tensors] for node, tensors in inputs.items()}
        result = super().run_node(n)
        changed = [node for node in inputs if before[node] != [t._version for t in inputs[node]]]
        if changed:
            self.seen.changes[n] = changed
        self.seen.see(n, result, inputs)
        return result
