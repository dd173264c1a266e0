"""Topologies that a network has already are taken over, or not destroyed in silence."""

import warnings

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration

from .training import Run, assert_alike, built, two_backends

ON_AND_OFF = torch.arange(200).view(20, 10) % 2 == 0


def network():
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))


def start(seed=0, backend="masked", **options):
    options = {"exploration": Exploration(interval=5), "backend": backend, **options}
    return Run(network, "Adam", seed=seed, **options)


def bare(seed=0):
    """Without a sparsifier yet."""
    return Run(network, "Adam", None, seed=seed)


def sparsify(run, seed, backend, **options):
    run.sparsify(exploration=Exploration(interval=5), seed=seed, backend=backend, **options)


def trained(steps=7, backend="masked"):
    run = start(backend=backend)
    run.train(range(steps))
    return run


def assert_go_on_alike(run, other, step):
    for each in (run, other):
        each.train(range(step, 16))
    assert_alike(run, other)


# ---- topology="given"


def test_zeros_of_a_network_are_taken_over_or_their_loss_announced(backend):
    source, run = trained(4), bare(1)
    run.load(source.state(), "model")
    sparsify(run, 1, backend, topology="given")
    assert run.digest == source.digest
    assert torch.equal(run.model[0].weight, source.model[0].weight)
    counts = run.counts
    run.train(range(12))
    assert run.counts == counts
    run, other = trained(), start(3)
    run.sparsifier.detach()
    with pytest.warns(UserWarning, match="which a new random one replaces: pass topology='given'"):
        sparsify(run, 5, backend)
    run.sparsifier.detach()
    sparsify(run, 5, backend, topology=other.sparsifier.topology)
    assert run.digest == other.digest


# ---- a topology that is about to be destroyed


@pytest.mark.parametrize("zeros", ["a layer that starts at zero", "a few by chance"])
def test_zeros_that_are_no_topology_are_not_worth_a_word(zeros):
    run = bare()
    with torch.no_grad():
        (run.model[0].weight[0] if zeros == "a few by chance" else run.model[2].weight).zero_()
    sparsify(run, 0, "masked")


# ---- set_topology


@two_backends
def test_another_topology_keeps_what_lies_inside_and_zeroes_the_rest(backend):
    run, source, other = trained(3, backend), trained(), start(3)
    run.load(source.state(), "model")  # weights of a moment ago are kept as any others
    run.sparsifier.set_topology(other.sparsifier.topology)
    assert run.digest == other.digest
    weight = source.model[0].weight * other.sparsifier.topology["0.weight"]
    assert torch.equal(run.model[0].weight, weight)
    run.assert_zero_outside()
    run.train(range(7, 14))
    run.assert_zero_outside()


@two_backends
def test_another_topology_may_have_more_weights_or_all_and_is_resumed(backend):
    run = trained(backend=backend)
    whole = torch.ones(10, 20).bool()
    run.sparsifier.set_topology({"0.weight": ON_AND_OFF, "2.weight": whole})
    assert list(run.sparsifier.topology) == ["0.weight"]
    assert run.counts == {"0.weight": 100, "2.weight": 200}
    run.train(range(7, 9))
    run.sparsifier.set_topology({"2.weight": ON_AND_OFF.T})  # the other one stays as it is
    assert run.counts == {"0.weight": 100, "2.weight": 100}
    resumed = start(9, backend)
    resumed.load(run.state())
    assert_go_on_alike(run, resumed, 9)


@built
def test_layers_that_hold_only_active_weights_keep_their_number():
    run, resumed = trained(5, "sparse"), bare(9)
    resumed.load(run.state(), "model", "optimizer")
    # Which zeros are weights that were grown a moment ago, only the saved topology tells.
    sparsify(resumed, 9, "sparse", topology="given")
    with pytest.raises(FreeTicketsError, match=r"can't have 60: make .* or with that topology"):
        resumed.load(run.state(), "sparsifier")
    other = start(3)
    run.sparsifier.set_topology(other.sparsifier.topology)
    assert run.digest == other.digest
    with pytest.raises(FreeTicketsError, match=r"holds 60 weights and can't have 100: make the"):
        run.sparsifier.set_topology({"0.weight": ON_AND_OFF})
    assert run.digest == other.digest


def test_a_topology_that_can_not_be_is_refused(refused):
    for topology, options, message in (
        ({"0.weights": ON_AND_OFF}, {}, "unknown layer in the topology: '0.weights': did you mean"),
        ({"0.weight": ON_AND_OFF.float()}, {}, r"float32 .* must be torch.bool of shape \(20, 10"),
        ({"0.weight": ON_AND_OFF.T}, {}, r"must be torch.bool of shape \(20, 10\)"),
        ({"0.weight": torch.zeros(20, 10).bool()}, {}, "without a single weight"),
        ({"2.weight": torch.ones(10, 20).triu().bool()}, {"structure": "2:4"}, "2:4"),
        ({"0.weight": ON_AND_OFF}, {"reserve": 0.1}, "chooses its topology by"),
    ):
        run = bare()
        run.sparsify(0.5, **options)
        refused(message, run.sparsifier.set_topology, topology)
        if not options:
            refused(message, start, topology=topology)


# ---- the order of loading


# After 5 steps half of the active weights are new, and zero.
killed = pytest.mark.parametrize("killed_after", [5, 7])


@killed
def test_the_sparsifiers_state_may_be_loaded_first(killed_after, backend):
    run, resumed = trained(killed_after, backend), start(9, backend)
    resumed.load(run.state(), "sparsifier", "model", "optimizer")
    assert_go_on_alike(run, resumed, killed_after)


@two_backends
@killed
@pytest.mark.parametrize("kind", ["saved", "given"])
def test_a_sparsifier_over_loaded_weights_resumes_the_saved_topology(kind, killed_after, backend):
    run, resumed = trained(killed_after, backend), bare(9)
    state = run.state()
    resumed.load(state, "model", "optimizer")
    topology = "given" if kind == "given" else state["sparsifier"]["topology"]
    sparsify(resumed, 9, backend, topology=topology)
    resumed.load(state, "sparsifier")
    assert_go_on_alike(run, resumed, killed_after)


@killed
def test_weights_destroyed_by_a_fresh_topology_are_asked_for_again(refused, killed_after, backend):
    run, resumed = trained(killed_after, backend), bare(9)
    state = run.state()
    resumed.load(state, "model", "optimizer")
    with pytest.warns(UserWarning, match="load the weights after making the Sparsifier"):
        sparsify(resumed, 9, backend)
    before = resumed.digest
    refused("load the network and the optimizer again", resumed.load, state, "sparsifier")
    assert resumed.digest == before
    resumed.load(state)  # as the error says
    assert_go_on_alike(run, resumed, killed_after)


def test_a_fresh_topology_that_is_the_saved_one_destroys_nothing(backend):
    run, resumed = trained(4, backend), bare(9)
    resumed.load(run.state(), "model", "optimizer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsify(resumed, 0, backend)  # the seed of the saved run, which has not explored yet
    resumed.load(run.state(), "sparsifier")
    assert_alike(run, resumed)


@killed
def test_weights_of_another_topology_are_refused_at_the_next_step(refused, killed_after, backend):
    run, other = trained(killed_after, backend), start(9, backend)
    other.load(run.state(), "model")
    refused("another topology", other.train, range(1))
    if backend != "sparse":
        assert torch.equal(other.model[0].weight, run.model[0].weight)  # nothing is lost
    other.load(run.state(), "optimizer", "sparsifier")  # as the error says
    assert_go_on_alike(run, other, killed_after)


@pytest.mark.parametrize("other", ["a few weights", "a denser topology", "another checkpoint"])
def test_weights_of_other_topologies_are_noticed(other, backend):
    run = start(9, backend, exploration=None)
    run.train(range(4))
    state = run.state() if other == "a few weights" else trained(4).state()
    if other == "a few weights":  # of a later exploration
        run.sparsifier.keep_gradients()
        run.train(range(4, 5))
        run.sparsifier.explore(0.02)
        run.train(range(5, 6))
    elif other == "a denser topology":
        denser = start(9)
        denser.sparsifier.set_topology({"0.weight": ON_AND_OFF})
        denser.model[0].reset_parameters()
        denser.train(range(1))
        state = denser.state()
    run.load(state, "model")
    late = trained(14).state()
    with pytest.raises(FreeTicketsError, match="another topology"):
        run.load(late, "sparsifier") if "check" in other else run.train(range(6, 7))


@two_backends
@pytest.mark.parametrize("change", ["initialise", "one layer", "noise", "mean"])
def test_what_no_topology_explains_is_set_to_zero_outside(change, backend):
    run = trained(7 if change in ("noise", "mean") else 5, backend)  # 5: just explored
    weight, old = run.model[0].weight, trained(4).model[0].weight
    with torch.no_grad():
        if change == "noise":
            weight.add_(torch.randn(20, 10), alpha=1e-3)
        elif change == "mean":  # of weights before and after an exploration, as Lookahead makes
            weight.lerp_(old, 0.5)
        else:
            nn.init.normal_(weight)
            if change == "initialise":
                run.model[2].reset_parameters()
    run.train(range(7, 8))
    run.assert_zero_outside()
