"""An optimizer of one's own: the sign of the gradient decides.

freetickets train edst --optimizer optimizer:SignSGD --lr 0.001 --model mlp-64
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class SignSGD(Optimizer):
    """Moves each weight by the learning rate, against the sign of its gradient."""

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Takes a step."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(weight.grad.sign(), alpha=group["lr"])
        return None if closure is None else closure()
