"""Structured topologies: they hold from the first one on, through every exploration."""

import copy
import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.kernels.library import available
from freetickets.sparsity import Exploration, GradualPruning, Sparsifier, allocate

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=25)
STRUCTURES = ["2:4", "1:2", "block-4x4", "block-2x1", "fan-in"]
structures = pytest.mark.parametrize("structure", STRUCTURES)
BACKENDS = ["masked", "sparse"] if available() else ["masked"]


def network(channels=4, width=8, classes=3):
    """The convolution fits all structures, the classifier only some."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 16),
        nn.ReLU(),
        nn.Linear(16, classes),
    )


class Run:
    def __init__(self, structure, seed=0, sparsity=None, sizes=(4, 8, 3), **options):
        torch.manual_seed(seed)
        self.model = network(*sizes)
        self.inputs = sizes[0]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        chosen = {} if sparsity is None else {"sparsity": sparsity}
        options = {"backend": "masked", "exploration": Exploration(interval=2), **options}
        self.sparsifier = Sparsifier(
            self.model, self.optimizer, **chosen, structure=structure, seed=seed, **options
        )

    def train(self, steps):
        for step in steps:
            source = torch.Generator().manual_seed(step)
            x = torch.randn(12, self.inputs, 4, 4, generator=source)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), torch.arange(12) % 3).backward()
            self.optimizer.step()
            self.sparsifier.step()

    @property
    def parts(self):
        return self.model, self.optimizer, self.sparsifier

    @property
    def counts(self):
        return {name: int(mask.sum()) for name, mask in self.sparsifier.topology.items()}


def has_structure(name, mask):
    """The definitions, entry by entry."""
    outputs = mask.flatten(1).tolist()
    if name == "fan-in":
        return len({sum(row) for row in outputs}) == 1
    if ":" in name:
        n, m = map(int, name.split(":"))
        return all(sum(row[j : j + m]) == n for row in outputs for j in range(0, len(row), m))
    down, across = map(int, name.removeprefix("block-").split("x"))
    return all(
        len(mask[i : i + down, j : j + across].unique()) == 1
        for i in range(0, mask.shape[0], down)
        for j in range(0, mask.shape[1], across)
    )


def unit(name, shape):
    """How many weights come and go together, so that a count is a multiple of them."""
    if name == "fan-in":
        return shape[0]
    down, across = map(int, name.removeprefix("block-").split("x"))
    return down * across * math.prod(shape[2:])


@PROPERTY
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
    run = Run(
        structure, seed, sparsity, sizes, backend=backend, grow=grow, exploration=lambda _: rate
    )
    counts, seen = run.counts, {run.sparsifier.digest}
    assert counts
    for step in range(5):
        run.train([step])
        assert run.counts == counts
        seen.add(run.sparsifier.digest)
        for name, mask in run.sparsifier.topology.items():
            assert has_structure(structure, mask), name
            assert (run.model.state_dict()[name][~mask] == 0).all()
    assert len(seen) > 1


@pytest.mark.parametrize("structure", ["block-4x4", "block-2x1", "fan-in"])
def test_counts_are_the_distribution_s_to_the_nearest_unit(structure):
    run = Run(structure, sparsity=0.7, sizes=(8, 16, 4))
    shapes = {row.name: row.shape for row in run.sparsifier.statistics()}
    wanted = allocate(shapes, 0.7, "erk")
    for row in run.sparsifier.statistics():
        if row.name in run.counts:
            assert row.nonzeros % unit(structure, row.shape) == 0
            assert abs(row.nonzeros - wanted[row.name]) <= unit(structure, row.shape) / 2


def test_a_first_topology_is_random_and_uniform():
    """Each weight is active in half of the topologies, within five standard deviations."""
    for structure in STRUCTURES:
        hits = 0
        for seed in range(200):
            layer = nn.Linear(8, 8)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            sparsifier = Sparsifier(layer, optimizer, 0.5, structure=structure, seed=seed)
            hits = hits + sparsifier.topology["weight"].int()
        assert (hits - 100).abs().max() < 5 * math.sqrt(50), structure


# ---- layers that do not fit


def test_layers_that_do_not_fit_stay_dense_outside_the_budget():
    run = Run("block-4x4", sparsity=0.5, sizes=(3, 16, 10), distribution="uniform")
    rows = run.sparsifier.statistics()
    assert [row.name for row in rows] == ["5.weight"]  # neither 3 channels nor 10 classes
    assert run.sparsifier.sparsity == 0.5
    before = run.model[0].weight.detach().clone()
    run.train(range(4))
    assert (run.model[0].weight != before).all()


def test_a_first_layer_that_does_not_fit_is_the_one_that_is_dense_first():
    small = Run("2:4", sizes=(3, 8, 3), distribution="uniform-dense-first")
    assert list(small.counts) == ["5.weight", "7.weight"]
    large = Run("2:4", sizes=(4, 8, 3), distribution="uniform-dense-first")
    assert list(large.counts) == ["5.weight", "7.weight"]
    assert list(Run("2:4", sizes=(4, 8, 3)).counts) == ["0.weight", "5.weight", "7.weight"]


def test_a_network_without_a_fitting_layer_is_refused():
    with pytest.raises(FreeTicketsError, match=r"no layer can have structure 'block-64x64', from"):
        Run("block-64x64")


# ---- the sparsity of N:M


def test_n_of_m_has_its_own_sparsity_in_every_layer_unless_another_is_asked_for():
    for sparsity in (None, 0.5, 0.505):
        run = Run("2:4", sparsity=sparsity)
        assert all(row.nonzeros == math.prod(row.shape) / 2 for row in run.sparsifier.statistics())
    assert Run("1:4").sparsifier.sparsity == 0.75
    with pytest.raises(FreeTicketsError, match=r"'2:4' has sparsity 0.5, not 0.9: set sparsity to"):
        Run("2:4", sparsity=0.9)
    with pytest.raises(FreeTicketsError, match=r"'2:4' has sparsity 0.5, not 0.0"):
        Run("2:4", sparsity=0.0)


def test_a_map_chooses_the_layers_of_n_of_m():
    run = Run("2:4", sparsity={"5": 0.5, "7": 0.0})
    assert run.counts == {"5.weight": 64}
    with pytest.raises(FreeTicketsError, match=r"sparsity 0.5, not 0.8"):
        Run("2:4", sparsity={"5": 0.8})


# ---- given and saved topologies


def test_given_masks_are_checked():
    good = Run("fan-in", sparsity=0.7).sparsifier.topology
    run = Run("fan-in", seed=5, topology=good)
    assert all(torch.equal(run.sparsifier.topology[name], mask) for name, mask in good.items())
    run.train(range(6))
    assert run.counts == {name: int(mask.sum()) for name, mask in good.items()}
    bad = {name: mask.clone() for name, mask in good.items()}
    bad["5.weight"][0] = True
    with pytest.raises(
        FreeTicketsError, match=r"'5.weight' does not have the structure 'fan-in': give"
    ):
        Run("fan-in", topology=bad)
    whole = {**good, "7.weight": torch.ones(3, 16, dtype=torch.bool)}
    assert "7.weight" not in Run("fan-in", topology=whole).counts
    misfit = torch.zeros(3, 16, dtype=torch.bool)
    misfit[0] = True
    with pytest.raises(
        FreeTicketsError, match=r"'7.weight' does not have the structure 'block-4x4'"
    ):
        Run("block-4x4", topology={"7.weight": misfit})


def through_a_file(parts):
    file = io.BytesIO()
    torch.save([part.state_dict() for part in parts], file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same(run, other):
    assert run.sparsifier.digest == other.sparsifier.digest
    assert run.sparsifier.statistics() == other.sparsifier.statistics()
    for mine, theirs in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        for key, value in run.optimizer.state[mine].items():
            assert torch.equal(value, other.optimizer.state[theirs][key]), key


@structures
def test_a_resumed_run_and_a_copy_end_bit_for_bit_as_the_whole_one(structure, backend):
    options = {"backend": backend, "grow": "random"}
    whole, killed, resumed = (Run(structure, seed, **options) for seed in (0, 0, 9))
    whole.train(range(9))
    killed.train(range(5))
    for part, saved in zip(resumed.parts, through_a_file(killed.parts), strict=True):
        part.load_state_dict(saved)
    twin = copy.copy(killed)
    twin.model, twin.optimizer, twin.sparsifier = copy.deepcopy(killed.parts)
    for run in (resumed, twin):
        run.train(range(5, 9))
        assert_same(run, whole)
    assert killed.sparsifier.steps == 5


def test_a_saved_topology_without_the_structure_is_refused_and_changes_nothing():
    run, other = Run("fan-in", sparsity=0.7), Run("unstructured", sparsity=0.7)
    digest = run.sparsifier.digest
    state = other.sparsifier.state_dict()
    state["topology"] = {name: state["topology"][name] for name in run.counts}
    state["ever_active"] = {name: state["ever_active"][name] for name in run.counts}
    with pytest.raises(FreeTicketsError, match="does not have the structure 'fan-in'"):
        run.sparsifier.load_state_dict(state)
    assert run.sparsifier.digest == digest


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
        Run("fan-in", **options)


def test_pruning_by_hand_and_unknown_structures_are_refused():
    with pytest.raises(FreeTicketsError, match="structure 'fan-in' can't be pruned"):
        Run("fan-in").sparsifier.prune(0.9)
    with pytest.raises(UnknownNameError, match="did you mean 'fan-in'"):
        Run("fanin")
