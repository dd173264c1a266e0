"""Reserves: weights that train although the network does not see them."""

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels.layers import SparseLayer
from freetickets.sparsity import Exploration

from .training import Run, assert_alike, generator


def prepared(optimizer="SGD", dtype=torch.float32, sparsity=0.75, **options):
    """A quarter of the weights is active, and a quarter is the reserve."""

    def network():
        return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4)).to(dtype)

    more = {"momentum": 0, "nesterov": False, "weight_decay": 0} if optimizer == "SGD" else {}
    options = {"exploration": Exploration(interval=3), "reserve": 0.25, **options}
    return Run(network, optimizer, sparsity, more={"lr": 0.1, **more}, backend="auto", **options)


def test_the_network_sees_active_weights_only_and_the_next_strongest_train():
    run, start = prepared(exploration=None), prepared(sparsity=None).model[2].weight
    layer, mask, seen = run.model[2], run.sparsifier.topology["2.weight"], []
    layer.register_forward_pre_hook(lambda layer, _: seen.append(layer.weight.detach().clone()))
    strong = start.abs().flatten().argsort(descending=True)[: mask.numel() // 2]
    for step in range(4):
        run.train([step])
        assert (seen[-1][~mask] == 0).all()
        gradient = layer.weight.grad
        assert (gradient[mask] != 0).all()
        assert set(gradient.flatten().nonzero().flatten().tolist()) == set(strong.tolist())
    values = run.sparsifier.state_dict()["reserve"]["2.weight"]["values"]
    moved = values != start
    assert (moved & ~mask).sum() == mask.numel() // 4  # the reserve, and nothing of the rest
    assert not torch.equal(layer.weight[mask], start[mask])


def test_a_closure_trains_as_the_plain_loop_and_sees_active_weights_in_each_call():
    plain, closed = prepared("Adam"), prepared("Adam")
    plain.train(range(7))
    for step in range(7):
        closed.optimizer.step(lambda step=step: closed.backward(step))
        closed.sparsifier.step()
    assert_alike(plain, closed)
    run = prepared("LBFGS")
    losses = []

    def closure():
        for name, mask in run.sparsifier.topology.items():
            assert (run.weight(name)[~mask] == 0).all()
        losses.append(run.backward())
        return losses[-1]

    for _ in range(4):
        run.optimizer.step(closure)
        run.sparsifier.step()
    assert len({loss.item() for loss in losses}) > 8


def test_a_given_topology_has_a_reserve_and_what_is_refused_leaves_it_alone(refused):
    mask = torch.rand(4, 12, generator=generator(1)) < 0.3
    for reserve, trained in ((0.25, int(mask.sum()) + 12), (1.0, 48)):
        run = prepared(topology={"2.weight": mask}, reserve=reserve)
        assert torch.equal(run.sparsifier.topology["2.weight"], mask)
        run.train(range(1))
        assert (run.model[2].weight.grad != 0).sum() == trained
    run = prepared()
    assert not any(isinstance(module, SparseLayer) for module in run.model.modules())
    run.train(range(1))
    before = run.digest
    refused("can't be pruned", run.sparsifier.prune, 0.9)
    with pytest.raises(FreeTicketsError, match="has no reserve"):
        run.sparsifier.load_state_dict(prepared(reserve=0.0).sparsifier.state_dict())
    with torch.no_grad():
        run.model[2].weight[run.sparsifier.topology["2.weight"]] = torch.nan
    refused("the loss diverged", run.sparsifier.explore, 0.5)
    assert run.digest == before
