"""Each method of the literature, against its algorithm written down in plain NumPy and loops."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.sparsity import (
    CRITERIA,
    SCORES,
    SPARSE_METHODS,
    Sparsifier,
    allocate,
    sparse_method,
)
from freetickets.sparsity.named import CRITERION_NAMES, SCORE_NAMES

PROPERTY = settings(deadline=None, derandomize=True, database=None, max_examples=30)
SGD = {"lr": 0.1, "momentum": 0.9}
STEPS, INTERVAL, RATE = 24, 2, 0.4


class Bag(nn.Module):
    """Layers without a forward pass: the tests set the gradients themselves."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 12, bias=False, dtype=torch.float64)
        self.b = nn.Conv2d(4, 6, 3, bias=False, dtype=torch.float64)
        self.c = nn.Linear(7, 9, bias=False, dtype=torch.float64)


def prepared(name, sparsity=0.7, seed=0, **overrides):
    torch.manual_seed(seed)
    bag = Bag()
    optimizer = torch.optim.SGD(bag.parameters(), **SGD)
    options = {"steps": STEPS, "rate": RATE, "interval": INTERVAL, "backend": "masked"}
    options |= {"distribution": "uniform", "seed": seed}
    start = {name: parameter.detach().clone() for name, parameter in bag.named_parameters()}
    sparsifier = Sparsifier.named(name, bag, optimizer, sparsity, **{**options, **overrides})
    return bag, optimizer, sparsifier, start


def set_gradients(bag, step):
    """Random gradients, of another size in each layer."""
    source = torch.Generator().manual_seed(step)
    gradients = {}
    for size, (name, parameter) in enumerate(bag.named_parameters(), start=1):
        parameter.grad = size * torch.randn(parameter.shape, generator=source, dtype=torch.float64)
        gradients[name] = parameter.grad.flatten().numpy().copy()
    return gradients


def top(scores, count, candidates):
    """The places of the `count` highest scores among the candidates."""
    return set(sorted(candidates, key=lambda i: scores[i], reverse=True)[:count])


def cosine_rate(step):
    return RATE * (1 + math.cos(math.pi * step / STEPS)) / 2


class Reference:
    """A sparse training in plain NumPy: SGD with momentum on masked weights.

    Subclasses say what is kept, how many weights each layer grows, and by which score.
    """

    def __init__(self, bag, sparsifier):
        self.shapes = {n: tuple(p.shape) for n, p in bag.named_parameters()}
        self.weights = {n: p.detach().flatten().numpy().copy() for n, p in bag.named_parameters()}
        self.active = {
            n: set(np.flatnonzero(mask.flatten().numpy()))
            for n, mask in sparsifier.topology.items()
        }
        self.fired = copy.deepcopy(self.active)
        self.moments = {n: np.zeros_like(w) for n, w in self.weights.items()}
        self.running = {n: np.zeros_like(w) for n, w in self.weights.items()}

    def step(self, step, gradients, source):
        for name, weight in self.weights.items():
            on = np.isin(np.arange(weight.size), list(self.active[name]))
            self.moments[name] = np.where(on, 0.9 * self.moments[name] + gradients[name], 0)
            weight -= 0.1 * self.moments[name]
            self.running[name] = 0.9 * self.running[name] + 0.1 * gradients[name]
        self.change(step, gradients, source)

    def change(self, step, gradients, source):
        if step % INTERVAL == 0 and step <= STEPS - INTERVAL:
            self.explore(cosine_rate(step), gradients, source)

    def explore(self, rate, gradients, source):
        kept = self.kept(rate, gradients)
        counts = self.counts(kept)
        for name in self.weights:
            scores = self.growth(name, gradients, source)
            new = self.grown(name, scores, counts[name], kept[name])
            self.drop(name, self.values_that_stay(name, kept[name], new), kept[name])
            self.active[name] = kept[name] | new
            self.fired[name] |= new

    def grown(self, name, scores, count, kept):
        return top(scores, count, set(range(len(scores))) - kept)

    def drop(self, name, values, state):
        for place in range(self.weights[name].size):
            if place not in values:
                self.weights[name][place] = 0
            if place not in state:
                self.moments[name][place] = 0

    def values_that_stay(self, name, kept, new):
        return kept

    def importance(self, name, gradients):
        return np.abs(self.weights[name])

    def kept(self, rate, gradients):
        return {
            name: top(
                self.importance(name, gradients), len(on) - math.ceil(rate * len(on) - 1e-9), on
            )
            for name, on in self.active.items()
        }

    def counts(self, kept):
        return {name: len(self.active[name]) - len(kept[name]) for name in kept}

    def growth(self, name, gradients, source):
        return np.abs(gradients[name])

    def drawn(self, name, source):
        return torch.rand(self.shapes[name], generator=source).flatten().numpy()


def in_proportion(total, wishes):
    """Whole numbers by the largest remainder."""
    exact = {name: total * wish / sum(wishes.values()) for name, wish in wishes.items()}
    counts = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: exact[name] - counts[name], reverse=True)
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


class Set(Reference):
    def growth(self, name, gradients, source):
        return self.drawn(name, source)


class RigL(Reference):
    def values_that_stay(self, name, kept, new):
        return kept | (new & self.active[name])


class SRigL(RigL):
    """The layer's weakest go, then each output is filled up by itself."""

    def grown(self, name, scores, count, kept):
        outputs, new = self.shapes[name][0], set()
        fan_in, inputs = (n // outputs for n in (len(self.active[name]), len(scores)))
        assert fan_in * outputs == len(self.active[name])
        for first in range(0, len(scores), inputs):
            row = set(range(first, first + inputs))
            new |= top(scores, fan_in - len(row & kept), row - kept)
        assert len(new) == count
        return new


class Snfs(Reference):
    def counts(self, kept):
        lost = sum(len(self.active[name]) - len(kept[name]) for name in kept)
        means = {n: np.abs(self.running[n][list(on)]).mean() for n, on in self.active.items()}
        counts = in_proportion(lost, means)
        assert all(counts[n] <= self.weights[n].size - len(kept[n]) for n in counts)
        return counts

    def growth(self, name, gradients, source):
        return np.abs(self.running[name])


class Dsr(Set):
    threshold = 1e-3

    def kept(self, rate, gradients):
        total = sum(len(on) for on in self.active.values())
        kept = {
            name: {i for i in on if abs(self.weights[name][i]) >= self.threshold}
            for name, on in self.active.items()
        }
        pruned = total - sum(map(len, kept.values()))
        if pruned < 0.9 * rate * total:
            self.threshold *= 2
        elif pruned > 1.1 * rate * total:
            self.threshold /= 2
        return kept

    def counts(self, kept):
        lost = sum(len(self.active[name]) - len(kept[name]) for name in kept)
        counts = in_proportion(lost, {name: len(stay) for name, stay in kept.items()})
        assert all(counts[n] <= self.weights[n].size - len(kept[n]) for n in counts)
        return counts


class Itop(Reference):
    def growth(self, name, gradients, source):
        drawn = self.drawn(name, source)
        return [(i not in self.fired[name], float(x)) for i, x in enumerate(drawn)]


class Mest(Set):
    def importance(self, name, gradients):
        return np.abs(self.weights[name]) + np.abs(gradients[name])


class Gmp(Reference):
    initial, final = 0.0, 0.7
    end = 18  # three quarters of the steps

    def change(self, step, gradients, source):
        if step <= self.end and (step % INTERVAL == 0 or step == self.end):
            left = (1 - step / self.end) ** 3
            counts = allocate(
                self.shapes, self.final + (self.initial - self.final) * left, "uniform"
            )
            for name, on in self.active.items():
                stay = top(np.abs(self.weights[name]), min(len(on), counts[name]), on)
                self.drop(name, stay, stay)
                self.active[name] = stay


class GraNet(Gmp):
    initial = 0.5

    def change(self, step, gradients, source):
        super().change(step, gradients, source)
        Reference.change(self, step, gradients, source)


class Static(Reference):
    def change(self, step, gradients, source):
        pass


REFERENCES = {
    "set": Set, "rigl": RigL, "srigl": SRigL, "snfs": Snfs, "dsr": Dsr, "itop": Itop,
    "mest": Mest, "granet": GraNet, "gmp": Gmp, "static": Static,
}  # fmt: skip


def assert_equal(bag, optimizer, sparsifier, reference, step):
    for name, mask in sparsifier.topology.items():
        assert set(np.flatnonzero(mask.flatten().numpy())) == reference.active[name], (name, step)
        weight = bag.get_parameter(name)
        np.testing.assert_allclose(
            weight.detach().flatten(), reference.weights[name], rtol=1e-9, atol=1e-12
        )
        moments = optimizer.state[weight]["momentum_buffer"]
        np.testing.assert_allclose(
            moments.flatten(), reference.moments[name], rtol=1e-9, atol=1e-12
        )


def test_every_method_has_a_reference():
    assert REFERENCES.keys() | {"top-kast"} == SPARSE_METHODS.keys()


@pytest.mark.parametrize("name", REFERENCES)
def test_a_named_method_is_its_algorithm(name):
    bag, optimizer, sparsifier, _ = prepared(name)
    reference = REFERENCES[name](bag, sparsifier)
    topologies = {sparsifier.digest}
    for step in range(1, STEPS + 1):
        gradients = set_gradients(bag, step)
        source = torch.Generator()
        source.set_state(sparsifier.state_dict()["generator"])
        optimizer.step()
        reference.step(step, gradients, source)
        sparsifier.step()
        assert_equal(bag, optimizer, sparsifier, reference, step)
        topologies.add(sparsifier.digest)
    # GMP's last prunings, and DSR's first explorations, are of less than a weight.
    assert len(topologies) == {"static": 1, "gmp": 9, "dsr": 9}.get(name, 12)
    assert sparsifier.sparsity == pytest.approx(0.7, abs=0.01)


def test_top_kast_is_its_algorithm():
    """All values are kept; the strongest are seen, the next strongest train, the rest waits."""
    bag, optimizer, sparsifier, start = prepared("top-kast")
    values = {name: weight.flatten().numpy().copy() for name, weight in start.items()}
    moments = {name: np.zeros_like(weight) for name, weight in values.items()}
    counts = {row.name: row.nonzeros for row in sparsifier.statistics()}

    def chosen(name):
        order = list(np.argsort(-np.abs(values[name])))
        reserve = round(0.1 * len(order))
        return set(order[: counts[name]]), set(order[: counts[name] + reserve])

    sets = {name: chosen(name) for name in values}
    seen = {name: set() for name in values}
    for step in range(1, STEPS + 1):
        gradients = set_gradients(bag, step)
        optimizer.step()
        sparsifier.step()
        for name, weight in values.items():
            trained = np.isin(np.arange(weight.size), list(sets[name][1]))
            moments[name] = np.where(trained, 0.9 * moments[name] + gradients[name], 0)
            weight -= 0.1 * moments[name]
            if step % INTERVAL == 0 and step <= STEPS - INTERVAL:
                sets[name] = chosen(name)
            trained = np.isin(np.arange(weight.size), list(sets[name][1]))
            moments[name] = np.where(trained, moments[name], 0)
            active = np.isin(np.arange(weight.size), list(sets[name][0]))
            seen[name].add(frozenset(sets[name][0]))
            parameter = bag.get_parameter(name)
            assert (sparsifier.topology[name].flatten().numpy() == active).all()
            np.testing.assert_allclose(
                parameter.detach().flatten(), np.where(active, weight, 0), rtol=1e-9, atol=1e-12
            )
            buffer = optimizer.state[parameter]["momentum_buffer"]
            np.testing.assert_allclose(buffer.flatten(), moments[name], rtol=1e-9, atol=1e-12)
    assert all(len(different) > 3 for different in seen.values())


def test_itop_reaches_more_weights_than_set():
    rates = {}
    for name in ("set", "itop"):
        bag, optimizer, sparsifier, _ = prepared(name, 0.8)
        for step in range(1, STEPS + 1):
            set_gradients(bag, step)
            optimizer.step()
            sparsifier.step()
        rates[name] = sparsifier.itop_rate
    assert rates["itop"] > rates["set"] + 0.05


def test_an_unknown_method_is_refused():
    with pytest.raises(UnknownNameError, match=r"unknown sparse method .* did you mean 'rigl'"):
        sparse_method("riggl")
    with pytest.raises(FreeTicketsError, match="steps must be at least 1"):
        sparse_method("set").options(0.8, 0)


def test_overrides_win():
    _, _, sparsifier, _ = prepared("gmp", pruning=None)
    assert sparsifier.topology == {}
    options = sparse_method("rigl").options(0.8, 1000)
    assert [step for step in range(1, 1200) if options["exploration"](step)][-1] == 990


# ---- promises of all methods


class Net:
    def __init__(self, name, seed=0, sparsity=0.7, rate=0.5):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 10)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01, weight_decay=0.1)
        self.sparsifier = Sparsifier.named(
            name,
            self.model,
            self.optimizer,
            sparsity,
            steps=STEPS,
            interval=3,
            seed=seed,
            rate=rate,
        )

    def train(self, steps):
        for step in steps:
            x = torch.randn(16, 10, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), x.flip(1)).backward()
            self.optimizer.step()
            self.sparsifier.step()

    @property
    def parts(self):
        return self.model, self.optimizer, self.sparsifier

    def total(self):
        return sum(row.nonzeros for row in self.sparsifier.statistics())


def through_a_file(parts):
    file = io.BytesIO()
    torch.save([part.state_dict() for part in parts], file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same(net, other):
    assert net.sparsifier.digest == other.sparsifier.digest
    assert net.sparsifier.statistics() == other.sparsifier.statistics()
    for mine, theirs in zip(net.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        for key, value in net.optimizer.state[mine].items():
            assert torch.equal(value, other.optimizer.state[theirs][key]), key
    assert net.sparsifier.state_dict()["threshold"] == other.sparsifier.state_dict()["threshold"]


@pytest.mark.parametrize("name", SPARSE_METHODS)
@pytest.mark.parametrize("killed_after", [0, 6, 8])
def test_a_resumed_run_ends_bit_for_bit_as_the_one_that_was_not_killed(name, killed_after):
    whole, killed, resumed = Net(name), Net(name), Net(name, seed=9)
    whole.train(range(STEPS))
    killed.train(range(killed_after))
    state = through_a_file(killed.parts)
    resumed.train(range(2))  # whatever it did before is forgotten
    for part, saved in zip(resumed.parts, state, strict=True):
        part.load_state_dict(saved)
    resumed.train(range(killed_after, STEPS))
    assert_same(whole, resumed)


@pytest.mark.parametrize("name", SPARSE_METHODS)
def test_a_copy_trains_on_alike_and_alone(name):
    net, twin = Net(name), Net(name)
    net.train(range(7))
    twin.model, twin.optimizer, twin.sparsifier = copy.deepcopy(net.parts)
    digest = net.sparsifier.digest
    twin.train(range(7, STEPS))
    assert net.sparsifier.digest == digest
    net.train(range(7, STEPS))
    assert_same(net, twin)


@PROPERTY
@given(
    st.sampled_from(sorted(SPARSE_METHODS)),
    st.integers(0, 99),
    st.floats(0.3, 0.9),
    st.floats(0.05, 1.0),
)
def test_totals_hold_and_what_is_inactive_is_zero(name, seed, sparsity, rate):
    net = Net(name, seed, sparsity, rate)
    total, gradual = net.total(), sparse_method(name).gradual
    for step in range(14):
        net.train([step])
        assert net.total() <= total if gradual else net.total() == total
        total = net.total()
        for weight_name, mask in net.sparsifier.topology.items():
            weight = net.model.state_dict()[weight_name]
            assert (weight[~mask] == 0).all()
            assert mask.sum() > 0
            parameter = dict(net.model.named_parameters()).get(weight_name)
            if parameter is None or name == "top-kast":  # a sparse layer; a reserve has state
                continue
            for value in net.optimizer.state[parameter].values():
                if value.shape == mask.shape:
                    assert (value[~mask] == 0).all()
    if gradual:
        net.train(range(14, STEPS))
        shapes = {row.name: row.shape for row in net.sparsifier.statistics()}
        expected = allocate(shapes, sparsity)
        assert {row.name: row.nonzeros for row in net.sparsifier.statistics()} == expected


def test_the_names_that_are_known_without_torch_are_all() -> None:
    assert set(SCORE_NAMES) == SCORES.keys()
    assert set(CRITERION_NAMES) == CRITERIA.keys()
