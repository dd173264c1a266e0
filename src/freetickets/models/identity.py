"""What tells one network of one's own from another whose weights have the same shapes."""

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType

from torch import nn

_PLAIN = (bool, int, float, str, type(None))
_KNOWN = ("torch", "freetickets", "builtins")  # packages whose modules print all that matters


def network_identity(network: nn.Module) -> str:
    """Return a digest of how a network computes, not of its weights.

    It covers the modules as they are printed; of the user's own classes also plain attributes and
    the code of their methods, where Python finds it. Comments and the layout of code don't count.
    """
    parts = [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(network))]
    kinds: dict[type, None] = {}
    for name, module in network.named_modules():
        own = [kind for kind in type(module).__mro__ if kind.__module__.split(".")[0] not in _KNOWN]
        if own:
            parts += [f"{name}.{value}" for value in _settings(module)]
            kinds.update(dict.fromkeys(own))
    parts += [f"{kind.__qualname__}: {code}" for kind in kinds for code in _code(kind)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _settings(module: nn.Module) -> Iterator[str]:
    for name, value in sorted(vars(module).items()):
        if name == "training" or name.startswith("_"):
            continue
        if isinstance(value, _PLAIN):
            yield f"{name} = {value!r}"
        elif isinstance(value, (FunctionType, BuiltinFunctionType)):
            yield f"{name} = {value.__qualname__}"


def _code(kind: type) -> Iterator[str]:
    for name, function in sorted(vars(kind).items()):
        if not isinstance(function, FunctionType):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(function))
            yield f"{name} {ast.unparse(ast.parse(source))}"
        except (OSError, TypeError, SyntaxError):  # typed at a prompt, say
            continue
