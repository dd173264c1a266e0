"""Structured topologies: they hold from the first one on, through every exploration."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels.library import available
from freetickets.sparsity import GradualPruning, Sparsifier
from freetickets.sparsity.distribution import DEFAULT_SPARSITY

from .training import Run, has_structure, properties

STRUCTURES = ["2:4", "1:2", "block-4x4", "block-2x1", "fan-in"]
BACKENDS = ["masked", "sparse"] if available() else ["masked"]


def start(structure, sparsity=DEFAULT_SPARSITY, sizes=(4, 8, 3), **options):
    """The convolution fits all structures, the classifier only some."""
    channels, width, classes = sizes

    def network():
        return nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, classes),
        )  # fmt: skip

    options = {"distribution": "erk", **options}
    return Run(network, sparsity=sparsity, structure=structure, **options)


@properties(25)
@given(
    st.sampled_from(STRUCTURES),
    st.sampled_from(BACKENDS),
    st.tuples(st.sampled_from([4, 8]), st.sampled_from([8, 12]), st.sampled_from([3, 4])),
    st.floats(0.3, 0.9),
    st.floats(0.05, 1.0),
    st.sampled_from(["gradient", "random", "momentum"]),
    st.integers(0, 99),
)
def test_it_holds_with_exact_counts_after_every_exploration(
    structure, backend, sizes, sparsity, rate, grow, seed
):
    sparsity = 0.5 if ":" in structure else sparsity
    options = {"backend": backend, "grow": grow, "exploration": lambda _: rate}
    run = start(structure, sparsity, sizes, seed=seed, **options)
    counts, seen = run.counts, {run.digest}
    assert run.sparsifier.topology
    for step in range(5):
        run.train([step])
        assert run.counts == counts
        seen.add(run.digest)
        run.assert_zero_outside()
        for name, mask in run.sparsifier.topology.items():
            assert has_structure(structure, mask), name
    assert len(seen) > 1


def test_a_first_topology_is_random_and_uniform():
    """Each weight is active in half of the topologies, within five standard deviations."""
    for structure in (*STRUCTURES, "unstructured"):
        hits = 0
        for seed in range(200):
            layer = nn.Linear(8, 8)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            sparsifier = Sparsifier(layer, optimizer, 0.5, structure=structure, seed=seed)
            hits = hits + sparsifier.topology["weight"].int()
        assert (hits - 100).abs().max() < 5 * math.sqrt(50), structure


# ---- layers that do not fit


def test_layers_that_do_not_fit_stay_dense_outside_the_budget():
    run = start("block-4x4", 0.5, (3, 16, 10), distribution="uniform")
    assert run.counts == {"5.weight": 128}  # neither 3 channels nor 10 classes
    assert run.sparsifier.sparsity == 0.5
    before = run.model[0].weight.detach().clone()
    run.train(range(4))
    assert (run.model[0].weight != before).all()


@pytest.mark.parametrize(
    ("channels", "distribution", "sparse"),
    [(3, "uniform-dense-first", "57"), (4, "uniform-dense-first", "57"), (4, "erk", "057")],
)
def test_a_first_layer_that_does_not_fit_is_the_one_that_is_dense_first(
    channels, distribution, sparse
):
    run = start("2:4", sizes=(channels, 8, 3), distribution=distribution)
    assert list(run.sparsifier.topology) == [f"{layer}.weight" for layer in sparse]


# ---- the sparsity of N:M


@pytest.mark.parametrize("sparsity", [DEFAULT_SPARSITY, 0.5, 0.505])
def test_n_of_m_has_its_own_sparsity_in_every_layer_unless_another_is_asked_for(sparsity):
    run = start("2:4", sparsity)
    assert all(run.counts[name] == math.prod(shape) / 2 for name, shape in run.shapes.items())
    assert start("1:4").sparsifier.sparsity == 0.75


def test_a_map_chooses_the_layers_of_n_of_m():
    run = start("2:4", {"5": 0.5, "7": 0.0})
    assert list(run.sparsifier.topology) == ["5.weight"]
    assert run.counts["5.weight"] == 64


@pytest.mark.parametrize(
    ("structure", "sparsity", "match"),
    [
        ("2:4", 0.9, "'2:4' has sparsity 0.5, not 0.9: set sparsity to"),
        ("2:4", 0.0, "'2:4' has sparsity 0.5, not 0.0"),
        ("2:4", {"5": 0.8}, "sparsity 0.5, not 0.8"),
        ("block-64x64", 0.5, "no layer can have structure 'block-64x64', from"),
    ],
)
def test_what_a_structure_can_not_have_is_refused(structure, sparsity, match):
    with pytest.raises(FreeTicketsError, match=match):
        start(structure, sparsity)


# ---- given and saved topologies


def test_given_masks_are_checked():
    good = start("fan-in", 0.7).sparsifier.topology
    run = start("fan-in", seed=5, topology=good)
    assert all(torch.equal(run.sparsifier.topology[name], mask) for name, mask in good.items())
    run.train(range(6))
    assert all(run.counts[name] == int(mask.sum()) for name, mask in good.items())
    whole = {**good, "7.weight": torch.ones(3, 16, dtype=torch.bool)}
    assert "7.weight" not in start("fan-in", topology=whole).sparsifier.topology
    bad = {"5.weight": good["5.weight"].clone()}
    bad["5.weight"][0] = True
    misfit = {"7.weight": torch.arange(3 * 16).view(3, 16) < 16}
    for structure, masks in (("fan-in", bad), ("block-4x4", misfit)):
        match = f"'{next(iter(masks))}' does not have the structure '{structure}': give"
        with pytest.raises(FreeTicketsError, match=match):
            start(structure, topology=masks)


def test_a_saved_topology_without_the_structure_is_refused_and_changes_nothing():
    run, other = start("fan-in", 0.7), start("unstructured", 0.7)
    digest = run.digest
    state = other.sparsifier.state_dict()
    for key in ("topology", "ever_active"):
        state[key] = {name: state[key][name] for name in run.sparsifier.topology}
    with pytest.raises(FreeTicketsError, match="does not have the structure 'fan-in'"):
        run.sparsifier.load_state_dict(state)
    assert run.digest == digest


# ---- what does not go together


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pruning": GradualPruning(0.9, end=10)}, "gradual pruning"),
        ({"redistribute": "momentum"}, "redistribute='momentum'"),
        ({"reserve": 0.1}, "reserve=0.1"),
        ({"prune_scope": "global"}, "prune_scope='global'"),
        ({"prune_scope": "threshold"}, "prune_scope='threshold'"),
        ({"grow": {"gradient": 1, "random": 1}}, "a mixture of growth scores"),
    ],
)
def test_what_would_break_a_structure_is_refused_in_one_line(options, match):
    expected = f"^structure 'fan-in' does not go with {match}: leave one of them out$"
    with pytest.raises(FreeTicketsError, match=expected):
        start("fan-in", **options)


def test_pruning_by_hand_is_refused():
    with pytest.raises(FreeTicketsError, match="structure 'fan-in' can't be pruned"):
        start("fan-in").sparsifier.prune(0.9)
