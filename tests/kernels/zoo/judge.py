"""How exactly results must agree: as well as float32 can do it."""

import dataclasses
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

Results = dict[str, Any]  # by names that say what they are

_TOLERANCE = 1e-5  # of the largest value
_MARGIN = 10  # times what float32 itself is wrong by
# How far the outputs of layers are moved to find out how much rounding can matter.
_TREMOR = 1e-6
_LAYERS = (nn.Conv2d, nn.Linear, nn.modules.batchnorm._BatchNorm)


def leaves(value, name):
    """All tensors, numbers and the like in a nested value, by name; and how it is nested."""
    if dataclasses.is_dataclass(value):
        value = (type(value), vars(value))
    found, nesting = tree_flatten(value)
    return {f"nesting of {name}": nesting} | {f"{name} {i}": each for i, each in enumerate(found)}


class Judge:
    """Compares results with those of a plain network, within what float32 can do.

    Args:
        wanted: The results of the plain network.
        exact: Computes them in double precision, with a tremor of this size.
    """

    def __init__(self, wanted, exact):
        self._wanted, self._exact = wanted, exact
        self._computed: dict[float, Results] = {}
        gradients = [value for name, value in wanted.items() if name.startswith("gradient")]
        self._largest_gradient = max((largest(g) for g in gradients if g is not None), default=0.0)

    def faults(self, found):
        """Returns what is wrong, in words; nothing if all is well."""
        if found.keys() != self._wanted.keys():
            return [f"results {sorted(found)} instead of {sorted(self._wanted)}"]
        return [fault for name in found if (fault := self._fault(name, found[name])) is not None]

    def _fault(self, name, found):
        wanted = self._wanted[name]
        if not isinstance(wanted, Tensor) or not isinstance(found, Tensor):
            return None if found == wanted else f"{name}: {found!r} instead of {wanted!r}"
        if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            return (
                f"{name}: {tuple(found.shape)} {found.dtype} "
                f"instead of {tuple(wanted.shape)} {wanted.dtype}"
            )
        error, scale = distance(found, wanted), largest(wanted)
        if any(error <= allowed for allowed in self._allowances(name, scale)):
            return None
        allowed = max(self._allowances(name, scale))
        return f"{name}: error {error:.2e}, allowed {allowed:.2e}, largest value {scale:.2e}"

    def _allowances(self, name, scale):
        """How wrong something may be, the reasons that cost the least first."""
        is_gradient = name.startswith("gradient")
        if is_gradient:
            scale = max(scale, 0.1 * self._largest_gradient)
        yield _TOLERANCE * scale
        best = self._at(0.0)[name]
        yield _MARGIN * distance(self._wanted[name], best)
        if is_gradient and largest(best) < 1e-9 * self._largest_gradient:
            # A bias before BatchNorm, say, has no gradient but rounding.
            yield 10 * _TOLERANCE * self._largest_gradient
        # Rounding may take a value over the edge of a ReLU, where its gradient jumps, and a
        # BatchNorm makes much of it where values hardly differ.
        yield 3 * max(distance(self._at(tremor)[name], best) for tremor in (_TREMOR, -_TREMOR))

    def _at(self, tremor):
        if tremor not in self._computed:
            self._computed[tremor] = self._exact(tremor)
        return self._computed[tremor]


def distance(a, b):
    """The largest difference."""
    return largest(a.detach().double() - b.detach().double())


def largest(value):
    """The largest absolute value; NaN if one is in it."""
    return float(value.detach().double().abs().max()) if value.numel() else 0.0


def doubled(value):
    """A copy in double precision."""
    wide = lambda t: t.double() if t.is_floating_point() else t.clone()  # noqa: E731
    return tree_map_only(Tensor, wide, value)


@contextmanager
def trembling(network, tremor):
    """Adds noise to what layers return, of this size if the largest value there is one."""
    generator = torch.Generator().manual_seed(0)

    def shake(module, inputs, output):
        noise = torch.randn(output.shape, generator=generator, dtype=output.dtype)
        return output + tremor * largest(output) * noise

    layers = [m for m in network.modules() if isinstance(m, _LAYERS) and tremor]
    hooks = [layer.register_forward_hook(shake) for layer in layers]
    yield network
    for hook in hooks:
        hook.remove()
