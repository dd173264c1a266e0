"""Each method of the literature, against its algorithm written down in plain NumPy and loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.sparsity import CRITERIA, SCORES, SPARSE_METHODS, allocate, sparse_method
from freetickets.sparsity.named import CRITERION_NAMES, SCORE_NAMES

from .reference import Reference, assert_equal, start, top
from .training import Run, mlp, properties

STEPS, INTERVAL, RATE = 24, 2, 0.4


def prepared(name, sparsity=0.7, **overrides):
    options = {"steps": STEPS, "rate": RATE, "interval": INTERVAL, **overrides}
    return start(sparsity, named=name, **options)


def set_gradients(run, step):
    """Random gradients, of another size in each layer."""
    run.set_gradients(step)
    for size, parameter in enumerate(run.model.parameters(), start=1):
        parameter.grad *= size
    return {n: p.grad.flatten().numpy().copy() for n, p in run.model.named_parameters()}


def in_proportion(total, wishes):
    """Whole numbers by the largest remainder."""
    exact = {name: total * wish / sum(wishes.values()) for name, wish in wishes.items()}
    counts = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: exact[name] - counts[name], reverse=True)
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


class Scheduled(Reference):
    """Explores as all methods do that explore."""

    def change(self, step, gradients, source):
        if step % INTERVAL == 0 and step <= STEPS - INTERVAL:
            rate = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
            self.explore(rate, gradients, source)


class Set(Scheduled):
    def growth(self, name, gradients, source):
        return self.drawn(name, source)


class RigL(Scheduled):
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


class Snfs(Scheduled):
    def wishes(self, kept):
        return {n: np.abs(self.running[n][list(on)]).mean() for n, on in self.active.items()}

    def counts(self, kept):
        lost = sum(len(self.active[name]) - len(kept[name]) for name in kept)
        counts = in_proportion(lost, self.wishes(kept))
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

    counts = Snfs.counts

    def wishes(self, kept):
        return {name: len(stay) for name, stay in kept.items()}


class Itop(Scheduled):
    def growth(self, name, gradients, source):
        drawn = self.drawn(name, source)
        return [(i not in self.fired[name], float(x)) for i, x in enumerate(drawn)]


class Mest(Set):
    def importance(self, name, gradients):
        return np.abs(self.weights[name]) + np.abs(gradients[name])


class Gmp(Scheduled):
    initial, final = 0.0, 0.7
    end = 18  # three quarters of the steps

    def change(self, step, gradients, source):
        if step <= self.end and (step % INTERVAL == 0 or step == self.end):
            left = (1 - step / self.end) ** 3
            sparsity = self.final + (self.initial - self.final) * left
            counts = allocate(self.shapes, sparsity, "uniform")
            for name, on in self.active.items():
                stay = top(np.abs(self.weights[name]), min(len(on), counts[name]), on)
                self.drop(name, stay, stay)
                self.active[name] = stay


class GraNet(Gmp):
    initial = 0.5

    def change(self, step, gradients, source):
        super().change(step, gradients, source)
        Scheduled.change(self, step, gradients, source)


class Static(Reference):
    def change(self, step, gradients, source):
        pass


REFERENCES = {
    "set": Set, "rigl": RigL, "srigl": SRigL, "snfs": Snfs, "dsr": Dsr, "itop": Itop,
    "mest": Mest, "granet": GraNet, "gmp": Gmp, "static": Static,
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_a_named_method_is_its_algorithm(name):
    run = prepared(name)
    reference = REFERENCES[name](run)
    topologies = {run.digest}
    for step in range(1, STEPS + 1):
        gradients = set_gradients(run, step)
        source = torch.Generator()
        source.set_state(run.sparsifier.state_dict()["generator"])
        reference.step(step, gradients, source)
        run.step()
        assert_equal(run, reference.active, reference.weights, reference.moments)
        topologies.add(run.digest)
    # GMP's last prunings, and DSR's first explorations, are of less than a weight.
    assert len(topologies) == {"static": 1, "gmp": 9, "dsr": 9}.get(name, 12)
    assert run.sparsifier.sparsity == pytest.approx(0.7, abs=0.01)


def test_top_kast_is_its_algorithm():
    """All values are kept; the strongest are seen, the next strongest train, the rest waits."""
    run = prepared("top-kast")
    fresh = prepared("top-kast", None)
    values = {n: fresh.weight(n).detach().flatten().numpy().copy() for n in run.shapes}
    moments = {name: np.zeros_like(weight) for name, weight in values.items()}
    seen = {name: set() for name in values}

    def chosen(name):
        """Where the weights are active, and where they train."""
        order = np.argsort(-np.abs(values[name]))
        reserve = round(0.1 * len(order))
        ends = run.counts[name], run.counts[name] + reserve
        return [np.isin(np.arange(len(order)), order[:end]) for end in ends]

    sets = {name: chosen(name) for name in values}
    for step in range(1, STEPS + 1):
        gradients = set_gradients(run, step)
        run.step()
        for name, weight in values.items():
            moments[name] = np.where(sets[name][1], 0.9 * moments[name] + gradients[name], 0)
            weight -= 0.1 * moments[name]
            if step % INTERVAL == 0 and step <= STEPS - INTERVAL:
                sets[name] = chosen(name)
            moments[name] = np.where(sets[name][1], moments[name], 0)
            seen[name].add(frozenset(np.flatnonzero(sets[name][0])))
        active = {name: set(np.flatnonzero(on)) for name, (on, _) in sets.items()}
        visible = {name: np.where(sets[name][0], w, 0) for name, w in values.items()}
        assert_equal(run, active, visible, moments)
    assert all(len(different) > 3 for different in seen.values())


def test_options_are_checked_and_overrides_win():
    with pytest.raises(UnknownNameError, match=r"unknown sparse method .* did you mean 'rigl'"):
        sparse_method("riggl")
    with pytest.raises(FreeTicketsError, match="steps must be at least 1"):
        sparse_method("set").options(0.8, 0)
    assert prepared("gmp", pruning=None).sparsifier.topology == {}
    options = sparse_method("rigl").options(0.8, 1000)
    assert [step for step in range(1, 1200) if options["exploration"](step)][-1] == 990


@properties(30)
@given(
    st.sampled_from(sorted(SPARSE_METHODS)),
    st.integers(0, 99),
    st.floats(0.3, 0.9),
    st.floats(0.05, 1.0),
)
def test_totals_hold_and_what_is_inactive_is_zero(name, seed, sparsity, rate):
    options = {"distribution": "erk", "rate": rate, "backend": "auto"}
    run = Run(mlp, "Adam", sparsity, seed=seed, named=name, **options)
    total, gradual = sum(run.counts.values()), sparse_method(name).gradual
    for step in range(24 if gradual else 14):
        run.train([step])
        now = sum(run.counts.values())
        assert now <= total if gradual else now == total
        total = now
        for weight_name, mask in run.sparsifier.topology.items():
            assert (run.weight(weight_name)[~mask] == 0).all()
            assert mask.any()
        if name != "top-kast":  # whose reserve has state
            run.assert_zero_outside()
    if gradual:
        assert run.counts == allocate(run.shapes, sparsity)


def test_every_method_has_a_reference_and_names_known_without_torch_are_all():
    assert REFERENCES.keys() | {"top-kast"} == SPARSE_METHODS.keys()
    assert set(SCORE_NAMES) == SCORES.keys()
    assert set(CRITERION_NAMES) == CRITERIA.keys()
