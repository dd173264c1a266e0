"""State dicts and copies: a run goes on as if nothing had happened, bit for bit."""

import copy
import io

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration, Sparsifier

OPTIONS = {
    "gradient": {},
    "random": {"grow": "random"},
    "momentum": {"grow": "momentum"},
    "window": {"gradient_batches": 4},
    "mixture": {"grow": {"gradient": 2, "momentum": 1, "random": 1}, "gradient_batches": 3},
    "global": {"prune_scope": "global", "regrown_value": "keep"},
}


class Run:
    def __init__(self, seed=0, backend="masked", **options):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 10)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, amsgrad=True)
        self.sparsifier = Sparsifier(
            self.model,
            self.optimizer,
            0.7,
            exploration=Exploration(interval=5),
            seed=seed,
            backend=backend,
            **options,
        )

    def train(self, steps):
        for step in steps:
            inputs = torch.randn(16, 10, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs), inputs.flip(1)).backward()
            self.optimizer.step()
            self.sparsifier.step()

    def state(self):
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict(),
        }

    def load(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sparsifier.load_state_dict(state["sparsifier"])


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same(run, other):
    assert run.sparsifier.steps == other.sparsifier.steps
    assert run.sparsifier.digest == other.sparsifier.digest
    assert run.sparsifier.statistics() == other.sparsifier.statistics()
    for (name, mine), theirs in zip(
        run.model.state_dict().items(), other.model.state_dict().values(), strict=True
    ):
        assert torch.equal(mine, theirs), name
    for mine, theirs in zip(run.model.parameters(), other.model.parameters(), strict=True):
        for key, value in run.optimizer.state[mine].items():
            assert torch.equal(value, other.optimizer.state[theirs][key]), key


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("killed_after", [0, 5, 7, 8])
def test_a_resumed_run_ends_bit_for_bit_as_the_one_that_was_not_killed(
    options, killed_after, backend
):
    whole = Run(backend=backend, **options)
    whole.train(range(22))
    killed = Run(backend=backend, **options)
    killed.train(range(killed_after))
    state = through_a_file(killed.state())
    resumed = Run(seed=9, backend=backend, **options)
    resumed.train(range(3))  # whatever it did before is forgotten
    resumed.load(state)
    resumed.train(range(killed_after, 22))
    assert_same(whole, resumed)


def test_what_was_asked_to_be_kept_is_remembered(backend):
    run, resumed = Run(backend=backend), Run(seed=9, backend=backend)
    run.train(range(7))
    run.sparsifier.keep_gradients()
    resumed.load(through_a_file(run.state()))
    for each in (run, resumed):
        each.train(range(7, 8))
        each.sparsifier.explore(0.8)
    assert_same(run, resumed)


def test_a_state_in_memory_does_not_change_with_the_run_it_came_from_or_went_to(backend):
    run = Run(backend=backend, **OPTIONS["mixture"])
    run.train(range(8))
    states = [run.sparsifier.state_dict()]
    rest = copy.deepcopy((run.model.state_dict(), run.optimizer.state_dict()))
    ends = []
    for _ in range(2):  # rewinds to the same state twice
        run.model.load_state_dict(rest[0])
        run.optimizer.load_state_dict(copy.deepcopy(rest[1]))
        run.sparsifier.load_state_dict(states[0])
        run.train(range(8, 20))
        ends.append((run.sparsifier.digest, run.model[0].weight.detach().clone()))
    assert ends[0][0] == ends[1][0]
    assert torch.equal(ends[0][1], ends[1][1])


def test_a_topology_is_saved_as_bits():
    state = Run().sparsifier.state_dict()
    assert {n: t.numel() for n, t in state["topology"].items()} == {"0.weight": 25, "3.weight": 25}


def test_loading_makes_the_network_fit_the_topology(backend):
    run, other = Run(backend=backend), Run(seed=1, backend=backend)
    other.sparsifier.load_state_dict(run.sparsifier.state_dict())
    for name, mask in run.sparsifier.topology.items():
        assert (other.model.state_dict()[name][~mask] == 0).all()
    assert other.sparsifier.digest == run.sparsifier.digest


def test_the_state_of_another_network_is_refused_by_layer():
    state = Run().sparsifier.state_dict()
    network = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.7)
    with pytest.raises(FreeTicketsError, match=r"another network: see layer '[13]\.weight'"):
        sparsifier.load_state_dict(state)


def test_the_state_of_other_shapes_is_refused():
    state = Run().sparsifier.state_dict()
    network = nn.ModuleDict({"0": nn.Linear(10, 30), "3": nn.Linear(30, 10)})
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.7)
    before = sparsifier.digest
    with pytest.raises(FreeTicketsError, match=r"another network: see layer '0\.weight'"):
        sparsifier.load_state_dict(state)
    assert sparsifier.digest == before


# ---- copies


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_copy_of_model_optimizer_and_sparsifier_trains_on_alike_and_alone(options, backend):
    run = Run(backend=backend, **options)
    run.train(range(8))
    twin = copy.copy(run)
    twin.model, twin.optimizer, twin.sparsifier = copy.deepcopy(
        (run.model, run.optimizer, run.sparsifier)
    )
    assert twin.sparsifier.optimizer is twin.optimizer
    before = run.sparsifier.digest, run.model[0].weight.detach().clone(), run.sparsifier.steps
    twin.train(range(8, 21))
    assert twin.sparsifier.digest != before[0]
    assert run.sparsifier.digest == before[0]
    assert torch.equal(run.model[0].weight, before[1])
    assert run.sparsifier.steps == before[2]
    run.train(range(8, 21))
    assert_same(run, twin)


def test_a_copy_of_the_sparsifier_alone_brings_its_own_optimizer_and_weights():
    run = Run()
    run.train(range(8))
    twin = copy.deepcopy(run.sparsifier)
    gradients = [torch.randn_like(p) for p in run.model.parameters()]
    for sparsifier in (run.sparsifier, twin):
        for _ in range(7):
            parameters = sparsifier.optimizer.param_groups[0]["params"]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            sparsifier.optimizer.step()
            sparsifier.step()
        assert sparsifier.steps == 15
    assert twin.digest == run.sparsifier.digest
    for mine, theirs in zip(
        run.model.parameters(), twin.optimizer.param_groups[0]["params"], strict=True
    ):
        assert mine is not theirs
        assert torch.equal(mine, theirs)


def test_a_copy_of_the_optimizer_alone_is_free_of_the_sparsifier():
    run = Run()
    run.train(range(3))
    model, optimizer = copy.deepcopy((run.model, run.optimizer))
    model(torch.randn(4, 10)).sum().backward()
    steps = run.sparsifier.steps
    optimizer.step()
    assert (model[3].weight != 0).float().mean() > 0.5
    assert not run.sparsifier.step()
    assert run.sparsifier.steps == steps
