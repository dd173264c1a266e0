from __future__ import annotations

import pytest
import torch
from torch import nn

from freetickets.config import OPTIMIZERS
from freetickets.errors import UnknownNameError
from freetickets.methods import BatchEnsemble
from freetickets.training.optimizer import OptimizerOptions, make_optimizer


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_makes_its_optimizer(name: str) -> None:
    optimizer = make_optimizer(network(), OptimizerOptions(name, weight_decay=0.01))
    assert type(optimizer).__name__.lower() == name
    assert optimizer.param_groups[0]["weight_decay"] == 0.01


def test_norms_and_biases_decay_unless_they_are_spared() -> None:
    model = network()
    spared = make_optimizer(model, OptimizerOptions(decay_norms=False, weight_decay=0.01))
    decays = {id(p): g["weight_decay"] for g in spared.param_groups for p in g["params"]}
    found = {name: decays[id(p)] for name, p in model.named_parameters()}
    assert [n for n, decay in found.items() if decay] == ["0.weight", "3.weight"]
    assert len(found) == 6
    (group,) = make_optimizer(model, OptimizerOptions(weight_decay=0.01)).param_groups
    assert len(group["params"]) == 6


def test_the_biases_of_several_members_are_spared_too() -> None:
    model = BatchEnsemble(members=2).transform(network())
    spared = make_optimizer(model, OptimizerOptions(decay_norms=False, weight_decay=0.01))
    decays = {id(p): g["weight_decay"] for g in spared.param_groups for p in g["params"]}
    decayed = [name for name, p in model.named_parameters() if decays[id(p)]]
    assert decayed == ["network.0.layer.weight", "network.3.layer.weight"]


def test_frozen_parameters_are_left_out() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    (group,) = make_optimizer(model, OptimizerOptions()).param_groups
    assert len(group["params"]) == 5
    assert all(p is not model[0].weight for p in group["params"])


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'adamw'"):
        make_optimizer(network(), OptimizerOptions("adamww"))


def test_momentum_reaches_sgd_and_rmsprop() -> None:
    for name in ("sgd", "rmsprop"):
        optimizer = make_optimizer(network(), OptimizerOptions(name, momentum=0.7))
        assert optimizer.param_groups[0]["momentum"] == 0.7
    assert isinstance(make_optimizer(network(), OptimizerOptions()), torch.optim.SGD)
