"""How networks are trained, beyond the plan, and the optimizers that a run can choose by name."""

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.optim import Optimizer

from ..config import Config
from ..errors import FreeTicketsError, UnknownNameError
from ..methods.members import MemberNetwork
from ..registry import Registry
from ..sparsity.distribution import matches

# Kinds of parameters with a learning rate of their own, beside patterns of names.
_KINDS = ("norm-weight", "norm-bias")


def _check_optimizer(thing: object) -> None:
    if not (inspect.isclass(thing) and issubclass(thing, Optimizer)):
        raise FreeTicketsError(f"an optimizer must be a class of torch's kind, not {thing!r}")


# LBFGS calls the network itself, and SparseAdam takes gradients of another kind.
_UNSUITED = (Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
OPTIMIZERS: Registry[type[Optimizer]] = Registry(
    "optimizer",
    "optimizers",
    {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind not in _UNSUITED
    },
    _check_optimizer,
)


def make_optimizer(model: nn.Module, config: Config) -> Optimizer:
    """Creates the optimizer of a network, as resolved settings say.

    A group of parameters whose learning rate is a multiple of the plan's says so as "lr_factor".
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    spared = set(model.undecayed()) if isinstance(model, MemberNetwork) else set()
    if not config.make_recipe().decay_norms:
        # Norms and biases have one dimension, but the biases of several members have two.
        spared |= {p for n, p in named.items() if p.ndim <= 1 or n.split(".")[-1] == "bias"}
    factors = _factors(model, named, config.lr_factors or {})
    alike: dict[tuple[bool, float], list[nn.Parameter]] = {(False, 1.0): []}
    for name, parameter in named.items():
        alike.setdefault((parameter in spared, factors.get(name, 1.0)), []).append(parameter)
    decay = config.weight_decay or 0.0
    groups = [
        {"params": own, "weight_decay": 0.0 if spare else decay, "lr_factor": factor}
        for (spare, factor), own in sorted(alike.items(), key=lambda item: item[0])
    ]
    kind: Callable[..., Optimizer] = OPTIMIZERS.find(config.optimizer)
    taken = inspect.signature(kind).parameters
    given = {"lr": 0.1, "momentum": config.momentum or 0.0, "nesterov": bool(config.nesterov)}
    # A step may be one call for all parameters: if they are floats on the CPU, gradients dense.
    sparse = any(getattr(module, "sparse", False) for module in model.modules())  # embeddings
    plain = (p.is_floating_point() and p.device.type == "cpu" for p in model.parameters())
    given |= {"fused": True} if all(plain) and not sparse else {}
    try:
        return kind(groups, **{name: value for name, value in given.items() if name in taken})
    except (TypeError, ValueError) as error:  # Muon, say, takes matrices only
        raise FreeTicketsError(f"{config.optimizer} can't train this network: {error}") from error


def _factors(
    model: nn.Module, named: Mapping[str, nn.Parameter], wanted: Mapping[str, float]
) -> dict[str, float]:
    kinds = {
        f"{module}.{name}".lstrip("."): f"norm-{name}"
        for module, layer in model.named_modules()
        if "Norm" in type(layer).__name__  # PyTorch's have no common base, others' even less
        for name, _ in layer.named_parameters(recurse=False)
    }
    found: dict[str, str] = {}
    for key in wanted:
        fitting = [n for n in named if (kinds.get(n) == key if key in _KINDS else matches(n, key))]
        if not fitting and key not in _KINDS:  # a network may have no norms
            raise UnknownNameError("parameter in lr_factors", key, [*_KINDS, *named])
        for name in fitting:
            if name in found:
                raise FreeTicketsError(f"lr_factors: {found[name]!r} and {key!r} both fit {name}")
            found[name] = key
    return {name: wanted[key] for name, key in found.items()}
