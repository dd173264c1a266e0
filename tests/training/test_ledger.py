"""The ledger against the paper's columns and the reference's exact numbers."""

import copy
import math

import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.methods import Setting, Timeline, get_recipe
from freetickets.models import create_model
from freetickets.sparsity.distribution import allocate
from freetickets.sparsity.layers import select_weights
from freetickets.training.ledger import count_macs, forward_flops, price


@pytest.fixture(scope="module")
def wrn():
    with torch.device("meta"):
        return create_model("wrn-28-10", (3, 32, 32), 100)


def cifar(method, model):
    plan = method.plan(Setting(get_recipe("cifar")))
    transformed = method.transform(copy.deepcopy(model)) if method.transforms else None
    return price(
        plan, model, (3, 32, 32), train_size=45_000, batch_size=128, steps_per_epoch=352,
        transformed=transformed,
    )  # fmt: skip


def densities(model, sparsity, distribution="erk"):
    shapes = {name: tuple(weight.shape) for name, weight in select_weights(model).items()}
    counts = allocate(shapes, sparsity, distribution)
    return {name: counts[name] / torch.Size(shape).numel() for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("method", "train", "test", "runs"),
    [
        (ft.EDST(tickets=3, sparsity=0.8), 0.61, 1.01, 1),
        (ft.DST(tickets=3, sparsity=0.8), 1.01, 1.01, 3),
        (ft.MCDropout(passes=1), 1.00, 1.0, 1),
        (ft.MIMO(members=3), 1.00, 1.0, 1),
        (ft.TreeNet(members=3), 1.52, 1.52, 1.5),
        # Not derivable: the paper has 1.10x and 3.75x; docs/methods.md says what is counted here.
        (ft.BatchEnsemble(members=4), 4.00, 4.0, 4),
        (ft.BatchEnsemble(members=4, examples="split"), 1.00, 4.0, 4),
        (ft.PruneFineTune(tickets=3, sparsity=0.8), 3.60, 0.6, 6),
    ],
)
def test_methods_cost_the_papers_within_a_fiftieth(wrn, method, train, test, runs):
    """All rows of the paper are in `test_paper.py`; docs/costs.md, also tested, has more digits."""
    ledger = cifar(method, wrn)
    assert ledger.relative_flops == pytest.approx(train, abs=0.02)
    assert ledger.relative_test_flops == pytest.approx(test, abs=0.02)
    assert ledger.runs == runs


def test_absolute_numbers_and_treenets_are_what_the_paper_says():
    with torch.device("meta"):
        wrn10 = create_model("wrn-28-10", (3, 32, 32), 10)
    assert cifar(ft.Dense(), wrn10).flops == pytest.approx(3 * 10_486_657_536 * 45_000 * 250)
    ledger = cifar(ft.EDST(tickets=3, sparsity=0.8), wrn10)
    assert ledger.parameters == 36_479_194
    removed = 36_461_232 - round(0.2 * 36_461_232)
    assert abs(ledger.ticket_parameters - (36_479_194 - removed)) <= 1
    assert ledger.ticket_bytes / 3 < 0.25 * 4 * ledger.parameters
    with torch.device("meta"):
        resnet = create_model("resnet-50", (3, 224, 224), 1000)
    network = ft.TreeNet(members=2).transform(copy.deepcopy(resnet))
    found = forward_flops(count_macs(network, (3, 224, 224)))
    assert found / forward_flops(count_macs(resnet, (3, 224, 224))) == pytest.approx(1.33, abs=0.05)


def test_growth_is_a_column_of_its_own_and_only_where_gradients_are_dense(wrn):
    by_gradient = cifar(ft.EDST(), wrn)
    by_chance = cifar(ft.EDST(grow="random"), wrn)
    assert by_gradient.flops == by_chance.flops
    assert by_chance.relative_growth_flops == 0.0
    explorations = sum(phase.explorations for phase in by_gradient.phases) + 2  # two escapes
    dense = by_gradient.dense_forward_flops
    extra = explorations * 128 * (dense - by_gradient.test_flops / 3)
    assert by_gradient.relative_growth_flops == pytest.approx(extra / by_gradient.dense_flops)


@pytest.mark.parametrize(
    ("method", "share"),
    [
        (ft.DST(explorer="snfs"), 1.0),
        (ft.DST(explorer="snfs", grow="random"), 1.0),  # momentum still shares out
        (ft.DST(explorer="set", prune="momentum"), 1.0),
        (ft.DST(explorer="set"), 0.0),
        (ft.DST(explorer="mest"), 0.0),  # looks at the gradients of active weights
    ],
)
def test_momentum_needs_dense_gradients_at_every_step(method, share, wrn):
    ledger = cifar(method, wrn)
    steps = sum(phase.steps for phase in ledger.phases)
    extra = share * steps * 128 * (ledger.dense_forward_flops - ledger.test_flops / 3)
    assert ledger.relative_growth_flops == pytest.approx(extra / ledger.dense_flops)


def test_growth_costs_less_where_the_network_is_still_dense(wrn):
    method = ft.DST(tickets=1, explorer="granet")
    ledger = cifar(method, wrn)
    timeline = Timeline(method.plan(Setting(get_recipe("cifar"))).runs[0], 352)
    costs, sparsity, extra = count_macs(wrn, (3, 32, 32)), 0.5, 0.0
    for step in range(1, timeline.steps + 1):
        if timeline.exploration_rate(step):  # its gradient is taken before the pruning
            extra += forward_flops(costs) - forward_flops(costs, densities(wrn, sparsity))
        reached = timeline.sparsity(step)
        sparsity = sparsity if reached is None else reached
    assert ledger.relative_growth_flops == pytest.approx(128 * extra / ledger.dense_flops, rel=0.02)


def test_a_reserve_costs_a_gradient_in_each_step(wrn):
    ledger = cifar(ft.DST(tickets=1, explorer="top-kast"), wrn)
    assert ledger.flops == cifar(ft.DST(tickets=1), wrn).flops
    costs = count_macs(wrn, (3, 32, 32))
    shares = densities(wrn, 0.8).items()
    reserved = sum(2 * costs[name] * min(0.1, 1 - density) for name, density in shares)
    extra = 250 * 352 * 128 * reserved
    assert ledger.relative_growth_flops == pytest.approx(extra / ledger.dense_flops)


def test_a_network_is_counted_once(monkeypatch):
    counted: list[nn.Module] = []

    def watched(model, *shape, **more):
        counted.append(model)
        return count_macs(model, *shape, **more)

    monkeypatch.setattr("freetickets.training.ledger.count_macs", watched)
    network = create_model("cnn", (3, 32, 32), 10)
    cifar(ft.EDST(), network)
    assert counted == [network]


def test_seconds_are_those_of_each_phase_and_costs_in_units_that_are_one(wrn):
    ledger = cifar(ft.Dense(), nn.Sequential(nn.Flatten(), nn.LayerNorm(3 * 32 * 32)))
    assert ledger.flops == 0
    multiples = ledger.relative_flops, ledger.relative_growth_flops, ledger.relative_test_flops
    assert all(map(math.isnan, multiples))
    plan = ft.EDST().plan(Setting(get_recipe("cifar")))
    sizes = {"train_size": 45_000, "batch_size": 128, "steps_per_epoch": 352}
    half = price(plan, wrn, (3, 32, 32), **sizes, dense_epochs=500)  # type: ignore[arg-type]
    assert half.relative_flops == pytest.approx(cifar(ft.EDST(), wrn).relative_flops / 2)
    ledger = cifar(ft.DST(tickets=2), wrn).with_seconds({(1, "train"): 2.0, (2, "train"): 3.5})
    assert [phase.seconds for phase in ledger.phases] == [2.0, 3.5]
    assert ledger.as_dict()["seconds"] == 5.5
