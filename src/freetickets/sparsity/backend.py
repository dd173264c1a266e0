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


def make_engine(
    backend: str,
    model: nn.Module,
    optimizer: Optimizer,
    masks: Mapping[str, Tensor],
    *,
    unsuited: str | None,
    owned: bool,
) -> Engine | None:
    """Makes the layers of a network that skip zeros; None if every weight is to be masked.

    `unsuited` is an option that only masked weights can serve, because it changes how many weights
    a layer has, or trains inactive ones. If the network is `owned`, nobody else holds its
    parameters: then "auto" replaces layers as "sparse" does, where that is possible.
    """
    if backend not in get_args(Backend):
        raise UnknownNameError("backend", backend, get_args(Backend))
    if backend == "masked":
        return None
    obstacle = None
    if not available():
        obstacle = (
            "the sparse kernels are not built: install a C++ compiler, then freetickets again"
        )
    elif bare(model) is not model:
        obstacle = "wrap the network (data-parallel, torch.compile) after making the Sparsifier"
    if backend == "sparse":
        reason = obstacle if unsuited is None else f"it does not go with {unsuited}"
        if reason is not None:
            raise FreeTicketsError(f"backend 'sparse' is not possible: {reason}, or use 'auto'")
    else:
        size = sum(mask.numel() for mask in masks.values())
        sparsity = 1 - sum(int(mask.sum()) for mask in masks.values()) / max(1, size)
        if unsuited is not None or not available() or sparsity < _WORTHWHILE:
            return None
    from ..kernels.engine import Adoption, Compression

    engine: Engine
    is_replaceable = type(optimizer) in _ELEMENTWISE and obstacle is None
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
