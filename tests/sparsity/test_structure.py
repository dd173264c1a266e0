"""Structures by themselves, and as a network has them: from the first topology on, for good."""

import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels.library import available
from freetickets.sparsity.distribution import DEFAULT_SPARSITY
from freetickets.sparsity.structure import Blocks, FanIn, NOfM, Unstructured, parse_structure
from freetickets.sparsity.topology import select_top

from .training import Run, generator, has_structure, properties

# Each with a shape small enough to look at all its masks.
TINY = [
    ("unstructured", (3, 3)), ("2:4", (2, 4)), ("1:3", (3, 3)), ("1:2", (2, 1, 2, 2)),
    ("block-2x2", (4, 4)), ("block-2x1", (4, 3)), ("block-2x1", (2, 2, 2)),
    ("fan-in", (3, 3)), ("fan-in", (2, 2, 2)),
]  # fmt: skip
tiny = pytest.mark.parametrize(("name", "shape"), TINY)
each = pytest.mark.parametrize("name", ["2:4", "block-2x2", "fan-in", "unstructured"])


def every_mask(shape):
    size = math.prod(shape)
    return ((torch.arange(2**size)[:, None] >> torch.arange(size)) & 1).bool().view(-1, *shape)


@functools.cache
def masks_of(name, shape):
    """All masks that have the structure, by brute force."""
    return [mask for mask in every_mask(shape) if has_structure(name, mask)]


def test_a_structure_is_read_and_written_and_others_are_refused(refused):
    structures = {
        "unstructured": Unstructured(), "2:4": NOfM(2, 4), "16:32": NOfM(16, 32),
        "block-4x4": Blocks(4, 4), "block-8x1": Blocks(8, 1), "fan-in": FanIn(),
    }  # fmt: skip
    for text, structure in structures.items():
        assert parse_structure(text) == structure
        assert str(structure) == text
    for text, message in {
        "fanin": "did you mean 'fan-in'", "rows": "known: unstructured, fan-in, 2:4, block-4x4",
        "5:4": "needs N from 1 to M, not '5:4'", "block-0x4": "at least one weight, not 'block",
    }.items():  # fmt: skip
        refused(message, parse_structure, text)


@pytest.mark.parametrize(
    ("name", "shape"), [("2:4", (2, 4)), ("block-2x1", (4, 3)), ("fan-in", (3, 4))]
)
def test_check_follows_the_definition_on_every_mask(name, shape):
    structure = parse_structure(name)
    for mask in every_mask(shape):
        assert structure.check(mask) == has_structure(name, mask)


@tiny
def test_the_rounded_count_is_the_nearest_that_a_mask_can_have(name, shape):
    structure = parse_structure(name)
    reachable = {int(mask.sum()) for mask in masks_of(name, shape)} - {0}
    for count in range(1, math.prod(shape) + 1):
        rounded = structure.round_count(shape, count)
        assert rounded in reachable
        assert abs(rounded - count) == min(abs(other - count) for other in reachable)
        assert structure.round_count(shape, rounded) == rounded


@tiny
@properties(60)
@given(data=st.data())
def test_the_selected_mask_holds_what_is_kept_and_has_the_highest_score(name, shape, data):
    structure, size = parse_structure(name), math.prod(shape)
    # Whole numbers, so that sums are exact and ties are common.
    values = st.lists(st.integers(-3, 3), min_size=size, max_size=size)
    scores, prune = (torch.tensor(data.draw(values)).float().view(shape) for _ in range(2))
    mask = data.draw(st.sampled_from([mask for mask in masks_of(name, shape) if mask.any()]))
    count = int(mask.sum())
    kept = structure.survive(prune, data.draw(st.integers(0, count)), mask, generator())
    assert not (kept & ~mask).any()
    blocked = torch.tensor(data.draw(st.lists(st.integers(0, size - 1), max_size=3)))
    candidates = ~kept & ~torch.isin(torch.arange(size), blocked).view(shape)
    allowed = [
        other
        for other in masks_of(name, shape)
        if int(other.sum()) == count and not ((kept & ~other) | (other & ~kept & ~candidates)).any()
    ]
    if not allowed:
        with pytest.raises(FreeTicketsError, match="too few candidates"):
            structure.select(scores, count, candidates, generator(), kept)
        return
    chosen = structure.select(scores, count, candidates, generator(), kept)
    assert structure.check(chosen)
    assert any(torch.equal(chosen, mask) for mask in allowed)
    assert scores[chosen].sum() == max(scores[mask].sum() for mask in allowed)


def test_survivors_are_the_best_units_also_where_single_precision_fails():
    scores = torch.tensor([[9.0, 0.0, 2.0, 3.0], [0.0, 0.0, 3.0, 4.0]])
    everywhere = torch.ones(2, 4, dtype=torch.bool)
    for count, blocks in [(8, [1, 1]), (7, [0, 1]), (4, [0, 1]), (3, [0, 0])]:
        kept = Blocks(2, 2).survive(scores, count, everywhere, generator())
        assert kept.tolist() == 2 * [[bool(blocks[i // 2]) for i in range(4)]]
        kept = FanIn().survive(scores, count, everywhere, generator())
        assert torch.equal(kept, select_top(scores, count, everywhere, generator()))
    order = torch.randperm(24, generator=generator()).view(4, 6)
    scores = 1 + order.double() * 1e-12
    chosen = FanIn().select(scores, 8, torch.ones(4, 6, dtype=torch.bool), generator())
    best = torch.zeros(4, 6, dtype=torch.bool).scatter_(1, order.topk(2, dim=1).indices, True)
    assert torch.equal(chosen, best)


@each
def test_ties_are_broken_at_random_and_by_the_generator_alone(name):
    structure, zeros = parse_structure(name), torch.zeros(4, 8)
    everywhere = torch.ones(4, 8, dtype=torch.bool)
    source = generator()
    hits = sum(structure.select(zeros, 16, everywhere, source).int() for _ in range(1000))
    assert hits.min() > 420
    assert hits.max() < 580
    again = [structure.select(zeros, 16, everywhere, generator(3)) for _ in range(2)]
    assert torch.equal(*again)


@each
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_selection_follows_the_entries_whatever_the_memory_layout_and_type(name, dtype):
    structure = parse_structure(name)
    scores = torch.randperm(8 * 4 * 9, generator=generator()).div(2, rounding_mode="floor")
    scores = scores.view(8, 4, 3, 3).to(dtype)
    everywhere = torch.ones_like(scores, dtype=torch.bool)
    expected = structure.select(scores, 144, everywhere, generator(1))
    assert expected.sum() == 144
    other = scores.to(memory_format=torch.channels_last)
    assert torch.equal(structure.select(other, 144, everywhere, generator(1)), expected)


def test_a_selection_that_cannot_be_is_refused():
    for name, shape, count, rows_kept, message in (
        ("2:4", (9, 3, 3, 3), 16, 0, r"2:4 needs a multiple of 4 inputs, not shape \(9, 3, 3, 3\)"),
        ("block-4x4", (10, 64), 16, 0, r"of 4 outputs and 4 inputs, not shape \(10, 64\)"),
        ("block-4x4", (64, 3, 3, 3), 16, 0, "exclude it"),
        ("2:4", (8, 8), 25, 0, "have 25 weights.*nearest count is 32"),
        ("block-4x4", (8, 8), 25, 0, "have 25 weights.*nearest count is 32"),
        ("fan-in", (8, 8), 25, 0, "have 25 weights.*nearest count is 24"),
        ("2:4", (4, 4), 8, 1, "keep a part of a mask of its"),
        ("fan-in", (4, 4), 8, 1, "keep a part of a mask of its"),
        ("unstructured", (4, 4), 8, 3, "keep a part of a mask of its"),
    ):
        kept = torch.zeros(shape, dtype=torch.bool)
        kept[:rows_kept] = True
        with pytest.raises(FreeTicketsError, match=message):
            parse_structure(name).select(torch.ones(shape), count, ~kept, generator(), kept)


# ---- structured networks

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
    for name in (*STRUCTURES, "unstructured"):
        structure, shape = parse_structure(name), torch.Size((8, 8))
        hits = sum(structure.random(shape, 32, generator(seed)).int() for seed in range(200))
        assert (hits - 100).abs().max() < 5 * math.sqrt(50), name


# ---- layers that do not fit


def test_layers_that_do_not_fit_stay_dense_and_n_of_m_has_its_own_sparsity():
    run = start("block-4x4", 0.5, (3, 16, 10), distribution="uniform")
    assert run.counts == {"5.weight": 128}  # neither 3 channels nor 10 classes
    assert run.sparsifier.sparsity == 0.5
    before = run.model[0].weight.detach().clone()
    run.train(range(4))
    assert (run.model[0].weight != before).all()
    for sparsity in (DEFAULT_SPARSITY, 0.5, 0.505):
        run = start("2:4", sparsity)
        assert all(run.counts[name] == math.prod(shape) / 2 for name, shape in run.shapes.items())
    assert start("1:4").sparsifier.sparsity == 0.75
    run = start("2:4", {"5": 0.5, "7": 0.0})
    assert list(run.sparsifier.topology) == ["5.weight"]
    assert run.counts["5.weight"] == 64


@pytest.mark.parametrize(
    ("channels", "distribution", "sparse"),
    [(3, "uniform-dense-first", "57"), (4, "uniform-dense-first", "57"), (4, "erk", "057")],
)
def test_a_first_layer_that_does_not_fit_is_the_dense_first_one(channels, distribution, sparse):
    run = start("2:4", sizes=(channels, 8, 3), distribution=distribution)
    assert list(run.sparsifier.topology) == [f"{layer}.weight" for layer in sparse]


# ---- the sparsity of N:M


# ---- given and saved topologies


def test_given_masks_are_checked(refused):
    good = start("fan-in", 0.7).sparsifier.topology
    run = start("fan-in", seed=5, topology=good)
    assert all(torch.equal(run.sparsifier.topology[name], mask) for name, mask in good.items())
    whole = {**good, "7.weight": torch.ones(3, 16, dtype=torch.bool)}
    assert "7.weight" not in start("fan-in", topology=whole).sparsifier.topology
    bad = {"5.weight": good["5.weight"].clone()}
    bad["5.weight"][0] = True
    misfit = {"7.weight": torch.arange(3 * 16).view(3, 16) < 16}
    for structure, masks in (("fan-in", bad), ("block-4x4", misfit)):
        match = f"'{next(iter(masks))}' does not have the structure '{structure}': give"
        refused(match, start, structure, topology=masks)


def test_saved_topologies_without_the_structure_and_pruning_by_hand_are_refused(refused):
    run, other = start("fan-in", 0.7), start("unstructured", 0.7)
    digest = run.digest
    state = other.sparsifier.state_dict()
    for key in ("topology", "ever_active"):
        state[key] = {name: state[key][name] for name in run.sparsifier.topology}
    refused("does not have the structure 'fan-in'", run.sparsifier.load_state_dict, state)
    assert run.digest == digest
    refused("structure 'fan-in' can't be pruned", start("fan-in").sparsifier.prune, 0.9)
