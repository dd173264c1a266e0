"""What a network does with inputs of one shape, as a graph in which every shape is known.

While a network's code runs, each of its operations is done to tensors without memory as well. So
code that asks for a shape gets numbers, and may branch on them; and it is seen which results share
memory, and what works in place.
"""

import copy
import functools
import inspect
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_iter

from .layout import BatchNormReLU

_NUMBERS = (int, float, complex, str, bytes, torch.dtype, torch.device, type(None))


class Trace:
    """A traced network.

    Attributes:
        graph: What it does.
        values: What each node makes, as tensors without memory.
        changes: The nodes whose memory a node writes to.
    """

    def __init__(self, graph: fx.Graph, values: dict[fx.Node, Any]) -> None:
        self.graph, self.values = graph, values
        self.changes: dict[fx.Node, list[fx.Node]] = {}

    def is_map(self, node: Any) -> bool:
        """Whether a node makes a batch of maps, in single precision."""
        return self.is_float(node) and self.values[node].dim() == 4

    def is_float(self, node: Any) -> bool:
        """Whether a node makes numbers in single precision, at least one."""
        value = self.values.get(node)
        return isinstance(value, Tensor) and value.dtype == torch.float32 and value.numel() > 0

    def shape(self, node: Any) -> tuple[int, ...]:
        """The shape of what a node makes."""
        return tuple(self.values[node].shape)

    def sharing(self, node: fx.Node) -> list[fx.Node]:
        """The nodes that share memory with one, and itself."""
        mine = _tensors(self.values[node])
        return [
            other
            for other, value in self.values.items()
            if any(_is_alias(a, b) for a in mine for b in _tensors(value))
        ]

    def is_same(self, one: fx.Node, other: fx.Node) -> bool:
        """Whether two nodes are one tensor: the same memory, read in the same way."""
        a, b = self.values.get(one), self.values.get(other)
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or not _is_alias(a, b):
            return False
        places = [(t.shape, t.stride(), t.storage_offset()) for t in (a, b)]
        return places[0] == places[1]


def trace(model: nn.Module, shadow: nn.Module, inputs: tuple[Any, ...]) -> Trace:
    """Traces a network.

    Args:
        model: The network.
        shadow: The same without memory: see `without_memory`.
        inputs: Its inputs, by their places.

    Raises:
        ImpureError: It does more than answer.
        Exception: Its code can't be traced: it depends on numbers, say.
    """
    for name, module in model.named_modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            source = getattr(hook, "__module__", None) or type(hook).__module__
            # It wants to be called each time; PyTorch's (of a weight norm, say) and ours compute.
            if source.partition(".")[0] not in ("torch", "freetickets"):
                raise ImpureError(f"there is a hook on {name or 'it'}")
    fixed: dict[str, Any] = {}
    for place, (name, parameter) in enumerate(inspect.signature(model.forward).parameters.items()):
        given = inputs[place] if place < len(inputs) else parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY):
            raise TypeError(f"its input {name} is not given by its place")
        if parameter.kind is not parameter.VAR_KEYWORD and not isinstance(given, Tensor):
            fixed[name] = given
    # Out of inference mode, where tensors don't count what is written to them.
    with (
        _one_at_a_time,
        torch.inference_mode(False),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),  # its code may draw random numbers
    ):
        for _ in range(2):
            before = ModuleState(model)
            seen = _Tracer(shadow, inputs).run(model, fixed)
            if ModuleState(model) == before:
                break
            # It may have filled a cache, which it does just once.
        else:
            raise ImpureError("it keeps something from one call to the next")
    # The next call would find what this one writes to what was there before, or what others write
    # to it since it was returned: such a tensor may be new in each call of the network.
    (output,) = (node for node in seen.graph.nodes if node.op == "output")
    for changed in (*seen.changes.values(), output.all_input_nodes):
        if any(node.op == "get_attr" for each in changed for node in seen.sharing(each)):
            raise ImpureError("its inputs have no part in a tensor that it writes to or returns")
    return seen


def without_memory(model: nn.Module) -> nn.Module:
    """A copy of a network whose tensors have no memory."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [v for m in model.modules() for v in vars(m).values() if isinstance(v, Tensor)]
    return copy.deepcopy(model, {id(t): _meta(t) for t in tensors})


def is_number(value: Any) -> bool:
    """Whether a value is no tensor, but a number, or several."""
    if isinstance(value, (tuple, list)):
        return all(map(is_number, value))
    return isinstance(value, _NUMBERS)


def _meta(x: Any) -> Any:
    return torch.empty_like(x, device="meta") if isinstance(x, Tensor) else x


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in tree_iter(value) if isinstance(t, Tensor)]


def _is_alias(one: Tensor, other: Tensor) -> bool:
    return torch._C._is_alias_of(one, other)  # type: ignore[attr-defined]


# ---- whether it does nothing but answer: a graph of one call knows of nothing else


class ImpureError(Exception):
    """A network does more than answer, or answers by what it was asked before."""


class ModuleState:
    """All that a network's modules hold, to be compared with what they hold later.

    Numbers count by their values, tensors and other objects by what they are; of tensors it is
    also seen whether they were written to, and of lists and the like what is in them.

    Example:
        >>> network = nn.BatchNorm1d(2)
        >>> before = ModuleState(network)
        >>> before == ModuleState(network)
        True
        >>> _ = network.running_mean.add_(1)
        >>> before == ModuleState(network)
        False
    """

    def __init__(self, model: nn.Module) -> None:
        self._objects: list[Any] = []  # none of them may go, for another could take its place
        self._found = [
            (name, self._describe(value))
            for module in model.modules()
            for name, value in vars(module).items()
            if not name.startswith("_tensor_constant")  # fx leaves these
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleState) and self._found == other._found

    __hash__ = None  # type: ignore[assignment]

    def _describe(self, value: Any, depth: int = 3) -> Any:
        if isinstance(value, _NUMBERS):
            return type(value), value
        if depth and isinstance(value, dict):
            return [(key, self._describe(each, depth - 1)) for key, each in value.items()]
        if depth and isinstance(value, (list, tuple, set)):
            return [self._describe(each, depth - 1) for each in value]
        self._objects.append(value)
        counts = isinstance(value, Tensor) and not value.is_inference()
        return id(value), value._version if counts else None


# ---- while code runs


class _Proxy(fx.Proxy):
    """Stands for a tensor, and knows its shape."""

    @property
    def _value(self) -> Any:
        return cast(_Tracer, self.tracer).seen.values.get(self.node)

    def __getattr__(self, name: str) -> Any:
        if isinstance(self._value, Tensor):
            if name == "device":
                return torch.device("cpu")
            if name in _KNOWN:
                return getattr(self._value, name)
        return super().__getattr__(name)

    def __len__(self) -> int:
        return len(self._value)

    def __iter__(self) -> Iterator[Any]:
        return iter([cast(Any, self)[i] for i in range(len(self._value))])

    def __setitem__(self, place: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, place, value), {})


_KNOWN = (
    "shape", "ndim", "dtype", "layout", "is_cuda", "is_sparse", "is_quantized", "size", "dim",
    "numel", "nelement", "ndimension", "is_floating_point", "is_complex",
)  # fmt: skip


def _in_place(self: _Proxy, other: Any, function: Any) -> Any:
    """`x += y` in a graph; fx would take it for `x = x + y`."""
    return self.tracer.create_proxy("call_function", function, (self, other), {})


for _name in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior",
    "ixor", "ilshift", "irshift",
):  # fmt: skip
    _method = functools.partialmethod(_in_place, function=getattr(operator, _name))
    setattr(_Proxy, f"__{_name}__", _method)

_one_at_a_time = threading.Lock()


class _Tracer(fx.Tracer):
    """Traces through a network's own modules down to those of PyTorch.

    While it traces, all modules of the process call it: those of other threads must not notice.
    """

    def __init__(self, shadow: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.seen = Trace(fx.Graph(), {})
        self._shadow = shadow
        self._inputs = [_meta(x) for x in inputs]
        self._tensors: dict[int, Tensor] = {}
        self._thread = threading.get_ident()
        self._computes = False

    def run(self, model: nn.Module, fixed: dict[str, Any]) -> Trace:
        """Traces a network, whose inputs that are no tensors are given by their names."""
        self.seen.graph = self.trace(model, fixed or None)
        for node in self.seen.graph.nodes:
            if node.op != "output" and node not in self.seen.values:  # fx makes no proxy for it
                self._see(node)
        return self.seen

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **more: Any
    ) -> Any:
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **more)
        node = proxy.node
        self._see(node)
        if kind != "placeholder" and is_number(self.seen.values[node]):
            if node in self.seen.changes:
                return self.seen.values[node]
            self.graph.erase_node(node)
            return self.seen.values.pop(node)
        return proxy

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, BatchNormReLU) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self._is_not_asked():
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self._is_not_asked():
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def _is_not_asked(self) -> bool:
        return self._computes or threading.get_ident() != self._thread

    def _see(self, node: fx.Node) -> None:
        """Does a node's work on tensors without memory, and notes what it writes to."""
        values = self.seen.values
        for other in node.all_input_nodes:
            if other not in values:  # a tensor of the network: fx makes no proxy for it
                self._see(other)
        inputs = {other: _tensors(values[other]) for other in node.all_input_nodes}
        before = {other: [t._version for t in tensors] for other, tensors in inputs.items()}
        self._computes = True
        try:
            with torch.device("meta"):
                values[node] = self._compute(node)
        finally:
            self._computes = False
        changed = [n for n in inputs if before[n] != [t._version for t in inputs[n]]]
        if changed:
            self.seen.changes[node] = changed

    def _compute(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            place = sum(other.op == "placeholder" for other in self.graph.nodes) - 1
            given = self._inputs[place : place + 1]
            return given[0] if given else (node.args[0] if node.args else None)
        if node.op == "get_attr":
            tensor = operator.attrgetter(str(node.target))(self.root)
            if id(tensor) not in self._tensors:
                self._tensors[id(tensor)] = _meta(tensor)
            return self._tensors[id(tensor)]
        args, kwargs = fx.map_arg((node.args, node.kwargs), self.seen.values.__getitem__)
        if node.op == "call_module":
            return self._shadow.get_submodule(str(node.target))(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return cast(Callable[..., Any], node.target)(*args, **kwargs)
