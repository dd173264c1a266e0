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
) -> Engine | None:
    """Replaces the layers of a network by sparse ones where the backend asks for it.

    Args:
        backend: Which backend.
        model: The network.
        optimizer: Its optimizer.
        masks: The topology.
        unsuited: An option that sparse layers can't serve, because it changes how many weights a
            layer has, or trains inactive ones.

    Returns:
        What was replaced; None if every weight is to be masked.
    """
    if backend not in _BACKENDS:
        raise UnknownNameError("backend", backend, _BACKENDS)
    if unsuited is not None and backend == "sparse":
        raise FreeTicketsError(
            f"backend 'sparse' is not possible with {unsuited}: use backend='masked' or 'auto'"
        )
    if backend == "masked" or unsuited is not None:
        return None
    inside = bare(model)
    obstacle = None
    if backend == "auto" and (
        type(optimizer) not in _ELEMENTWISE or _sparsity(masks) < _WORTHWHILE
    ):
        return None
    if not available():
        obstacle = (
            "the sparse kernels are not built: install a C++ compiler, then freetickets again"
        )
    elif inside is not model:
        obstacle = "wrap the network (data-parallel, torch.compile) after making the Sparsifier"
    if obstacle is None:
        from ..kernels.engine import Engine

        engine = Engine(inside, optimizer, masks, choose=backend == "auto")
        if engine.layers or backend == "auto":
            return engine if engine.layers else None
        obstacle = "no layer can be sparse: only plain float32 Linear and Conv2d on the CPU can"
    if backend == "sparse":
        raise FreeTicketsError(f"backend 'sparse' is not possible: {obstacle}")
    return None


def _sparsity(masks: Mapping[str, Tensor]) -> float:
    size = sum(mask.numel() for mask in masks.values())
    return 1 - sum(int(mask.sum()) for mask in masks.values()) / max(1, size)
