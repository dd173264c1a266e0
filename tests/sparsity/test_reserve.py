"""Reserves: weights that train although the network does not see them."""

import copy

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels.layers import SparseLayer
from freetickets.sparsity import Exploration, Sparsifier


def prepared(optimizer="SGD", dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)).to(dtype)
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    start = copy.deepcopy(model)
    options = {"distribution": "uniform", "exploration": Exploration(interval=3), **options}
    return model, made, Sparsifier(model, made, 0.75, **{"reserve": 0.25, **options}), start


def batch(step, dtype=torch.float32):
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    return x.to(dtype), x[:, :4].flip(1).to(dtype)


def train_step(model, optimizer, step=0, dtype=torch.float32):
    x, target = batch(step, dtype)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), target).backward()
    optimizer.step()


def test_the_network_starts_with_its_strongest_weights():
    model, _, sparsifier, start = prepared()
    for name, mask in sparsifier.topology.items():
        before = start.get_parameter(name).abs()
        assert before[mask].min() >= before[~mask].max()
        assert mask.sum() == mask.numel() // 4
        assert torch.equal(model.get_parameter(name), start.get_parameter(name) * mask)


def test_the_network_sees_active_weights_only_and_the_next_strongest_train():
    model, optimizer, sparsifier, start = prepared(exploration=None)
    for step in range(4):
        seen = []
        handle = model[2].register_forward_pre_hook(
            lambda layer, _, seen=seen: seen.append(layer.weight.detach().clone())
        )
        train_step(model, optimizer, step)
        handle.remove()
        assert (seen[0][~sparsifier.topology["2.weight"]] == 0).all()
        gradient, mask = model[2].weight.grad, sparsifier.topology["2.weight"]
        # A quarter is active, and a quarter is the reserve: half of the gradients are left.
        assert (gradient != 0).sum() == mask.numel() // 2
        assert (gradient[mask] != 0).all()
        strong = start[2].weight.abs().flatten().argsort(descending=True)[: mask.numel() // 2]
        assert set(gradient.flatten().nonzero().flatten().tolist()) == set(strong.tolist())
        sparsifier.step()
    values = sparsifier.state_dict()["reserve"]["2.weight"]["values"]
    moved = values != start[2].weight
    assert (moved & ~mask).sum() == mask.numel() // 4  # the reserve, and nothing of the rest
    assert not torch.equal(model[2].weight[mask], start[2].weight[mask])


def test_a_reserve_overtakes_and_brings_its_value_along():
    model, optimizer, sparsifier, _ = prepared()
    old = sparsifier.topology["0.weight"]
    sets = sparsifier.state_dict()["reserve"]["0.weight"]["values"]
    place = (~old).flatten().nonzero()[sets[~old].abs().argmax()].item()
    for _ in range(3):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        model[0].weight.grad.view(-1)[place] = -10.0
        optimizer.step()
        sparsifier.step()
    assert sparsifier.topology["0.weight"].flatten()[place]
    expected = sets.flatten()[place] + 3 * 0.1 * 10
    assert model[0].weight.flatten()[place].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_closure_trains_as_the_plain_loop_does(name):
    plain, closed = prepared(name), prepared(name)
    for step in range(7):
        train_step(plain[0], plain[1], step)
        plain[2].step()
        model, optimizer, sparsifier, _ = closed

        def closure(model=model, optimizer=optimizer, step=step):
            x, target = batch(step)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            return loss

        optimizer.step(closure)
        sparsifier.step()
    assert plain[2].digest == closed[2].digest
    assert torch.equal(plain[0][0].weight, closed[0][0].weight)


def test_a_closure_that_is_called_many_times_sees_active_weights_each_time():
    model, optimizer, sparsifier, _ = prepared("LBFGS")
    losses = []

    def closure():
        assert all(
            (model.get_parameter(name)[~mask] == 0).all()
            for name, mask in sparsifier.topology.items()
        )
        x, target = batch(0)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
        sparsifier.step()
    assert len(set(losses)) > 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_reserves_work_in_every_precision(dtype):
    model, optimizer, sparsifier, _ = prepared(dtype=dtype)
    before = sparsifier.digest
    for step in range(9):
        train_step(model, optimizer, step, dtype)
        sparsifier.step()
        for name, mask in sparsifier.topology.items():
            assert mask.sum() == mask.numel() // 4
            assert (model.get_parameter(name)[~mask] == 0).all()
    assert sparsifier.digest != before


def test_a_given_topology_is_the_start_of_a_reserve_too():
    mask = torch.rand(4, 12, generator=torch.Generator().manual_seed(1)) < 0.3
    model, optimizer, sparsifier, _ = prepared(topology={"2.weight": mask})
    assert torch.equal(sparsifier.topology["2.weight"], mask)
    train_step(model, optimizer)
    assert (model[2].weight.grad != 0).sum() == mask.sum() + 12


def test_a_reserve_larger_than_the_rest_trains_all():
    model, optimizer, _, _ = prepared(reserve=1.0)
    train_step(model, optimizer)
    assert (model[2].weight.grad != 0).all()


def test_a_diverged_weight_is_refused_and_leaves_the_topology_alone():
    model, optimizer, sparsifier, _ = prepared()
    train_step(model, optimizer)
    sparsifier.step()
    with torch.no_grad():
        model[2].weight[sparsifier.topology["2.weight"]] = torch.nan
    before = sparsifier.digest
    with pytest.raises(FreeTicketsError, match="the loss diverged"):
        sparsifier.explore(0.5)
    assert sparsifier.digest == before


def test_reserves_are_refused_where_they_can_not_be():
    with pytest.raises(FreeTicketsError, match="does not go with reserve"):
        prepared(backend="sparse")
    with pytest.raises(FreeTicketsError, match="reserve goes with neither"):
        prepared(pruning=lambda step: None)
    with pytest.raises(FreeTicketsError, match="reserve goes with neither"):
        prepared(redistribute="momentum")
    with pytest.raises(FreeTicketsError, match="reserve must lie between 0 and 1"):
        prepared(reserve=1.5)
    model, _, sparsifier, _ = prepared()
    assert not any(isinstance(module, SparseLayer) for module in model.modules())
    with pytest.raises(FreeTicketsError, match="can't be pruned"):
        sparsifier.prune(0.9)
    state = prepared(reserve=0.0, backend="masked")[2].state_dict()
    before = sparsifier.digest
    with pytest.raises(FreeTicketsError, match="has no reserve"):
        sparsifier.load_state_dict(state)
    assert sparsifier.digest == before
