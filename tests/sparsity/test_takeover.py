"""Topologies that a network has already are taken over, or not destroyed in silence."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.kernels.library import available
from freetickets.sparsity import Exploration, Sparsifier

BACKENDS = ["masked", "auto"] if available() else ["masked"]

built = pytest.mark.skipif(not available(), reason="the sparse kernels are not built")
every_backend = pytest.mark.parametrize("backend", BACKENDS)
sparse_too = pytest.mark.parametrize("backend", [*BACKENDS, pytest.param("sparse", marks=built)])


class Run:
    def __init__(self, seed: int = 0, backend: str = "masked", **options: Any) -> None:
        self.prepare(seed)
        self.sparsify(seed, backend, **options)

    def prepare(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def sparsify(self, seed: int, backend: str, **options: Any) -> None:
        self.sparsifier = Sparsifier(
            self.model,
            self.optimizer,
            0.7,
            **{
                "exploration": Exploration(interval=5),
                "distribution": "uniform",
                "backend": backend,
                "seed": seed,
                **options,
            },
        )

    def train(self, steps: range) -> None:
        for step in steps:
            inputs = torch.randn(16, 10, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs), inputs.flip(1)).backward()
            self.optimizer.step()
            self.sparsifier.step()

    def state(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in ("model", "optimizer", "sparsifier")}
        return copy.deepcopy({name: part.state_dict() for name, part in parts.items()})

    def load(self, state: dict[str, Any], *order: str) -> None:
        for name in order or ("model", "optimizer", "sparsifier"):
            getattr(self, name).load_state_dict(copy.deepcopy(state[name]))


def trained(steps: int = 7, backend: str = "masked") -> Run:
    run = Run(backend=backend)
    run.train(range(steps))
    return run


def assert_equal(run: Run, other: Run) -> None:
    assert run.sparsifier.digest == other.sparsifier.digest
    for mine, theirs in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        for key, value in run.optimizer.state[mine].items():
            assert torch.equal(value, other.optimizer.state[theirs][key]), key


# ---- topology="given"


@sparse_too
def test_a_sparsifier_takes_over_the_zeros_that_a_network_has(backend: str) -> None:
    source, run = trained(4), Run.__new__(Run)
    run.prepare(1)
    run.model.load_state_dict(source.model.state_dict())
    run.sparsify(1, backend, topology="given")
    assert run.sparsifier.digest == source.sparsifier.digest
    assert torch.equal(run.model[0].weight, source.model[0].weight)
    counts = [row.nonzeros for row in run.sparsifier.statistics()]
    run.train(range(12))
    assert [row.nonzeros for row in run.sparsifier.statistics()] == counts


def test_a_weight_without_zeros_stays_dense() -> None:
    run = Run.__new__(Run)
    run.prepare(0)
    with torch.no_grad():
        run.model[0].weight[::2] = 0
    run.sparsify(0, "masked", topology="given")
    assert list(run.sparsifier.topology) == ["0.weight"]


def test_a_network_without_any_zero_gives_no_topology() -> None:
    with pytest.raises(FreeTicketsError, match="its weights have no zeros: load them first"):
        Run(topology="given")


def test_a_word_that_is_no_topology_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown topology 'givn': did you mean 'given'"):
        Run(topology="givn")


# ---- a topology that is about to be destroyed


@sparse_too
def test_a_new_topology_over_an_old_one_is_announced(backend: str) -> None:
    run = trained()
    run.sparsifier.detach()
    with pytest.warns(UserWarning, match="which a new random one replaces: pass topology='given'"):
        run.sparsify(5, backend)


@pytest.mark.parametrize("zeros", ["a layer that starts at zero", "a few by chance"])
def test_zeros_that_are_no_topology_are_not_worth_a_word(zeros: str) -> None:
    run = Run.__new__(Run)
    run.prepare(0)
    with torch.no_grad():
        if zeros == "a few by chance":
            run.model[0].weight[0] = 0
        else:
            run.model[2].weight.zero_()
    run.sparsify(0, "masked")


def test_a_topology_that_is_chosen_replaces_another_without_a_word() -> None:
    run, other = trained(), Run(3)
    run.sparsifier.detach()
    run.sparsify(5, "masked", topology=other.sparsifier.topology)
    assert run.sparsifier.digest == other.sparsifier.digest


# ---- set_topology


@every_backend
def test_another_topology_keeps_what_lies_inside_and_zeroes_the_rest(backend: str) -> None:
    run, other = trained(backend=backend), Run(3)
    weight = run.model[0].weight.detach().clone()
    run.sparsifier.set_topology(other.sparsifier.topology)
    assert run.sparsifier.digest == other.sparsifier.digest
    mask = other.sparsifier.topology["0.weight"]
    assert torch.equal(run.model[0].weight, weight * mask)
    state = run.optimizer.state[run.model[0].weight]
    assert not any(state[key][~mask].any() for key in ("exp_avg", "exp_avg_sq"))
    run.train(range(7, 14))
    assert not run.model[0].weight[~run.sparsifier.topology["0.weight"]].any()


@every_backend
def test_another_topology_may_have_more_weights_or_all_and_is_resumed(backend: str) -> None:
    run = trained(backend=backend)
    half = torch.arange(200).view(20, 10) % 2 == 0
    run.sparsifier.set_topology({"0.weight": half, "2.weight": torch.ones(10, 20).bool()})
    assert list(run.sparsifier.topology) == ["0.weight"]
    assert [row.nonzeros for row in run.sparsifier.statistics()] == [100, 200]
    run.train(range(7, 9))
    run.sparsifier.set_topology({"2.weight": half.T})  # the other one stays as it is
    assert [row.nonzeros for row in run.sparsifier.statistics()] == [100, 100]
    state, resumed = run.state(), Run(9, backend)
    resumed.load(state)
    for each in (run, resumed):
        each.train(range(9, 16))
    assert_equal(run, resumed)


def test_weights_loaded_a_moment_ago_are_kept() -> None:
    source, run = trained(), trained(3)
    run.model.load_state_dict(source.model.state_dict())
    run.sparsifier.set_topology(source.state()["sparsifier"]["topology"])
    assert torch.equal(run.model[0].weight, source.model[0].weight)
    run.train(range(1))


@built
def test_new_weights_have_no_place_in_layers_that_hold_only_active_ones() -> None:
    """Which zeros are weights that were grown a moment ago, only the saved topology tells."""
    run, resumed = trained(5, "sparse"), Run.__new__(Run)
    resumed.prepare(9)
    resumed.load(run.state(), "model", "optimizer")
    resumed.sparsify(9, "sparse", topology="given")
    with pytest.raises(FreeTicketsError, match=r"can't have 60: make .* or with that topology"):
        resumed.load(run.state(), "sparsifier")


@built
def test_layers_that_hold_only_active_weights_keep_their_number() -> None:
    run, other = trained(backend="sparse"), Run(3)
    run.sparsifier.set_topology(other.sparsifier.topology)
    assert run.sparsifier.digest == other.sparsifier.digest
    mask = other.sparsifier.topology["0.weight"].clone()
    mask[mask.nonzero(as_tuple=True)[0][0]] = False
    with pytest.raises(FreeTicketsError, match=r"holds 60 weights and can't have \d+: make the"):
        run.sparsifier.set_topology({"0.weight": mask})
    assert run.sparsifier.digest == other.sparsifier.digest


@pytest.mark.parametrize(
    ("topology", "options", "message"),
    [
        ({"0.weights": torch.ones(20, 10).bool()}, {}, "did you mean '0.weight'"),
        ({"0.weight": torch.ones(20, 10)}, {}, "must be torch.bool of shape"),
        ({"0.weight": torch.zeros(20, 10).bool()}, {}, "without a single weight"),
        ({"2.weight": torch.ones(10, 20).triu().bool()}, {"structure": "2:4"}, "2:4"),
        ({"0.weight": torch.ones(20, 10).bool()}, {"reserve": 0.1}, "chooses its topology by"),
    ],
)
def test_a_topology_that_can_not_be_is_refused(topology: Any, options: Any, message: str) -> None:
    if "structure" in options:
        options = {**options, "sparsity": 0.5}
    run = Run.__new__(Run)
    run.prepare(0)
    sparsity = options.pop("sparsity", 0.7)
    run.sparsifier = Sparsifier(run.model, run.optimizer, sparsity, backend="masked", **options)
    with pytest.raises(FreeTicketsError, match=message):
        run.sparsifier.set_topology(topology)


# ---- the order of loading


@sparse_too
@pytest.mark.parametrize("killed_after", [5, 7])  # 5: half of the active weights are new, and zero
@pytest.mark.parametrize(
    "order",
    [("model", "optimizer", "sparsifier"), ("sparsifier", "model", "optimizer")],
    ids="-".join,
)
def test_states_are_loaded_in_any_order_once_the_sparsifier_is_made(
    order: tuple[str, ...], killed_after: int, backend: str
) -> None:
    run, resumed = trained(killed_after, backend), Run(9, backend)
    resumed.load(run.state(), *order)
    for each in (run, resumed):
        each.train(range(killed_after, 16))
    assert_equal(run, resumed)


@every_backend
@pytest.mark.parametrize("killed_after", [5, 7])
@pytest.mark.parametrize("kind", ["saved", "given"])
def test_a_sparsifier_made_over_loaded_weights_resumes_with_the_saved_topology(
    kind: str, killed_after: int, backend: str
) -> None:
    run, resumed = trained(killed_after, backend), Run.__new__(Run)
    state = run.state()
    resumed.prepare(9)
    resumed.load(state, "model", "optimizer")
    topology = "given" if kind == "given" else state["sparsifier"]["topology"]
    resumed.sparsify(9, backend, topology=topology)
    resumed.load(state, "sparsifier")
    for each in (run, resumed):
        each.train(range(killed_after, 16))
    assert_equal(run, resumed)


@sparse_too
@pytest.mark.parametrize("killed_after", [5, 7])
def test_weights_that_a_fresh_topology_destroyed_are_asked_for_again(
    killed_after: int, backend: str
) -> None:
    run, resumed = trained(killed_after, backend), Run.__new__(Run)
    state = run.state()
    resumed.prepare(9)
    resumed.load(state, "model", "optimizer")
    with pytest.warns(UserWarning, match="load the weights after making the Sparsifier"):
        resumed.sparsify(9, backend)
    before = resumed.sparsifier.digest
    with pytest.raises(FreeTicketsError, match="load the network and the optimizer again"):
        resumed.load(state, "sparsifier")
    assert resumed.sparsifier.digest == before
    resumed.load(state)  # as the error says
    for each in (run, resumed):
        each.train(range(killed_after, 16))
    assert_equal(run, resumed)


@sparse_too
def test_a_fresh_topology_that_is_the_saved_one_destroys_nothing(backend: str) -> None:
    run, resumed = trained(4, backend), Run.__new__(Run)
    resumed.prepare(9)
    resumed.load(run.state(), "model", "optimizer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.sparsify(0, backend)  # the seed of the saved run, which has not explored yet
    resumed.load(run.state(), "sparsifier")
    assert_equal(run, resumed)


@sparse_too
@pytest.mark.parametrize("killed_after", [5, 7])
def test_weights_of_another_topology_are_refused_at_the_next_step(
    killed_after: int, backend: str
) -> None:
    run, other = trained(killed_after, backend), Run(9, backend)
    other.load(run.state(), "model")
    with pytest.raises(FreeTicketsError, match="another topology"):
        other.train(range(1))
    if backend != "sparse":
        assert torch.equal(other.model[0].weight, run.model[0].weight)  # nothing is lost
    other.load(run.state(), "optimizer", "sparsifier")  # as the error says
    for each in (run, other):
        each.train(range(killed_after, 16))
    assert_equal(run, other)


@sparse_too
def test_weights_of_another_checkpoint_than_the_state_are_refused(backend: str) -> None:
    early, late, resumed = trained(4), trained(14), Run(9, backend)
    resumed.load(early.state(), "model", "optimizer")
    with pytest.raises(FreeTicketsError, match="another topology"):
        resumed.load(late.state(), "sparsifier")


@sparse_too
def test_a_few_weights_of_a_later_exploration_are_noticed(backend: str) -> None:
    run = Run(backend=backend, exploration=None)
    run.train(range(3))
    state = run.state()
    run.sparsifier.keep_gradients()
    run.train(range(3, 4))
    run.sparsifier.explore(0.02)
    run.train(range(4, 5))
    run.load(state, "model")
    with pytest.raises(FreeTicketsError, match="another topology"):
        run.train(range(5, 6))


@sparse_too
def test_weights_of_a_denser_topology_are_refused(backend: str) -> None:
    run, denser = trained(4, backend), Run(9)
    denser.sparsifier.set_topology({"0.weight": torch.arange(200).view(20, 10) % 2 == 0})
    denser.model[0].reset_parameters()
    denser.train(range(1))
    run.load(denser.state(), "model")
    with pytest.raises(FreeTicketsError, match="another topology"):
        run.train(range(5, 6))


@every_backend
@pytest.mark.parametrize(
    "change", ["initialise", "one layer after an exploration", "noise", "mean"]
)
def test_what_no_topology_explains_is_set_to_zero_outside(change: str, backend: str) -> None:
    run = trained(5, backend)
    if change == "initialise":
        run.model[0].reset_parameters()
        run.model[2].reset_parameters()
    elif change == "one layer after an exploration":
        nn.init.normal_(run.model[0].weight)
    elif change == "noise":
        run.train(range(5, 7))
        with torch.no_grad():
            run.model[0].weight.add_(torch.randn(20, 10), alpha=1e-3)
    else:  # of weights before and after the exploration, as Lookahead makes
        old = trained(4).model[0].weight.detach()
        run.train(range(5, 7))
        with torch.no_grad():
            run.model[0].weight.lerp_(old, 0.5)
    run.train(range(7, 8))
    for name, mask in run.sparsifier.topology.items():
        assert not run.model.get_parameter(name)[~mask].any()
