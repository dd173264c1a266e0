"""Every optimizer of torch keeps the promise: outside the topology, all is exactly zero."""

import copy

import pytest
import torch
from torch import nn

from freetickets.kernels.adopted import AdoptedLinear
from freetickets.kernels.library import available
from freetickets.sparsity import Exploration, Sparsifier

SETTINGS = {
    "ASGD": {"lr": 1e-2, "weight_decay": 1e-2},
    "Adadelta": {"lr": 1.0, "weight_decay": 1e-2},
    "Adafactor": {"lr": 1e-2},
    "Adagrad": {"lr": 1e-2, "initial_accumulator_value": 0.1},
    "Adam": {"lr": 1e-2, "amsgrad": True},
    "AdamW": {"lr": 1e-2, "weight_decay": 0.1},
    "Adamax": {"lr": 1e-2},
    "LBFGS": {"lr": 0.5, "max_iter": 4},
    "Muon": {"lr": 1e-2, "weight_decay": 0.1},
    "NAdam": {"lr": 1e-2},
    "RAdam": {"lr": 1e-2},
    "RMSprop": {"lr": 1e-3, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 1e-3},
    "SGD": {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
}
# SparseAdam is for embeddings with sparse gradients, which are refused by name.
KNOWN = {n for n in dir(torch.optim) if n[0].isupper()} - {"Optimizer", "SparseAdam"}


def problem():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 24, bias=False), nn.ReLU(), nn.Linear(24, 12, bias=False)
    )  # no bias: Muon takes matrices only
    inputs = torch.randn(64, 12)
    return model, inputs, inputs.flip(1) * 0.5


def inactive_are_zero(sparsifier, model, optimizer):
    for name, mask in sparsifier.topology.items():
        weight = model.get_parameter(name)
        assert (weight[~mask] == 0).all()
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, torch.Tensor) and value.shape == weight.shape:
                assert (value[~mask] == 0).all(), key


def test_every_optimizer_of_torch_is_tried():
    assert set(SETTINGS) >= KNOWN


def variants():
    for name in sorted(KNOWN & set(SETTINGS)):
        yield name, "closure"
        if name != "LBFGS":
            yield name, "plain"
        if name not in ("LBFGS", "Muon"):
            yield name, "foreach"


@pytest.mark.parametrize(("name", "variant"), list(variants()))
def test_inactive_weights_and_state_stay_zero_and_the_loss_falls(name, variant):
    model, inputs, targets = problem()
    options = SETTINGS[name] | ({"foreach": True} if variant == "foreach" else {})
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    sparsifier = Sparsifier(
        model,
        optimizer,
        0.6,
        distribution="uniform",
        exploration=Exploration(0.3, interval=5),
        backend="masked",  # sparse layers hold no weight outside that could move
    )
    counts = [row.nonzeros for row in sparsifier.statistics()]

    def loss_of():
        optimizer.zero_grad()
        # Not even in between, while the optimizer tries steps, is there a weight outside.
        for n, mask in sparsifier.topology.items():
            assert (model.get_parameter(n)[~mask] == 0).all()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    losses = []
    for step in range(1, 31):
        if variant == "closure":
            losses.append(optimizer.step(loss_of).item())
        else:
            losses.append(loss_of().item())
            optimizer.step()
        inactive_are_zero(sparsifier, model, optimizer)
        assert sparsifier.step() == (step % 5 == 0)
        inactive_are_zero(sparsifier, model, optimizer)
        assert [int(mask.sum()) for mask in sparsifier.topology.values()] == counts
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_trains_and_grows_as_the_plain_loop_does(name, keyword, backend):
    model, inputs, targets = problem()
    ends = []
    for closure_style in (False, True):
        network = copy.deepcopy(model)
        optimizer = getattr(torch.optim, name)(network.parameters(), **SETTINGS[name])
        sparsifier = Sparsifier(
            network, optimizer, 0.6, exploration=Exploration(interval=3), backend=backend
        )

        def loss_of(network=network, optimizer=optimizer):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(inputs), targets)
            loss.backward()
            return loss

        for _ in range(10):
            if not closure_style:
                loss = loss_of()
                optimizer.step()
            elif keyword:
                loss = optimizer.step(closure=loss_of)
            else:
                loss = optimizer.step(loss_of)
            sparsifier.step()
        ends.append((sparsifier.digest, loss.item(), network[0].weight.detach()))
    assert ends[0][:2] == ends[1][:2]
    assert torch.equal(ends[0][2], ends[1][2])


def test_lbfgs_grows_by_the_gradient_before_its_step():
    model, inputs, targets = problem()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    sparsifier = Sparsifier(
        model, optimizer, 0.5, exploration=Exploration(interval=1), distribution="uniform"
    )
    nn.functional.mse_loss(model(inputs), targets).backward()
    dense = model[0].weight.grad.abs()

    def loss_of():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.step(loss_of)
    mask = sparsifier.topology["0.weight"]
    sparsifier.step()
    new = sparsifier.topology["0.weight"] & ~mask
    assert dense[new].min() >= dense[~mask & ~new].max()


def test_new_weights_start_without_history():
    """The first update of a new weight is the optimizer's first, not the dense momentum's."""
    network = nn.Linear(6, 6, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    sparsifier = Sparsifier(network, optimizer, 0.5, exploration=Exploration(interval=3))
    for _ in range(3):
        before = sparsifier.topology["weight"]
        network.weight.grad = torch.randn(6, 6) + 5 * ~before
        optimizer.step()
        sparsifier.step()
    new = sparsifier.topology["weight"] & ~before
    assert new.sum() == 9
    assert (network.weight[new] == 0).all()
    network.weight.grad = gradient = torch.randn(6, 6)
    optimizer.step()
    assert torch.equal(network.weight[new], -0.5 * gradient[new])


def test_an_update_of_zero_by_zero_does_not_reach_inactive_weights():
    """Adam without its epsilon divides 0 by 0 wherever a gradient was never seen."""
    model, inputs, targets = problem()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
    sparsifier = Sparsifier(model, optimizer, 0.6, exploration=None, backend="masked")
    for _ in range(5):
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        inactive_are_zero(sparsifier, model, optimizer)
        assert model(inputs).isfinite().all()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_fused_optimizers_keep_the_promise(name):
    model, inputs, targets = problem()
    options = SETTINGS[name] | {"fused": True}
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    sparsifier = Sparsifier(
        model, optimizer, 0.6, exploration=Exploration(interval=2), backend="masked"
    )
    for _ in range(6):
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        inactive_are_zero(sparsifier, model, optimizer)
        sparsifier.step()
        inactive_are_zero(sparsifier, model, optimizer)
        optimizer.zero_grad()


@pytest.mark.skipif(not available(), reason="the sparse kernels are not built")
@pytest.mark.parametrize("name", sorted(KNOWN & set(SETTINGS)))
def test_a_loop_with_two_lines_trains_like_masked_under_auto(name, skipping_zeros):
    ends = []
    for backend in ("auto", "masked"):
        model, inputs, targets = problem()
        optimizer = getattr(torch.optim, name)(model.parameters(), **SETTINGS[name])
        sparsifier = Sparsifier(
            model, optimizer, 0.6, distribution="uniform",
            exploration=Exploration(0.3, interval=3), backend=backend,
        )  # fmt: skip

        def loss_of(model=model, optimizer=optimizer, inputs=inputs, targets=targets):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        for _ in range(7):
            optimizer.step(loss_of)
            sparsifier.step()
        inactive_are_zero(sparsifier, model, optimizer)
        assert isinstance(model[0], AdoptedLinear) == (backend == "auto")
        ends.append((sparsifier.digest, model.state_dict()))
    (mine, weights), (theirs, expected) = ends
    assert mine == theirs
    for key, value in expected.items():
        torch.testing.assert_close(weights[key], value, rtol=2e-3, atol=1e-4)
