"""Sparse layers train as masked weights do: the same numbers, the same topologies, the same files.

Both compute in single precision, in another order, so numbers agree to a few digits; topologies
agree exactly, as long as no two weights are so close that rounding decides between them.
"""

import copy
import itertools

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels import choices, ops, winograd
from freetickets.kernels.adopted import AdoptedConv2d, AdoptedLayer, AdoptedLinear
from freetickets.kernels.layers import SparseLayer, SparseLinear
from freetickets.sparsity import Sparsifier
from freetickets.sparsity import network as backends

from .training import OPTIMIZERS, Run, assert_alike, assert_close, built, convnet, matrices, mlp

pytestmark = built
MATRIX_OPTIMIZERS = ("Adafactor", "LBFGS", "Muon")
ELEMENTWISE = [name for name in OPTIMIZERS if name not in MATRIX_OPTIMIZERS]


def pair(fast, *arguments, **options):
    return Run(*arguments, backend=fast, **options), Run(*arguments, **options)


@pytest.fixture(params=["sparse", "auto"])
def fast(request, skipping_zeros):
    """Each backend that skips zeros; its layers really do."""
    return str(request.param)


def has(model, *kinds):
    return any(isinstance(module, kinds) for module in model.modules())


# ---- the same training


def test_every_optimizer_that_may_be_sparse_is_tried():
    assert {kind.__name__ for kind in backends._ELEMENTWISE} == set(ELEMENTWISE)


@pytest.mark.parametrize(
    ("fast", "build", "optimizer"),
    [
        *itertools.product(("sparse", "auto"), (mlp, convnet), ELEMENTWISE),
        *(("auto", matrices, name) for name in MATRIX_OPTIMIZERS if hasattr(torch.optim, name)),
        ("sparse", matrices, "LBFGS"),
    ],
)
def test_sparse_and_masked_training_are_one(fast, build, optimizer, skipping_zeros):
    sparse, masked = runs = pair(fast, build, optimizer)
    assert has(sparse.model, SparseLinear if fast == "sparse" else AdoptedLinear)
    assert_alike(sparse, masked)
    counts, digests = masked.counts, {masked.digest}
    for step in range(9):
        for run in runs:
            run.train([step])
            assert run.counts == counts
        # Differences grow from step to step, in some optimizers quickly.
        assert_alike(sparse, masked, 2e-3 if step else 1e-5)
        sparse.assert_zero_outside()
        digests.add(masked.digest)
    assert len(digests) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"grow": "momentum"},
        {"grow": {"gradient": 2, "random": 1}, "gradient_batches": 2},
        {"prune_scope": "global", "regrown_value": "keep"},
        {"grow": lambda view: view.gradient.abs() * view.weight.abs().add(1)},
        {"exclude": ["2"]},
    ],
    ids=["momentum", "mixture", "global", "function", "dense layer"],
)
def test_explorations_of_all_kinds_are_one(fast, options):
    sparse, masked = runs = pair(fast, mlp, "Adam", **options)
    for run in runs:
        run.train(range(8))
    assert_alike(sparse, masked, 1e-3)


def test_an_escape_by_hand_looks_at_the_gradient_that_was_kept(refused, fast):
    sparse, masked = runs = pair(fast, mlp, "Adam", exploration=None)
    for run in runs:
        run.train(range(2))
        refused("before the forward pass", run.sparsifier.explore, 0.8)
        run.sparsifier.keep_gradients()
        run.train(range(2, 3))
        before, counts = run.digest, run.counts
        run.sparsifier.explore(0.8)
        assert run.digest != before
        assert run.counts == counts
        run.train(range(3, 5))
        with pytest.raises(FreeTicketsError, match="no dense gradient"):
            run.sparsifier.explore(0.8)  # the one that was kept is used up
    assert_alike(sparse, masked, 1e-3)


# ---- which backend


def choose(monkeypatch, ways):
    """Has all layers run in these ways; in Winograd's, those that can."""

    def convolution(work, costs):
        return ways if ways <= ops.ALL or winograd.suits(work.geometry) else 0

    monkeypatch.setattr(choices, "convolution_ways", convolution)
    monkeypatch.setattr(choices, "linear_ways", lambda *_: ways if ways <= ops.ALL else 0)


def test_auto_trains_as_well_whatever_it_chooses_and_masks_where_few_are_zero(monkeypatch):
    masked = Run(convnet)
    masked.train(range(6))
    for ways in (ops.ALL, 0, ops.ALL << ops.WINOGRAD):
        choose(monkeypatch, ways)
        run = Run(convnet, backend="auto")
        assert has(run.model, AdoptedConv2d)
        run.train(range(6))
        assert_alike(run, masked, 1e-3)
        made = run.sparsifier.state_dict()["choices"]["ways"]
        assert len(made) == 5  # of convolutions also where growth looks at the whole gradient
        assert choices.words(ways) in made.values()
    assert not has(Run(sparsity=0.3, backend="auto").model, SparseLayer, AdoptedLayer)


def test_what_can_not_be_made_sparse_is_refused_and_auto_goes_on():
    for model, reason in (
        (torch.compile(mlp(), backend="eager"), "wrap the network"),
        (nn.DataParallel(mlp()), "wrap the network"),
        (nn.Sequential(nn.GRU(4, 6)), "no layer can be sparse"),
        (mlp().double(), "no layer can be sparse"),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(
            FreeTicketsError, match=f"^backend 'sparse' is not possible: {reason}.*$"
        ):
            Sparsifier(model, optimizer, 0.7, distribution="uniform", backend="sparse")
        Sparsifier(model, optimizer, 0.7, distribution="uniform", backend="auto")
        assert not has(model, SparseLayer)


# ---- saving


def test_what_auto_chose_is_saved_and_used_again(monkeypatch):
    choose(monkeypatch, ops.ALL)
    first = Run(backend="auto")
    first.train(range(3))
    state = first.state()
    made = state["sparsifier"]["choices"]
    assert set(made["ways"].values()) == {"PyTorch / PyTorch / PyTorch"}
    choose(monkeypatch, 0)
    second, other = Run(backend="auto", seed=5), Run(backend="auto")
    second.load(state)
    second.train(range(3, 6))
    assert second.sparsifier.state_dict()["choices"] == made
    other.train(range(1))
    found = other.sparsifier.state_dict()["choices"]["ways"]
    assert set(found.values()) == {"sparse / sparse / sparse"}


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "ASGD"])
@pytest.mark.parametrize("to_masked", [False, True])
def test_a_run_of_one_backend_goes_on_with_the_other(fast, to_masked, optimizer):
    """On a machine without the kernels, say; or a checkpoint from before there were any."""
    before, after = (fast, "masked") if to_masked else ("masked", fast)
    first = Run(convnet, optimizer, backend=before)
    first.train(range(3))
    second = Run(convnet, optimizer, backend=after, seed=5)
    second.load(first.state())
    assert_alike(second, first)
    for run in (first, second):
        run.train(range(3, 7))
    assert_alike(second, first, 1e-3)


def test_a_detached_run_goes_on_with_dense_weights(fast):
    sparse, masked = runs = pair(fast, convnet, "Adam")
    for run in runs:
        run.train(range(3))
        run.sparsifier.detach()
        run.sparsifier.detach()
    assert [*map(type, sparse.model.modules())] == [*map(type, masked.model.modules())]
    assert_alike(sparse, masked, 1e-3)
    for run in runs:
        run.backward(3)
        run.optimizer.step()
        assert run.model[6].weight.all()
        assert not run.sparsifier.step()
        again = copy.deepcopy(run.sparsifier)
        again.optimizer.step()
        assert not again.step()
    assert_close(sparse.model[6].weight, masked.model[6].weight, 0.05)
