"""Makes any network whose weights have zeros predict fast on the CPU."""

import copy
import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from ..errors import FreeTicketsError, is_out_of_memory
from .adopted import AdoptedLayer
from .inference import compile_network, nonzeros


def compile(model: nn.Module, example: Any = None) -> nn.Module:  # noqa: A001 (as in torch.compile)
    """Returns a module that predicts the same as a pruned network, but fast on the CPU.

    The zeros may come from `torch.nn.utils.prune`, a parametrization, a `Sparsifier` or a loaded
    state. They are taken as they are now: the given network is neither changed nor looked at again,
    so call this again after changing it. For each new input shape, the network is rewritten and
    compared with the original; what can't be made faster (other devices, unknown layers, gradients)
    runs as before. Where the kernels are not built, everything does.

    Args:
        model: The network, in evaluation mode.
        example: Inputs, or a tuple of them, to compile for now; without it, the first call
            compiles.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
        >>> _ = prune.l1_unstructured(network[2], "weight", amount=0.9)
        >>> x = torch.ones(2, 3, 8, 8)
        >>> torch.allclose(compile(network, x)(x), network(x), atol=1e-5)
        True
    """
    if any(module.training for module in model.modules()):
        raise FreeTicketsError("the network is in training mode: call its eval() before compile")
    try:
        frozen = _frozen(model)
    except Exception as error:  # it holds something that can't be copied
        if is_out_of_memory(error):
            raise
        warnings.warn(f"the network runs as it is: {error}".partition("\n")[0], stacklevel=2)
        return model
    compiled = compile_network(frozen, nonzeros(frozen))
    if example is not None:
        with torch.no_grad():
            compiled(*(example if isinstance(example, tuple) else (example,)))
    return compiled


@torch.no_grad()
def _frozen(model: nn.Module) -> nn.Module:
    """A copy whose weights are what they are now, however they were computed."""
    computed = {  # results, which PyTorch would refuse to copy
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    frozen = copy.deepcopy(model, computed)
    for module in list(frozen.modules()):
        if isinstance(module, AdoptedLayer):
            module.abandon()
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, prune.BasePruningMethod):
                prune.remove(module, hook._tensor_name)  # type: ignore[no-untyped-call]
        if parametrize.is_parametrized(module):
            # PyTorch's own function would change the class, which the given network's module has.
            computers = cast(nn.ModuleDict, module._modules.pop("parametrizations"))
            module.__class__ = type(module).__bases__[0]
            for name, computer in computers.items():
                setattr(module, name, nn.Parameter(computer()))
    return frozen
