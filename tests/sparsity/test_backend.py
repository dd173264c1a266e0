"""Sparse layers train as masked weights do: the same numbers, the same topologies, the same files.

Both compute in single precision, in another order, so numbers agree to a few digits; topologies
agree exactly, as long as no two weights are so close that rounding decides between them.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import freetickets as ft
from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.kernels import choices, library, ops, winograd
from freetickets.kernels.adopted import AdoptedConv2d, AdoptedLayer, AdoptedLinear
from freetickets.kernels.choice import Costs, Work
from freetickets.kernels.layers import SparseLayer, SparseLinear
from freetickets.sparsity import Exploration, Sparsifier
from freetickets.sparsity import backend as backends

built = pytest.mark.skipif(not library.available(), reason="the sparse kernels are not built")

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    "Adam": {"lr": 0.01, "amsgrad": True, "weight_decay": 1e-2},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "Adamax": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "Adagrad": {"lr": 0.01, "initial_accumulator_value": 0.1},
    "Adadelta": {"lr": 1.0},
    "RMSprop": {"lr": 1e-3, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 1e-3},
    "ASGD": {"lr": 0.01, "weight_decay": 1e-2},
}


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 18), nn.Tanh(), nn.Linear(18, 6)
    )


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
        nn.Tanh(), nn.Conv2d(8, 8, 3, stride=2),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 6),
    )  # fmt: skip


NETWORKS = {"mlp": mlp, "conv": convnet}


class Run(NamedTuple):
    """A network in training."""

    model: nn.Module
    optimizer: Optimizer
    sparsifier: Sparsifier

    def inputs(self, step: int, batch: int = 20) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(step)
        shape = (12,) if isinstance(self.model[0], nn.Linear) else (2, 7, 7)
        x = torch.randn(batch, *shape, generator=source)
        return x, torch.randn(batch, 6, generator=source)

    def train(self, steps: Any) -> None:
        for step in steps:
            x, target = self.inputs(step)
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), target).backward()
            self.optimizer.step()
            self.sparsifier.step()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sparsifier.load_state_dict(state["sparsifier"])


def start(
    backend: Any,
    build: Callable[[], nn.Module] = mlp,
    optimizer: str = "SGD",
    *,
    seed: int = 0,
    **options: Any,
) -> Run:
    torch.manual_seed(seed)
    model = build()
    made = getattr(torch.optim, optimizer)(model.parameters(), **OPTIMIZERS[optimizer])
    defaults = {"exploration": Exploration(interval=2), "distribution": "uniform", "seed": seed}
    return Run(
        model, made, Sparsifier(model, made, 0.7, backend=backend, **{**defaults, **options})
    )


def weights(run: Run) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def state_of(run: Run, name: str) -> dict[str, Tensor]:
    """The optimizer's state of a sparse weight, at its active places."""
    path, _, own_name = name.rpartition(".")
    layer = run.model.get_submodule(path)
    mask = run.sparsifier.topology[name]
    parameter = layer.values if isinstance(layer, SparseLayer) else layer.get_parameter(own_name)
    return {
        key: value[mask] if value.shape == mask.shape else value
        for key, value in run.optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }


def assert_close(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    scale = expected.double().abs().max().clamp(min=1e-12)
    assert (found.double() - expected.double()).abs().max() / scale <= tolerance, what


def assert_alike(sparse: Run, masked: Run, tolerance: float) -> None:
    assert sparse.sparsifier.digest == masked.sparsifier.digest
    expected = weights(masked)
    for name, tensor in weights(sparse).items():
        assert_close(tensor, expected[name], tolerance, name)
    for name in sparse.sparsifier.topology:
        mine, theirs = state_of(sparse, name), state_of(masked, name)
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert mine[key].shape == value.shape
            assert_close(mine[key], value, tolerance, f"{key} of {name}")


def pair(fast: str, *arguments: Any, **options: Any) -> tuple[Run, Run]:
    return start(fast, *arguments, **options), start("masked", *arguments, **options)


@pytest.fixture(params=["sparse", "auto"])
def fast(request: pytest.FixtureRequest, skipping_zeros: None) -> str:
    """Each backend that skips zeros; its layers really do."""
    return str(request.param)


# ---- the same training


def test_every_optimizer_that_may_be_sparse_is_tried() -> None:
    assert {kind.__name__ for kind in backends._ELEMENTWISE} == OPTIMIZERS.keys()


@built
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_sparse_and_masked_training_are_one(
    fast: str, optimizer: str, build: Callable[..., Any]
) -> None:
    sparse, masked = runs = pair(fast, build, optimizer)
    kind = SparseLinear if fast == "sparse" else AdoptedLinear
    assert any(isinstance(module, kind) for module in sparse.model.modules())
    assert weights(sparse).keys() == weights(masked).keys()
    assert_alike(sparse, masked, 0)
    counts = [row.nonzeros for row in masked.sparsifier.statistics()]
    for run in runs:
        run.train(range(1))
    assert_alike(sparse, masked, 1e-5)
    digests = {masked.sparsifier.digest}
    for step in range(1, 9):
        for run in runs:
            run.train([step])
            found = [int(mask.sum()) for mask in run.sparsifier.topology.values()]
            assert found == counts
        # Differences grow from step to step, in some optimizers quickly.
        assert_alike(sparse, masked, 2e-3)
        digests.add(masked.sparsifier.digest)
    assert len(digests) == 5
    assert sparse.sparsifier.statistics() == masked.sparsifier.statistics()


@built
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
def test_explorations_of_all_kinds_are_one(fast: str, options: dict[str, Any]) -> None:
    sparse, masked = runs = pair(fast, mlp, "Adam", **options)
    for run in runs:
        run.train(range(8))
    assert_alike(sparse, masked, 1e-3)


@built
def test_gradients_accumulate_in_sparse_layers_too() -> None:
    runs = [start("sparse"), start("masked"), start("sparse")]
    for step in range(6):
        for number, (model, optimizer, sparsifier) in enumerate(runs):
            x, target = runs[0].inputs(step, 24)
            optimizer.zero_grad()
            parts = 1 if number == 2 else 3
            for index, (a, b) in enumerate(zip(x.chunk(parts), target.chunk(parts), strict=True)):
                (nn.functional.mse_loss(model(a), b) / parts).backward()
                if index == parts - 1:
                    optimizer.step()
                sparsifier.step()
    assert_alike(runs[0], runs[1], 1e-3)
    assert_alike(runs[2], runs[1], 1e-3)


@built
def test_an_escape_by_hand_looks_at_the_gradient_that_was_kept(fast: str) -> None:
    sparse, masked = runs = pair(fast, mlp, "Adam", exploration=None)
    for run in runs:
        run.train(range(2))
        with pytest.raises(FreeTicketsError, match="before the forward pass"):
            run.sparsifier.explore(0.8)
        run.sparsifier.keep_gradients()
        run.train(range(2, 3))
        before = run.sparsifier.digest
        run.sparsifier.explore(0.8)
        assert run.sparsifier.digest != before
        run.train(range(3, 5))
        with pytest.raises(FreeTicketsError, match="no dense gradient"):
            run.sparsifier.explore(0.8)  # the one that was kept is used up
    assert_alike(sparse, masked, 1e-3)


@built
def test_dense_gradients_are_computed_only_for_the_steps_that_need_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = []
    dense_gradient = SparseLinear.dense_gradient

    def noted(self: SparseLinear, *arguments: Any) -> Tensor:
        computed.append(self)
        return dense_gradient(self, *arguments)

    monkeypatch.setattr(SparseLinear, "dense_gradient", noted)
    run = start("sparse", exploration=Exploration(interval=3))
    seen = []
    for step in range(7):
        computed.clear()
        run.train([step])
        seen.append(len(computed))
        layers = [m for m in run.model.modules() if isinstance(m, SparseLayer)]
        assert all(layer.gradient is None for layer in layers)
    assert seen == [0, 0, 3, 0, 0, 3, 0]


@built
@pytest.mark.parametrize("clip", [False, True])
def test_rigls_step_without_an_update_is_one(fast: str, clip: bool) -> None:
    sparse, masked = runs = pair(fast, mlp)
    for step in range(6):
        for run in runs:
            x, target = run.inputs(step)
            run.optimizer.zero_grad()
            nn.functional.mse_loss(run.model(x), target).backward()
            if clip:
                run.sparsifier.mask_gradients()
                norm = nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
                assert norm > 0.1
            if run.sparsifier.due:
                run.sparsifier.step(skipped=True)
            else:
                run.optimizer.step()
                run.sparsifier.step()
    assert_alike(sparse, masked, 1e-3)


@built
def test_a_network_trains_alike_in_half_precision_around_its_sparse_layers() -> None:
    runs = [start("sparse", convnet), start("sparse", convnet)]
    for step in range(4):
        for amp, run in enumerate(runs):
            x, target = run.inputs(step)
            run.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bool(amp)):
                loss = nn.functional.mse_loss(run.model(x).float(), target)
            loss.backward()
            run.optimizer.step()
            run.sparsifier.step()
    assert_alike(runs[1], runs[0], 0.05)


@built
def test_a_network_in_evaluation_and_training_computes_alike(fast: str) -> None:
    sparse, masked = runs = pair(fast, convnet)
    for run in runs:
        run.train(range(3))
        run.model.eval()
    x, _ = sparse.inputs(9, 7)
    with torch.no_grad():
        assert_close(sparse.model(x), masked.model(x), 1e-4, "evaluation")
    for run in runs:
        run.model.train()
    assert_close(sparse.model(x).detach(), masked.model(x).detach(), 1e-4, "training")


# ---- which backend


def choose(monkeypatch: pytest.MonkeyPatch, ways: int) -> None:
    """Has all layers run in these ways; in Winograd's, those that can."""

    def convolution(work: Work, costs: Costs) -> int:
        return ways if ways <= ops.ALL or winograd.suits(work.geometry) else 0

    monkeypatch.setattr(choices, "convolution_ways", convolution)
    monkeypatch.setattr(choices, "linear_ways", lambda *_: ways if ways <= ops.ALL else 0)


@built
def test_auto_trains_as_well_whatever_it_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    masked = start("masked", convnet)
    masked.train(range(6))
    for ways in (ops.ALL, 0, ops.ALL << ops.WINOGRAD):
        choose(monkeypatch, ways)
        run = start("auto", convnet)
        assert any(isinstance(module, AdoptedConv2d) for module in run.model.modules())
        run.train(range(6))
        assert_alike(run, masked, 1e-3)
        made = run.sparsifier.state_dict()["choices"]["ways"]
        assert len(made) == 5  # of convolutions also where growth looks at the whole gradient
        assert choices.words(ways) in made.values()


@built
def test_auto_masks_where_most_weights_are_active() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Sparsifier(model, optimizer, 0.3, distribution="uniform")
    assert not any(isinstance(m, (SparseLayer, AdoptedLayer)) for m in model.modules())


@built
def test_lbfgs_can_be_asked_to_train_sparse_layers() -> None:
    ends = []
    for backend in ("sparse", "auto", "masked"):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=3)
        sparsifier = Sparsifier(
            model, optimizer, 0.7, distribution="uniform", exploration=Exploration(interval=2),
            backend=backend,
        )  # fmt: skip
        x, target = torch.randn(40, 12), torch.randn(40, 6)

        def loss_of(model=model, optimizer=optimizer, x=x, target=target) -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            return loss

        losses = []
        for _ in range(4):
            losses.append(float(optimizer.step(loss_of).detach()))
            sparsifier.step()
        ends.append((sparsifier.digest, losses))
    for digest, losses in ends[:2]:
        assert digest == ends[2][0]
        assert losses == pytest.approx(ends[2][1], rel=1e-3)


@built
def test_an_optimizer_of_matrices_says_so_when_its_weights_are_sparse() -> None:
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    model = nn.Sequential(nn.Linear(12, 24, bias=False), nn.Tanh(), nn.Linear(24, 6, bias=False))
    optimizer = torch.optim.Muon(model.parameters(), lr=0.1)
    Sparsifier(model, optimizer, 0.7, distribution="uniform", backend="sparse")
    model(torch.randn(3, 12)).sum().backward()
    with pytest.raises(ValueError, match="2D matrix"):
        optimizer.step()


def refusal(model: nn.Module, inside: nn.Module | None = None) -> str:
    optimizer = torch.optim.SGD((inside or model).parameters(), lr=0.1)
    with pytest.raises(FreeTicketsError) as caught:
        Sparsifier(model, optimizer, 0.7, distribution="uniform", backend="sparse")
    message = str(caught.value)
    assert message.startswith("backend 'sparse' is not possible: ")
    assert "\n" not in message
    # "auto" goes on without.
    Sparsifier(model, optimizer, 0.7, distribution="uniform", backend="auto")
    assert not any(isinstance(m, SparseLayer) for m in model.modules())
    return message


@built
def test_a_wrapped_network_can_not_be_made_sparse() -> None:
    model = mlp()
    assert "wrap the network" in refusal(torch.compile(model, backend="eager"), model)
    assert "wrap the network" in refusal(nn.DataParallel(model), model)


def test_without_kernels_nothing_can_be_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "available", lambda: False)
    assert "install a C++ compiler" in refusal(mlp())


@built
def test_a_network_without_a_layer_for_the_kernels_can_not_be_sparse() -> None:
    assert "no layer can be sparse" in refusal(nn.Sequential(nn.GRU(4, 6)))
    assert "no layer can be sparse" in refusal(mlp().double())


def test_an_unknown_backend_offers_the_nearest() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnknownNameError, match="unknown backend 'spars': did you mean 'sparse'"):
        Sparsifier(model, optimizer, 0.7, backend="spars")  # type: ignore[arg-type]
    assert all(type(module) is not SparseLinear for module in model.modules())


# ---- saving


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@built
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_resumed_sparse_run_ends_bit_for_bit_as_a_whole_one(
    same: Callable[[Any, Any], bool], optimizer: str, build: Callable[..., Any]
) -> None:
    whole = start("sparse", build, optimizer)
    whole.train(range(6))
    first = start("sparse", build, optimizer)
    first.train(range(3))
    state = through_a_file(first.state())
    second = start("sparse", build, optimizer, seed=5)
    second.load(state)
    second.train(range(3, 6))
    assert same(weights(second), weights(whole))
    assert same(second.optimizer.state_dict(), whole.optimizer.state_dict())
    assert same(second.sparsifier.state_dict(), whole.sparsifier.state_dict())


@built
def test_states_may_be_loaded_in_any_order() -> None:
    first = start("sparse")
    first.train(range(3))
    state = through_a_file(first.state())
    second = start("sparse", seed=5)
    second.sparsifier.load_state_dict(state["sparsifier"])
    second.model.load_state_dict(state["model"])
    second.optimizer.load_state_dict(state["optimizer"])
    for run in (first, second):
        run.train(range(3, 6))
    assert_alike(second, first, 0)


@built
def test_the_weights_alone_are_refused_until_the_topology_follows() -> None:
    first, second = start("sparse"), start("sparse", seed=5)
    second.model.load_state_dict(first.model.state_dict())
    with pytest.raises(FreeTicketsError, match="load the sparsifier's state too"):
        second.train(range(1))
    second.sparsifier.load_state_dict(first.sparsifier.state_dict())
    second.train(range(1))


@built
def test_what_auto_chose_is_saved_and_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, ops.ALL)
    first = start("auto")
    first.train(range(3))
    state = through_a_file(first.state())
    made = state["sparsifier"]["choices"]
    assert set(made["ways"].values()) == {"PyTorch / PyTorch / PyTorch"}
    choose(monkeypatch, 0)
    second = start("auto", seed=5)
    second.load(state)
    second.train(range(3, 6))
    assert second.sparsifier.state_dict()["choices"] == made
    other = start("auto")
    other.train(range(1))
    found = other.sparsifier.state_dict()["choices"]["ways"]
    assert set(found.values()) == {"sparse / sparse / sparse"}


@built
@pytest.mark.parametrize("backend", ["sparse", "auto"])
def test_network_and_topology_of_one_backend_fit_the_other(backend: str) -> None:
    first, second = start(backend), start("masked", seed=5)
    first.train(range(3))
    for source, target in ((first, second), (second, first)):
        target.model.load_state_dict(source.model.state_dict())
        target.sparsifier.load_state_dict(source.sparsifier.state_dict())
        x, _ = first.inputs(9)
        assert_close(target.model(x).detach(), source.model(x).detach(), 1e-5, "outputs")
        assert target.sparsifier.digest == source.sparsifier.digest


@built
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "ASGD"])
@pytest.mark.parametrize("backends", [("masked", "sparse"), ("sparse", "masked")], ids="-".join)
def test_a_run_of_one_backend_goes_on_with_the_other(
    backends: tuple[str, str], optimizer: str
) -> None:
    """On a machine without the kernels, say; or a checkpoint from before there were any."""
    first = start(backends[0], convnet, optimizer)
    first.train(range(3))
    second = start(backends[1], convnet, optimizer, seed=5)
    second.load(through_a_file(first.state()))
    assert_alike(second, first, 0)
    for run in (first, second):
        run.train(range(3, 7))
    assert_alike(second, first, 1e-3)


@built
def test_a_copy_trains_on_alike_and_alone() -> None:
    run = start("sparse", convnet, "Adam")
    run.train(range(3))
    twin = Run(*copy.deepcopy(tuple(run)))
    before = weights(run)
    twin.train(range(3, 7))
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(run).items())
    run.train(range(3, 7))
    assert_alike(twin, run, 0)


@built
def test_a_detached_run_goes_on_with_dense_weights(fast: str) -> None:
    sparse, masked = runs = pair(fast, convnet, "Adam")
    types = [type(module) for module in masked.model.modules()]
    for run in runs:
        run.train(range(3))
        run.sparsifier.detach()
    assert [type(module) for module in sparse.model.modules()] == types
    assert_alike(sparse, masked, 1e-3)
    x, target = sparse.inputs(3)
    for run in runs:
        run.optimizer.zero_grad()
        nn.functional.mse_loss(run.model(x), target).backward()
        run.optimizer.step()
        assert run.model[6].weight.all()
    expected = weights(masked)
    for name, tensor in weights(sparse).items():
        assert_close(tensor, expected[name], 0.05, name)


# ---- a whole run


@built
def test_a_whole_run_is_as_good_and_its_tickets_load_anywhere(
    images_npz: Path, tmp_path: Path
) -> None:
    ensembles = {}
    for backend in ("sparse", "masked"):
        ensembles[backend] = ft.EDST(tickets=2, sparsity=0.7, interval=4).fit(
            "cnn-4", str(images_npz), epochs=6, batch_size=16, quiet=True, lr=0.05,
            backend=backend, output=tmp_path / backend,
        )  # fmt: skip
    with images_npz.open("rb") as file:
        import numpy as np

        data = np.load(file)
        x, labels = data["x_test"], data["y_test"]
        x = x if x.ndim == 4 else x[:, None]
    accuracies = {}
    for name, ensemble in ensembles.items():
        assert len(ensemble.tickets) == 2
        accuracies[name] = float((ensemble.predict_proba(x).argmax(1) == labels).mean())
    assert accuracies["sparse"] == pytest.approx(accuracies["masked"], abs=0.07)
    assert accuracies["sparse"] > 0.8
    states = {name: ensemble.tickets[0] for name, ensemble in ensembles.items()}
    assert states["sparse"].state.keys() == states["masked"].state.keys()
    for name, mask in states["sparse"].topology.items():
        assert mask.shape == states["sparse"].state[name].shape
        assert mask.sum() == states["masked"].topology[name].sum()
        assert not states["sparse"].state[name][~mask].any()
    again = ft.load(tmp_path / "sparse")
    assert np.array_equal(again.predict_proba(x), ensembles["sparse"].predict_proba(x))
