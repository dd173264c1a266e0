"""The small training that most tests of this folder start from."""

import copy
import io
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from freetickets.kernels.library import available
from freetickets.sparsity import Exploration, Sparsifier

built = pytest.mark.skipif(not available(), reason="the sparse kernels are not built")
# Each backend that leaves a network's layers alone; the fixture has all.
two_backends = pytest.mark.parametrize("backend", ["masked", pytest.param("auto", marks=built)])

# Every optimizer of torch, as far as this version has it.
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
    "Adafactor": {"lr": 1e-2},
    "LBFGS": {"lr": 0.3, "max_iter": 3},
    "Muon": {"lr": 1e-2, "weight_decay": 0.1},
}


def properties(examples):
    """Hypothesis with the same examples in every run."""
    return settings(deadline=None, derandomize=True, database=None, max_examples=examples)


def poured(total, wishes, capacities):
    """Exact shares by bisection: a scale at which the capped wishes add up to the total."""
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        spent = sum(min(c, middle * w) for w, c in zip(wishes, capacities, strict=True))
        low, high = (middle, high) if spent < total else (low, middle)
    return [min(c, high * w) for w, c in zip(wishes, capacities, strict=True)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def mlp(bias=True):
    return nn.Sequential(
        nn.Linear(12, 24, bias), nn.Tanh(), nn.Linear(24, 18, bias), nn.Tanh(),
        nn.Linear(18, 6, bias),
    )  # fmt: skip


def matrices():
    """Without vectors, which Muon does not take."""
    return mlp(bias=False)


def convnet():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
        nn.Tanh(), nn.Conv2d(8, 8, 3, stride=2),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 6),
    )  # fmt: skip


class Tokens(nn.Module):
    """Tells sequences of 8 numbers apart by what a body makes of them."""

    def __init__(self, body, width):
        super().__init__()
        self.body, self.head = body, nn.Linear(width, 3)

    def forward(self, tokens):
        found = self.body(tokens)
        return self.head((found[0] if isinstance(found, tuple) else found).mean(1))


def recurrent(dropout=0.0):
    both = {"bidirectional": True, "batch_first": True}
    return Tokens(nn.LSTM(8, 6, num_layers=2, dropout=dropout, **both), 12)


def transformer(dropout=0.0):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
    return Tokens(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), 8)


class Bag(nn.Module):
    """Layers without a forward pass, for tests that set the gradients themselves."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.a = nn.Linear(10, 12, bias=False, dtype=dtype)
        self.b = nn.Conv2d(4, 6, 3, bias=False, dtype=dtype)
        self.c = nn.Linear(7, 9, bias=False, dtype=dtype)


class Run:
    """A network, its optimizer and its sparsifier, in a plain loop.

    If the sparsity is None, it has none until `sparsify` makes it. `more` are settings of the
    optimizer, `options` arguments of the sparsifier, and `named` for a method of that name.
    """

    sparsifier: Sparsifier

    def __init__(self, build=mlp, optimizer="SGD", sparsity=0.7, *, seed=0, more=None, **options):
        torch.manual_seed(seed)
        self.model = build()
        settings = {**OPTIMIZERS[optimizer], **(more or {})}
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), **settings)
        if sparsity is not None:
            self.sparsify(sparsity, seed=seed, **options)

    def sparsify(self, sparsity=0.7, *, named=None, **options):
        parts = self.model, self.optimizer, sparsity
        defaults: dict[str, Any] = {"distribution": "uniform", "backend": "masked"}
        if named is not None:
            options = {**defaults, "steps": 24, "interval": 3, **options}
            self.sparsifier = Sparsifier.named(named, *parts, **options)
        else:
            options = {**defaults, "exploration": Exploration(interval=2), **options}
            self.sparsifier = Sparsifier(*parts, **options)

    def batch(self, step, size=20):
        first = next(m for m in self.model.modules() if isinstance(m, nn.Linear | nn.Conv2d))
        shape = (first.in_channels, 7, 7) if isinstance(first, nn.Conv2d) else (first.in_features,)
        drawn = torch.randn(size, *shape, generator=generator(step))
        return drawn.to(next(self.model.parameters()).dtype)

    def loss(self, inputs, model=None):
        """To be learned: some of the inputs, in reverse order."""
        outputs = (model or self.model)(inputs).flatten(1)
        targets = inputs.flatten(1).flip(1)[:, : outputs.shape[1]]
        return nn.functional.mse_loss(outputs.to(targets.dtype), targets)

    def backward(self, step=0, model=None):
        self.optimizer.zero_grad()
        loss = self.loss(self.batch(step), model)
        loss.backward()
        return loss

    def step(self):
        self.optimizer.step()
        return self.sparsifier.step()

    def train(self, steps, model=None):
        """Returns for each step whether it explored."""
        explored = []
        for step in steps:
            if isinstance(self.optimizer, torch.optim.LBFGS):
                self.optimizer.step(lambda step=step: self.backward(step, model))
            else:
                self.backward(step, model)
                self.optimizer.step()
            explored.append(self.sparsifier.step())
        return explored

    @property
    def counts(self):
        """The active weights of each layer, dense ones included."""
        return {row.name: row.nonzeros for row in self.sparsifier.statistics()}

    @property
    def shapes(self):
        return {row.name: row.shape for row in self.sparsifier.statistics()}

    @property
    def digest(self):
        return self.sparsifier.digest

    def weight(self, name):
        """A weight, zeros and all, in whichever way it is held."""
        path, _, own_name = name.rpartition(".")
        return getattr(self.model.get_submodule(path), own_name)

    def set_gradients(self, seed=None):
        """Random gradients; returns copies, because the sparsifier masks the originals."""
        source = generator(torch.seed() if seed is None else seed)
        for parameter in self.model.parameters():
            drawn = torch.randn(parameter.shape, generator=source, dtype=torch.float64)
            parameter.grad = drawn.to(parameter.dtype)
        return {name: p.grad.clone() for name, p in self.model.named_parameters()}

    # ---- saving

    @property
    def parts(self):
        return {name: getattr(self, name) for name in ("model", "optimizer", "sparsifier")}

    def state(self):
        """The three states, through a file."""
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def load(self, state, *order):
        for name in order or self.parts:
            getattr(self, name).load_state_dict(copy.deepcopy(state[name]))

    def twin(self):
        """A copy of all three at once."""
        other = copy.copy(self)
        vars(other).update(copy.deepcopy(self.parts))
        return other

    # ---- comparing

    def numbers(self):
        """All weights, and the optimizer's state at active places."""
        found, masks = dict(self.model.state_dict()), self.sparsifier.topology
        if isinstance(self.optimizer, torch.optim.LBFGS):
            return found
        for name, parameter in self.model.named_parameters():
            if name.endswith("values"):
                name = name.removesuffix("values") + "weight"
            for key, value in self.optimizer.state.get(parameter, {}).items():
                mask = masks.get(name)
                whole = mask is None or value.shape != mask.shape
                found[f"{key} of {name}"] = value if whole else value[mask]
        return found

    def assert_zero_outside(self):
        """No weight lies outside the topology, and nothing that the optimizer knows of one."""
        for name, mask in self.sparsifier.topology.items():
            weight = self.weight(name)
            assert (weight[~mask] == 0).all(), name
            for key, value in self.optimizer.state.get(weight, {}).items():
                if isinstance(value, Tensor) and value.shape == weight.shape:
                    assert (value[~mask] == 0).all(), (key, name)


def assert_close(found, expected, tolerance, what=""):
    assert found.shape == expected.shape, what
    scale = expected.detach().double().abs().max().clamp(min=1e-12)
    assert (found.double() - expected.double()).abs().max() <= tolerance * scale, what


def assert_alike(run, other, tolerance=0.0):
    """The same topologies and numbers, however they are held; without a tolerance to the bit."""
    assert run.sparsifier.steps == other.sparsifier.steps
    assert run.digest == other.digest
    assert run.sparsifier.statistics() == other.sparsifier.statistics()
    mine, theirs = run.numbers(), other.numbers()
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        assert_close(mine[name], value, tolerance, name)
    if not tolerance:
        states = [each.sparsifier.state_dict()["threshold"] for each in (run, other)]
        assert states[0] == states[1]


def has_structure(name, mask):
    """The definitions of structures, entry by entry."""
    if name == "unstructured":
        return True
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
