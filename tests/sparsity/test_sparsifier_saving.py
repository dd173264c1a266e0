"""State dicts and copies: a run goes on as if nothing had happened, bit for bit."""

import copy

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import SPARSE_METHODS, Exploration, Sparsifier

from .training import Run, assert_alike, built

STRUCTURES = ("2:4", "1:2", "block-4x4", "block-2x1", "fan-in")
OPTIONS = {
    "gradient": {},
    "random": {"grow": "random"},
    "momentum": {"grow": "momentum"},
    "window": {"gradient_batches": 4},
    "mixture": {"grow": {"gradient": 2, "momentum": 1, "random": 1}, "gradient_batches": 3},
    "global": {"prune_scope": "global", "regrown_value": "keep"},
    **{name: {"structure": name, "sparsity": 0.5, "grow": "random"} for name in STRUCTURES},
}
METHODS = {name: {"named": name, "backend": "auto"} for name in SPARSE_METHODS}
# Each option with each backend that lets weights go, and methods as anyone's loop has them.
WAYS = {
    f"{name}-{backend}": {**options, "backend": backend}
    for name, options in OPTIONS.items()
    for backend in ("masked", "sparse", "auto")
}
every_way = pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=built if options["backend"] != "masked" else ())
        for name, options in (WAYS | METHODS).items()
    ],
)


def network():
    """With weights that have every structure."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4),
    )  # fmt: skip


def start(seed=0, **options):
    return Run(network, "Adam", **{"exploration": Exploration(interval=5), **options}, seed=seed)


@every_way
@pytest.mark.parametrize("killed_after", [0, 5, 7])  # 5: half of the active weights are new
def test_a_resumed_run_ends_bit_for_bit_as_one_in_peace(options, killed_after, skipping_zeros):
    whole, killed, resumed = (start(seed, **options) for seed in (0, 0, 9))
    whole.train(range(18))
    killed.train(range(killed_after))
    resumed.train(range(3))  # whatever it did before is forgotten
    resumed.load(killed.state())
    resumed.train(range(killed_after, 18))
    assert_alike(whole, resumed)


def test_what_was_asked_to_be_kept_is_remembered(backend):
    run, resumed = start(backend=backend), start(9, backend=backend)
    run.train(range(7))
    run.sparsifier.keep_gradients()
    resumed.load(run.state())
    for each in (run, resumed):
        each.train(range(7, 8))
        each.sparsifier.explore(0.8)
    assert_alike(run, resumed)


def test_a_state_in_memory_does_not_change_with_the_run_it_came_from_or_went_to(backend):
    run = start(backend=backend, **OPTIONS["mixture"])
    run.train(range(8))
    expected, state, rest = run.twin(), run.sparsifier.state_dict(), run.state()
    expected.train(range(8, 20))
    run.train(range(8, 11))
    for _ in range(2):  # rewinds to the same state twice
        run.load(rest, "model", "optimizer")
        run.sparsifier.load_state_dict(state)
        run.train(range(8, 20))
        assert_alike(run, expected)


@pytest.mark.parametrize("layers", [{"0": 16, "6": 16}, {"0": 30, "4": 30}])
def test_the_state_of_another_network_is_refused_by_layer(layers):
    """Others have other names, or other shapes."""
    first, last = layers
    model = nn.ModuleDict({first: nn.Linear(12, layers[first]), last: nn.Linear(layers[last], 8)})
    sparsifier = Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), 0.7)
    before = sparsifier.digest
    with pytest.raises(FreeTicketsError, match=r"another network: see '[024]\.weight'"):
        sparsifier.load_state_dict(Run().sparsifier.state_dict())
    assert sparsifier.digest == before


# ---- copies


@every_way
def test_a_copy_of_model_optimizer_and_sparsifier_trains_alike_and_alone(options, skipping_zeros):
    run = start(**options)
    run.train(range(8))
    twin = run.twin()
    assert twin.sparsifier.optimizer is twin.optimizer
    before = {name: value.clone() for name, value in run.numbers().items()}
    steps, digest = run.sparsifier.steps, run.digest
    twin.train(range(8, 18))
    assert all(torch.equal(value, before[name]) for name, value in run.numbers().items())
    assert (run.sparsifier.steps, run.digest) == (steps, digest)
    assert twin.digest != digest or options.get("named") == "static"
    run.train(range(8, 18))
    assert_alike(run, twin)


def test_a_copy_of_the_optimizer_alone_is_free_of_the_sparsifier():
    run = start()
    run.train(range(3))
    model, optimizer = copy.deepcopy((run.model, run.optimizer))
    run.loss(run.batch(0), model).backward()
    optimizer.step()
    assert (model[7].weight != 0).float().mean() > 0.5
    assert not run.sparsifier.step()
    assert run.sparsifier.steps == 3
