"""PyTorch operators that cost little where nothing is compiled.

A call of a registered operator, with its gradient, takes PyTorch a tenth of a millisecond: more
than the work of a small layer. `run` therefore goes around the registration when it can; what is
computed, and the formulas of the gradients, are the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef

_plain: dict[CustomOpDef, Callable[..., Any]] = {}
_eager: dict[CustomOpDef, Any] = {}


def operator(function: Callable[..., Any]) -> CustomOpDef:
    """Registers a function as the operator of its name."""
    name = f"freetickets::{function.__name__}"
    found = torch.library.custom_op(name, function, mutates_args=())
    _plain[found] = function
    return found


def differentiate(
    operator: CustomOpDef, keep: Callable[..., None], backward: Callable[..., Any]
) -> None:
    """Gives an operator its gradient.

    Args:
        operator: The operator.
        keep: Is given a context, the inputs and the output, and keeps what the gradient needs.
        backward: Is given the context and the gradients of the outputs. Where gradients are to be
            differentiated in their turn, it runs with gradients enabled: see `differentiable`.
    """
    operator.register_autograd(backward, setup_context=keep)
    plain = _plain[operator]

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = plain(*inputs)
            ctx.is_eager = True
            keep(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            return backward(ctx, *gradients)

    _eager[operator] = Eager


def form(ctx: Any, operator: CustomOpDef) -> Callable[..., Any]:
    """What a backward formula should call: the bare function within `run`, else the operator."""
    if not getattr(ctx, "is_eager", False):
        return operator
    return partial(run, operator) if torch.is_grad_enabled() else _plain[operator]


def again(
    reference: Callable[..., Tensor], inputs: tuple[Tensor, ...], wanted: Any, gradient: Tensor
) -> list[Tensor | None]:
    """The gradients for inputs, by PyTorch's own operations: they can be differentiated again.

    Args:
        reference: Computes with those operations what the operator does.
        inputs: Its inputs.
        wanted: Of which a gradient is wanted.
        gradient: That of the output.
    """
    chosen = [x for x, needed in zip(inputs, wanted, strict=True) if needed]
    found = iter(
        torch.autograd.grad(reference(*inputs), chosen, gradient, create_graph=True)
        if chosen
        else ()
    )
    return [next(found) if needed else None for needed in wanted]


def run(operator: CustomOpDef, x: Tensor, *inputs: Any) -> Any:
    """Calls an operator in the quickest way that the circumstances allow."""
    is_plain = type(x) in (Tensor, nn.Parameter)
    if not is_plain or torch.compiler.is_compiling() or operator not in _plain:
        return operator(x, *inputs)
    if torch.is_grad_enabled() and operator in _eager:
        return _eager[operator].apply(x, *inputs)
    return _plain[operator](x, *inputs)
