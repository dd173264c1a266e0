"""The optimizers that a run can choose by name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from ..config import OPTIMIZERS
from ..errors import UnknownNameError
from ..methods.members import MemberNetwork


@dataclass(frozen=True)
class OptimizerOptions:
    """How weights are updated; the learning rate comes from the plan."""

    name: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    decay_norms: bool = True


def make_optimizer(model: nn.Module, options: OptimizerOptions) -> Optimizer:
    """Creates the optimizer of a network.

    Example:
        >>> make_optimizer(nn.Linear(2, 2), OptimizerOptions("adamw")).__class__.__name__
        'AdamW'
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    spared = set(model.undecayed()) if isinstance(model, MemberNetwork) else set()
    if not options.decay_norms:
        # Norms and biases are the parameters of one dimension; the biases of several members have
        # two.
        spared |= {p for n, p in named.items() if p.ndim <= 1 or n.split(".")[-1] == "bias"}
    groups = [
        {"params": [p for p in parameters if p not in spared], "weight_decay": options.weight_decay}
    ]
    if spared:
        groups.append({"params": [p for p in parameters if p in spared], "weight_decay": 0.0})
    if options.name == "sgd":
        return torch.optim.SGD(groups, lr=0.1, momentum=options.momentum, nesterov=options.nesterov)
    if options.name == "adam":
        return torch.optim.Adam(groups)
    if options.name == "adamw":
        return torch.optim.AdamW(groups)
    if options.name == "rmsprop":
        return torch.optim.RMSprop(groups, momentum=options.momentum)
    raise UnknownNameError("optimizer", options.name, OPTIMIZERS)
