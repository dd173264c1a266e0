"""Whether a network does nothing but answer: a graph of one call knows of nothing else."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

_NUMBERS = (bool, int, float, complex, str, bytes, type(None))


class ImpureError(Exception):
    """A network does more than answer, or answers by what it was asked before."""


class State:
    """All that a network's modules hold, to be compared with what they hold later.

    Numbers count by their values, tensors and other objects by what they are; of tensors it is
    also seen whether they were written to, and of lists and the like what is in them.

    Example:
        >>> network = nn.BatchNorm1d(2)
        >>> before = State(network)
        >>> before == State(network)
        True
        >>> _ = network.running_mean.add_(1)
        >>> before == State(network)
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
        return isinstance(other, State) and self._found == other._found

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


def check_unwatched(model: nn.Module) -> None:
    """Refuses a network with hooks: they want to be called each time.

    Those of PyTorch (of a weight norm, say) and our own only compute.
    """
    for name, module in model.named_modules():
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            source = getattr(hook, "__module__", None) or type(hook).__module__
            if source.partition(".")[0] not in ("torch", "freetickets"):
                raise ImpureError(f"there is a hook on {name or 'it'}")
