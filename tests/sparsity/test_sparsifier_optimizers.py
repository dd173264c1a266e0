"""Every optimizer of torch keeps the promise: outside the topology, all is exactly zero."""

import pytest
import torch
from torch import nn

from freetickets.sparsity import Exploration

from .training import OPTIMIZERS, Run, assert_alike, matrices

# SparseAdam is for embeddings with sparse gradients, which are refused by name.
KNOWN = {n for n in dir(torch.optim) if n[0].isupper()} - {"Optimizer", "SparseAdam"}


def test_every_optimizer_of_torch_is_tried():
    assert set(OPTIMIZERS) >= KNOWN


def variants():
    for name in sorted(KNOWN & set(OPTIMIZERS)):
        yield name, "closure"
        if name != "LBFGS":
            yield name, "plain"
        if name not in ("LBFGS", "Muon"):
            yield name, "foreach"
        if name in ("SGD", "Adam", "AdamW"):
            yield name, "fused"


@pytest.mark.parametrize(("name", "variant"), list(variants()))
def test_inactive_weights_and_state_stay_zero_and_the_loss_falls(name, variant):
    more = {variant: True} if variant in ("foreach", "fused") else {}
    # Masked: sparse layers hold no weight outside that could move.
    run = Run(matrices, name, 0.6, exploration=Exploration(0.3, interval=5), more=more)
    counts = run.counts

    def loss_of():
        # Not even in between, while the optimizer tries steps, is there a weight outside.
        for n, mask in run.sparsifier.topology.items():
            assert (run.weight(n)[~mask] == 0).all()
        return run.backward()

    losses = []
    for step in range(1, 31):
        if variant == "closure":
            losses.append(run.optimizer.step(loss_of).item())
        else:
            losses.append(loss_of().item())
            run.optimizer.step()
        run.assert_zero_outside()
        assert run.sparsifier.step() == (step % 5 == 0)
        run.assert_zero_outside()
        assert run.counts == counts
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_trains_and_grows_as_the_plain_loop_does(name, keyword, backend):
    options = {"exploration": Exploration(interval=3), "backend": backend}
    plain, closed = (Run(matrices, name, 0.6, **options) for _ in range(2))
    plain.train(range(10))
    for step in range(10):
        if keyword:
            closed.optimizer.step(closure=lambda step=step: closed.backward(step))
        else:
            closed.optimizer.step(lambda step=step: closed.backward(step))
        closed.sparsifier.step()
    assert_alike(plain, closed)


def test_lbfgs_grows_by_the_gradient_before_its_step():
    run = Run(matrices, "LBFGS", 0.5, exploration=Exploration(interval=1))
    run.backward()
    dense = run.model[0].weight.grad.abs()
    mask = run.sparsifier.topology["0.weight"]
    run.train([0])
    new = run.sparsifier.topology["0.weight"] & ~mask
    assert dense[new].min() >= dense[~mask & ~new].max()


def test_new_weights_start_without_history():
    """The first update of a new weight is the optimizer's first, not the dense momentum's."""
    more = {"lr": 0.5, "nesterov": False, "weight_decay": 0.0}
    schedule = Exploration(interval=3)
    run = Run(lambda: nn.Linear(6, 6, False), "SGD", 0.5, more=more, exploration=schedule)
    network = run.model
    for _ in range(3):
        before = run.sparsifier.topology["weight"]
        network.weight.grad = torch.randn(6, 6) + 5 * ~before
        run.step()
    new = run.sparsifier.topology["weight"] & ~before
    assert new.sum() == 9
    assert (network.weight[new] == 0).all()
    network.weight.grad = gradient = torch.randn(6, 6)
    run.optimizer.step()
    assert torch.equal(network.weight[new], -0.5 * gradient[new])


def test_an_update_of_zero_by_zero_does_not_reach_inactive_weights():
    """Adam without its epsilon divides 0 by 0 wherever a gradient was never seen."""
    run = Run(optimizer="Adam", sparsity=0.6, exploration=None, more={"eps": 0.0})
    for step in range(5):
        run.train([step])
        run.assert_zero_outside()
        assert run.model(run.batch(0)).isfinite().all()
