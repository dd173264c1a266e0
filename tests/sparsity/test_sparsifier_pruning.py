"""Given topologies and gradual pruning: against plain Python, and whatever the schedule is."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.kernels.adopted import AdoptedLayer
from freetickets.kernels.layers import SparseLayer
from freetickets.sparsity import Exploration, GradualPruning, allocate

from .training import Run, generator, mlp, properties


def prepared(sparsity=0.0, **options):
    options = {"exploration": None, "distribution": "erk", "backend": "auto", **options}
    return Run(mlp, "Adam", sparsity, **options)


# ---- a given topology


def given_masks():
    shapes, source = {"4.weight": (6, 18), "0.weight": (24, 12)}, generator(7)
    return {name: torch.rand(shape, generator=source) < 0.3 for name, shape in shapes.items()}


def test_a_given_topology_is_where_training_starts_and_keeps_its_counts(backend):
    masks, fresh = given_masks(), Run(sparsity=None)
    run = prepared(0.99, topology=masks, backend=backend, exploration=Exploration(interval=1))
    assert list(run.sparsifier.topology) == ["0.weight", "4.weight"]
    for mask in masks.values():
        mask.fill_(True)  # what was given stays the giver's
    for name, mask in given_masks().items():
        assert torch.equal(run.sparsifier.topology[name], mask)
        assert torch.equal(run.weight(name), fresh.weight(name) * mask)
    assert torch.equal(run.weight("2.weight"), fresh.weight("2.weight"))
    assert all(run.train(range(4)))
    run.assert_zero_outside()
    for name, mask in given_masks().items():
        explored = run.sparsifier.topology[name]
        assert explored.sum() == mask.sum()
        assert not torch.equal(explored, mask)


# ---- pruning


def test_global_pruning_is_one_threshold_which_may_empty_a_layer():
    run = prepared(prune_scope="global")
    run.train(range(1))
    before = torch.cat([run.weight(name).flatten().abs() for name in run.shapes])
    run.sparsifier.prune(0.75)
    after = torch.cat([mask.flatten() for mask in run.sparsifier.topology.values()])
    strongest = before.topk(round(0.25 * len(before))).indices
    assert set(after.nonzero().flatten().tolist()) == set(strongest.tolist())
    with torch.no_grad():
        run.model[4].weight *= 1e-6
    run.sparsifier.prune(0.9)
    assert run.counts["4.weight"] == 0
    run.train(range(1))
    run.assert_zero_outside()


def test_a_prune_score_sees_its_steps_gradient_and_held_layers_are_left(refused):
    seen = []

    def saliency(view):
        seen.append(view.gradient is not None)
        return (view.weight * view.gradient).abs()

    prepared(pruning=GradualPruning(0.5, end=4, interval=2), prune=saliency).train(range(1, 6))
    assert seen == [True] * 6
    refused("no dense gradient", prepared(prune=saliency).sparsifier.prune, 0.5)
    run = prepared()
    first = run.sparsifier
    run.sparsify(0.5, include="0")
    refused(r"another sparsifier holds '0\.weight'", first.prune, 0.5)
    assert (run.model[2].weight != 0).all()


def test_auto_masks_while_pruning_also_to_a_sparsity_of_each_layer():
    run = prepared(0.9, pruning=lambda step: None, distribution="uniform")
    assert not any(isinstance(m, (SparseLayer, AdoptedLayer)) for m in run.model.modules())
    run = prepared(prune_scope="global")
    run.sparsifier.prune({"0": 0.5, "4.weight": 0.75})
    assert run.counts == {"0.weight": 144, "2.weight": 432, "4.weight": 27}


def test_sparse_layers_are_not_pruned_by_hand(refused, backend):
    run = prepared(0.7, backend=backend)
    if backend == "sparse":
        refused("compressed layer", run.sparsifier.prune, 0.9)
        return
    run.sparsifier.prune(0.8)
    assert list(run.sparsifier.topology) == list(run.shapes)  # also those that were dense
    before = run.counts
    assert before == allocate(run.shapes, 0.8)
    run.train(range(1))
    run.assert_zero_outside()
    refused(r"can't prune to sparsity 0\.3.* 0\.7995 already", run.sparsifier.prune, 0.3)
    run.sparsifier.prune(0.8)
    assert run.counts == before


@properties(25)
@given(
    st.lists(st.floats(0, 0.85), min_size=1, max_size=5).map(sorted),
    st.sampled_from(["erk", "uniform", "er"]),
    st.sampled_from(["layer", "global"]),
)
def test_counts_only_shrink_and_the_total_is_what_was_asked_for(targets, distribution, scope):
    options = {"distribution": distribution, "prune_scope": scope}
    run = prepared(pruning=lambda step: targets[step - 1], **options)
    size = sum(map(math.prod, run.shapes.values()))
    for step, target in enumerate(targets):
        previous = run.counts
        run.train([step])
        assert all(count <= previous[name] for name, count in run.counts.items())
        # ERK's rounding may give a layer one weight more at a higher sparsity.
        wanted = min(sum(previous.values()), round((1 - target) * size))
        assert abs(sum(run.counts.values()) - wanted) <= (scope == "layer")
        run.assert_zero_outside()


def test_the_state_of_a_pruned_run_is_refused_by_sparse_layers(refused, backend):
    pruned = prepared()
    pruned.sparsifier.prune(0.9)
    state = pruned.sparsifier.state_dict()
    mask = pruned.sparsifier.topology["2.weight"]
    other = prepared(topology={"2.weight": mask}, backend=backend)
    if backend == "sparse":
        refused(r"another network: see '0\.weight'", other.sparsifier.load_state_dict, state)
    else:
        other.sparsifier.load_state_dict(state)
        assert other.digest == pruned.digest
