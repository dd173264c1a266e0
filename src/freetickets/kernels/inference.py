"""Networks that only predict, on the CPU, but fast; or as they are, where that can't be right."""

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..errors import is_out_of_memory
from .compiler import Compiler, Parts
from .library import available
from .maps import in_transform
from .tracing import ImpureError, is_number, trace

# How far a compiled network may be from the plain one, as a share of the largest output.
_TOLERANCE = 1e-4
# Beyond this many kinds of inputs a network is called with ever new ones: they are not worth it.
_MOST_KINDS = 256
# From so many samples on, compiling pays at once, and to compare this many of them is enough.
_MANY, _COMPARED = 32, 8
# A network that changes more often, at each call perhaps, is not worth compiling.
_MOST_CHANGES = 8

_Inputs = tuple[Any, ...]


class CompiledNetwork(nn.Module):
    """A network that predicts what another does, but faster.

    For each new shape of its inputs it is rewritten, and compared with the plain network on these
    inputs, or on some of them if they are many; if the two differ, or something fails, the plain
    network answers all such inputs, and a warning says so. It answers everything if it does more
    than answer: if hooks watch it, or it keeps something from one call to the next. It may be
    called from several threads at once.

    Args:
        model: The network, in evaluation mode; it is not changed, and later changes of it are not
            seen.
        topology: Its sparse weights.

    Attributes:
        fallbacks: Why the plain network is used, for each kind of inputs for which it is.
    """

    def __init__(self, model: nn.Module, topology: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.fallbacks: dict[_Inputs, str] = {}
        self._original = model
        self._parts = Parts(copy.deepcopy(model).requires_grad_(False), topology)
        self._ways: dict[_Inputs, Callable[..., Any]] = {}
        self._most_kinds = _MOST_KINDS
        self._lock = threading.RLock()

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Returns what the network returns."""
        kind = None if options else _kind(inputs)
        if kind is None:
            return self._original(*inputs, **options)
        with torch.no_grad():
            way = self._ways.get(kind)
            if way is None:
                return self._first(kind, inputs)
            if way is not self._original:
                try:
                    return way(*inputs)
                except Exception as error:  # shapes within the network depend on numbers, say
                    self._fall_back(kind, error)
            return self._original(*inputs)

    def _first(self, kind: _Inputs, inputs: _Inputs) -> Any:
        """Finds the way for a new kind of inputs, and answers the first of them."""
        with self._lock:
            if kind in self._ways:  # another thread was faster
                return self(*inputs)
            if len(self._ways) >= self._most_kinds:
                return self._original(*inputs)
            with contextlib.suppress(Exception):  # it will be looked into below
                return self._first_of_many(kind, inputs)
            kept = _copy(inputs)  # a network may write to its inputs
            wanted = self._original(*inputs)  # what it refuses, it refuses here
            try:
                seen = trace(self._parts.model, self._parts.shadow, kept)
            except Exception as error:  # its code branches on numbers, say: nothing is wrong
                self.fallbacks[kind] = f"{type(error).__name__}: {error}"
                self._ways[kind] = self._original
                if isinstance(error, ImpureError):  # whatever it is asked
                    self._ways = dict.fromkeys(self._ways, self._original)
                    self._most_kinds = 0
                return wanted
            try:
                compiled = Compiler(self._parts, seen).compile()
                if compiled is None:
                    self._ways[kind] = self._original
                    return wanted
                found = compiled.forward(*_copy(kept))
                if not agree(found, wanted):
                    raise ValueError("it answers something else")
            except Exception as error:
                self._fall_back(kind, error)
                return wanted
            # Not the module itself, which prints where an error occurs.
            self._ways[kind] = compiled.forward
            return found

    def _first_of_many(self, kind: _Inputs, inputs: _Inputs) -> Any:
        """The same for many samples, of which the plain network answers some.

        Raises:
            Exception: That can't be, or they differ: all must be compared.
        """
        samples = len(inputs[0])
        if samples < _MANY:
            raise ValueError("they are few")
        rows = torch.linspace(0, samples - 1, _COMPARED).long()
        some = _rows(inputs, rows, samples)
        seen = trace(self._parts.model, self._parts.shadow, inputs)
        written = [node for nodes in seen.changes.values() for node in nodes]
        if any(other.op == "placeholder" for node in written for other in seen.sharing(node)):
            raise ValueError("it writes to its inputs")
        compiled = Compiler(self._parts, seen).compile()
        if compiled is None:
            raise ValueError("it would be slower")
        with torch.random.fork_rng(devices=[]):  # what draws differs, and must draw as ever then
            found = compiled.forward(*inputs)
            if not agree(_rows(found, rows, samples), self._original(*some)):
                raise ValueError("a sample's answer depends on the others'")
        self._ways[kind] = compiled.forward
        return found

    def _fall_back(self, kind: _Inputs, error: Exception) -> None:
        """Has the plain network answer such inputs, from now on."""
        self._ways[kind] = self._original
        self.fallbacks[kind] = f"{type(error).__name__}: {error}"
        shapes = ", ".join(str(list(part[0])) for part in kind if isinstance(part, tuple))
        reason = str(error).strip().split("\n")[0]
        warnings.warn(
            f"the compiled network can't answer inputs of {shapes}: {reason}; "
            "the plain one does, which is right, but slower",
            stacklevel=4,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what can't be copied, and can be made again."""
        return {**self.__dict__, "_lock": None, "_ways": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._lock = threading.RLock()


def compile_network(model: nn.Module, topology: Mapping[str, Tensor]) -> nn.Module:
    """Returns a network that predicts the same, faster.

    Args:
        model: The network, in evaluation mode.
        topology: Its sparse weights.
    """
    if not available() or any(module.training for module in model.modules()):
        return model
    try:
        return CompiledNetwork(model, topology)
    except Exception as error:  # it holds something that can't be copied
        if is_out_of_memory(error):
            raise
        reason = str(error).strip().split("\n")[0]
        warnings.warn(f"the network is not compiled: {reason}", stacklevel=2)
        return model


@torch.no_grad()
def nonzeros(model: nn.Module) -> dict[str, Tensor]:
    """Where the weights of layers that have zeros are none, by their names."""
    return {
        f"{name}.weight" if name else "weight": module.weight != 0
        for name, module in model.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear)) and not bool(module.weight.all())
    }


class LazilyCompiled:
    """Calls a network, or what is compiled of it as soon as that pays.

    Few samples are answered by the plain network when their shape first comes. When the network has
    changed since (its weights, its mode, hooks), that is seen, and it is compiled again.

    Args:
        network: The network.
        at_once: Whether few samples don't wait either.
    """

    def __init__(self, network: nn.Module, *, at_once: bool = False) -> None:
        self._network, self._at_once = network, at_once
        self._made: tuple[Any, nn.Module] | None = None
        self._once: set[Any] = set()
        self._changes = 0

    def __call__(self, x: Tensor) -> Any:
        """Returns what the network returns."""
        kind = (x.shape, x.dtype)
        if not self._at_once and len(x) < _MANY and kind not in self._once:
            if len(self._once) < _MOST_KINDS:
                self._once.add(kind)
            return self._network(x)
        with _making:
            state = _state(self._network)
            if self._made is None or self._made[0] != state:
                self._changes += 1
                often = self._changes > _MOST_CHANGES
                network = self._network
                made = network if often else compile_network(network, nonzeros(network))
                self._made = state, made
            compiled = self._made[1]
        return compiled(x)


_making = threading.Lock()  # not one for each: they could not be copied


def _state(network: nn.Module) -> list[Any]:
    """What changes when a network does; it takes a fraction of a millisecond."""
    tensors = [*network.parameters(), *network.buffers()]
    return [
        *((id(t), t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors),
        *(
            (m.training, len(m._forward_hooks), len(m._forward_pre_hooks))
            for m in network.modules()
        ),
    ]


def agree(found: Any, wanted: Any) -> bool:
    """Whether two outputs are the same, but for rounding."""
    (mine, mine_tree), (theirs, theirs_tree) = tree_flatten(found), tree_flatten(wanted)
    return mine_tree == theirs_tree and all(map(_agree, mine, theirs))


def _agree(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, Tensor) or not isinstance(found, Tensor):
        if not is_number(wanted):
            raise TypeError(f"a {type(wanted).__name__} can't be compared with another")
        return type(found) is type(wanted) and found == wanted
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    finite = wanted.isfinite()
    odd = [each.where(~finite, 0).nan_to_num() for each in (found, wanted)]
    if not torch.equal(finite, found.isfinite()) or not torch.equal(*odd):
        return False
    found, wanted = found[finite], wanted[finite]
    limit = _TOLERANCE * wanted.abs().max() if wanted.numel() else 0.0
    return bool(((found - wanted).abs() <= limit).all())


def _kind(inputs: _Inputs) -> _Inputs | None:
    """What inputs are but for their numbers; None if only the plain network can answer them."""
    if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or in_transform():
        return None
    found: list[Any] = []
    for x in inputs:
        if type(x) not in (Tensor, nn.Parameter, bool, int, float, str, type(None)):
            return None
        if isinstance(x, Tensor):
            if x.device.type != "cpu" or (x.requires_grad and torch.is_grad_enabled()):
                return None
            x = (x.shape, x.dtype)
        found.append(x)
    return tuple(found)


def _rows(value: Any, rows: Tensor, samples: int) -> Any:
    """Some samples' part of inputs or outputs, whose first or second dimension is the samples."""
    leaves, tree = tree_flatten(value)
    for place, x in enumerate(leaves):
        if isinstance(x, Tensor):
            leaves[place] = x.index_select(x.shape[:2].index(samples), rows)
    return tree_unflatten(leaves, tree)


def _copy(inputs: _Inputs) -> _Inputs:
    return tuple(x.clone() if isinstance(x, Tensor) else x for x in inputs)
