import pytest
import torch
from torch import nn

from freetickets.config import Config
from freetickets.errors import UnknownNameError
from freetickets.methods import BatchEnsemble, Phase, Plan, Run, Stretch, Timeline
from freetickets.tasks import CLASSIFICATION
from freetickets.training.optimizer import make_optimizer
from freetickets.training.parallel import make_compute
from freetickets.training.session import Session


def network():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))


def found(model, key, **options):
    """What each parameter has in the groups of its optimizer."""
    groups = make_optimizer(model, Config(**options)).param_groups
    values = {id(p): group[key] for group in groups for p in group["params"]}
    return {name: values[id(p)] for name, p in model.named_parameters() if id(p) in values}


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "nadam", "adagrad", "asgd"])
def test_every_name_makes_its_optimizer(name):
    optimizer = make_optimizer(network(), Config(optimizer=name, momentum=0.7, weight_decay=0.01))
    assert type(optimizer).__name__.lower() == name
    (group,) = optimizer.param_groups
    assert group["weight_decay"] == 0.01
    assert (group.get("momentum") == 0.7) == (name in ("sgd", "rmsprop"))
    with pytest.raises(UnknownNameError, match="did you mean"):
        make_optimizer(network(), Config(optimizer=f"{name}x"))


def test_norms_and_biases_decay_unless_they_are_spared_and_frozen_parameters_are_left_out():
    decays = found(network(), "weight_decay", weight_decay=0.01)
    assert set(decays.values()) == {0.01}
    assert len(decays) == 6
    spared = {"recipe": "imagenet", "weight_decay": 0.01}
    members = BatchEnsemble(members=2).transform(network())
    for model, place in ((network(), "{}.weight"), (members, "network.{}.layer.weight")):
        decays = found(model, "weight_decay", **spared)
        assert [n for n, decay in decays.items() if decay] == [place.format(n) for n in (0, 3)]
        assert len(decays) == len(list(model.parameters()))
    model = network()
    model[0].weight.requires_grad_(False)
    assert found(model, "lr_factor").keys() == dict(model.named_parameters()).keys() - {"0.weight"}


def factors(model, wanted, **options):
    return found(model, "lr_factor", lr_factors=wanted, **options)


def test_factors_reach_the_parameters_that_they_name_and_no_others(refused):
    plain = dict.fromkeys(("0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"), 1.0)
    assert factors(network(), {}) == plain
    assert factors(network(), {"norm-bias": 64}) == {**plain, "1.bias": 64}
    for recipe in ("cifar", "imagenet"):  # decay and factors don't mind one another
        several = factors(network(), {"norm-weight": 2, "3": 0.5, "0.b*": 3}, recipe=recipe)
        assert several == {**plain, "1.weight": 2, "3.weight": 0.5, "3.bias": 0.5, "0.bias": 3}
    assert factors(nn.BatchNorm1d(2), {"norm-bias": 4}) == {"weight": 1, "bias": 4}
    assert set(factors(nn.Linear(2, 2), {"norm-bias": 4}).values()) == {1}
    ensemble = BatchEnsemble(members=2).transform(network())
    norms = {name for name, factor in factors(ensemble, {"norm-bias": 4}).items() if factor == 4}
    assert norms == {name for name in dict(ensemble.named_parameters()) if name.endswith("1.bias")}
    assert len(norms) == 1
    words = "lr_factors 'norm-bia': did you mean 'norm-bias'"
    refused(words, factors, network(), {"norm-bia": 2})
    twice = {"norm-bias": 2, "1.*": 3}
    refused(r"'norm-bias' and '1\.\*' both fit 1\.bias", factors, network(), twice)


@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_are_those_of_a_plain_loop_with_two_groups(nesterov):
    torch.manual_seed(0)
    ours, theirs = network(), network()
    theirs.load_state_dict(ours.state_dict())
    x, y = torch.randn(12, 4, 1, 3, 3), torch.randint(2, (12, 4))
    schedule = (Stretch(1, 0.02, 0.1, "linear"), Stretch(2, 0.1, 0.0, "linear"))
    run = Run(0, (Phase("train", schedule),))
    factors = {"norm-bias": 8.0, "norm-weight": 8.0}
    config = Config(nesterov=nesterov, momentum=0.9, weight_decay=0.01, lr_factors=factors)
    plan, compute = Plan("dense", (run,), 1.0), make_compute("cpu", False)
    session = Session(plan, run, Timeline(run, 4), ours, compute, config, CLASSIFICATION)
    norm = list(theirs[1].parameters())  # type: ignore[index]
    others = [p for p in theirs.parameters() if all(p is not each for each in norm)]
    optimizer = torch.optim.SGD(
        [{"params": others}, {"params": norm}],
        lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=nesterov,
    )  # fmt: skip
    for step in range(12):
        rate = 0.02 + 0.08 * step / 4 if step < 4 else 0.1 * (12 - step) / 8
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = rate, 8 * rate
        session.step(step + 1, x[step], y[step], keep_gradients=False)
        optimizer.zero_grad()
        nn.functional.cross_entropy(theirs(x[step]), y[step]).backward()
        optimizer.step()
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], msg=name)


def test_a_step_is_one_call_for_all_parameters_where_it_can_be():
    """Embeddings with sparse gradients and other devices take PyTorch's ordinary step."""
    assert make_optimizer(nn.Linear(2, 2), Config()).defaults["fused"]
    for network in (nn.EmbeddingBag(3, 2, sparse=True), nn.Linear(2, 2, device="meta")):
        optimizer = make_optimizer(network, Config())
        assert not optimizer.defaults["fused"]
    assert "fused" not in make_optimizer(nn.Linear(2, 2), Config(optimizer="rmsprop")).defaults
