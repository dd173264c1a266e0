"""How sparse weights are computed with: PyTorch's dense kernels and masks, or our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

from torch import Tensor, nn, optim
from torch.optim import Optimizer

from ..errors import FreeTicketsError, UnknownNameError
from ..kernels.library import available
from .layers import bare

if TYPE_CHECKING:
    from ..kernels.engine import Engine

Backend = Literal["auto", "sparse", "masked"]
# Optimizers that update each weight by itself. Others may look at a weight's shape, or at all
# weights at once, and would do something else with a one-dimensional tensor of active weights.
_ELEMENTWISE: tuple[type[Optimizer], ...] = (
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.Adagrad,
    optim.Adadelta, optim.RMSprop, optim.Rprop, optim.ASGD,
)  # fmt: skip

# Where half of the weights are active, skipping the others gains nothing.
_WORTHWHILE = 0.5

_BACKENDS: tuple[str, ...] = get_args(Backend)


def make_engine(
    backend: str,
    model: nn.Module,
    optimizer: Optimizer,
    masks: Mapping[str, Tensor],
    *,
    unsuited: str | None,
    owned: bool,
) -> Engine | None:
    """Has a network skip zeros in the way that the backend asks for.

    Args:
        backend: Which backend.
        model: The network.
        optimizer: Its optimizer.
        masks: The topology.
        unsuited: An option that only masked weights can serve, because it changes how many weights
            a layer has, or trains inactive ones.
        owned: Whether nobody else holds parameters of the network. Then "auto" replaces layers as
            "sparse" does, where that is possible.

    Returns:
        The layers that do; None if every weight is to be masked.
    """
    if backend not in _BACKENDS:
        raise UnknownNameError("backend", backend, _BACKENDS)
    if backend == "masked":
        return None
    if backend == "sparse":
        reason = f"it does not go with {unsuited}" if unsuited is not None else _obstacle(model)
        if reason is not None:
            raise FreeTicketsError(f"backend 'sparse' is not possible: {reason}, or use 'auto'")
    elif unsuited is not None or not available() or _sparsity(masks) < _WORTHWHILE:
        return None
    from ..kernels.engine import Adoption, Compression

    engine: Engine
    is_replaceable = type(optimizer) in _ELEMENTWISE and _obstacle(model) is None
    if backend == "sparse" or (owned and is_replaceable):
        engine = Compression(model, optimizer, masks)
    else:
        engine = Adoption(bare(model), masks)
    if backend == "sparse" and not engine.layers:
        raise FreeTicketsError(
            "backend 'sparse' is not possible: no layer can be sparse, only plain float32 Linear "
            "and Conv2d on the CPU can; use 'auto'"
        )
    return engine if engine.layers else None


def _obstacle(model: nn.Module) -> str | None:
    """Why a network's layers can't be replaced; None if they can."""
    if not available():
        return "the sparse kernels are not built: install a C++ compiler, then freetickets again"
    if bare(model) is not model:
        return "wrap the network (data-parallel, torch.compile) after making the Sparsifier"
    return None


def _sparsity(masks: Mapping[str, Tensor]) -> float:
    size = sum(mask.numel() for mask in masks.values())
    return 1 - sum(int(mask.sum()) for mask in masks.values()) / max(1, size)
