"""Each method of the literature, against its algorithm written down in plain NumPy and loops."""

import math

import numpy as np
import pytest

from freetickets.errors import UnknownNameError
from freetickets.sparsity import CRITERIA, SCORES, SPARSE_METHODS, allocate, sparse_method
from freetickets.sparsity.named import CRITERION_NAMES, SCORE_NAMES

from . import reference as ref

STEPS, INTERVAL, RATE = 24, 2, 0.4


def prepared(name, sparsity=0.7, **overrides):
    options = {"steps": STEPS, "rate": RATE, "interval": INTERVAL, **overrides}
    return ref.start(sparsity, named=name, **options)


def set_gradients(run, step):
    """Random gradients, of another size in each layer."""
    run.set_gradients(step)
    for size, parameter in enumerate(run.model.parameters(), start=1):
        parameter.grad *= size
    return ref.arrays({n: p.grad for n, p in run.model.named_parameters()})


def gradual(run, initial):
    """The counts of Zhu and Gupta's cubic, which ends at three quarters of the steps."""

    def counts(step, end=18):
        if step > end or (step % INTERVAL and step != end):
            return None
        sparsity = 0.7 + (initial - 0.7) * (1 - step / end) ** 3
        return allocate(run.shapes, sparsity, "uniform")

    return counts


def falling(step):
    explores = step % INTERVAL == 0 and step <= STEPS - INTERVAL
    return RATE * (1 + math.cos(math.pi * step / STEPS)) / 2 if explores else 0


RULES = {
    "set": {"growth": ref.drawn},
    "rigl": {"keep": True},
    "srigl": {"keep": True, "fan_in": True},
    "snfs": {"growth": ref.of_gradients(ref.running_mean), "wishes": ref.momentum_wishes},
    "dsr": {"growth": ref.drawn, "scope": "threshold", "wishes": ref.survivor_wishes},
    "itop": {"growth": ref.drawn_unfired_first},
    "mest": {"growth": ref.drawn, "importance": ref.size_and_gradient},
    "granet": {},
    "gmp": {"rate": lambda step: 0},
    "static": {"rate": lambda step: 0},
}
INITIAL = {"granet": 0.5, "gmp": 0.0}


@pytest.mark.parametrize("name", RULES)
def test_a_named_method_is_its_algorithm(name):
    run = prepared(name)
    pruning = {"pruning": gradual(run, INITIAL[name])} if name in INITIAL else {}
    reference = ref.Reference(run, **{"rate": falling, **RULES[name], **pruning})
    topologies = {run.digest}
    for step in range(1, STEPS + 1):
        gradients = set_gradients(run, step)
        reference.step(step, gradients, ref.generator_of(run))
        run.step()
        ref.assert_equal(run, reference.active, reference.weights, reference.moments)
        fired = {name: len(places) for name, places in reference.fired.items()}
        assert {row.name: row.ever_active for row in run.sparsifier.statistics()} == fired
        assert run.sparsifier.itop_rate == pytest.approx(sum(fired.values()) / 399)
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
        ref.assert_equal(run, active, visible, moments)
    assert all(len(different) > 3 for different in seen.values())


def test_options_are_checked_and_every_method_has_a_reference(refused):
    with pytest.raises(UnknownNameError, match=r"unknown sparse method .* did you mean 'rigl'"):
        sparse_method("riggl")
    refused("steps must be at least 1", sparse_method("set").options, 0.8, 0)
    assert prepared("gmp", pruning=None).sparsifier.topology == {}
    options = sparse_method("rigl").options(0.8, 1000)
    assert [step for step in range(1, 1200) if options["exploration"](step)][-1] == 990
    assert RULES.keys() | {"top-kast"} == SPARSE_METHODS.keys()
    assert set(SCORE_NAMES) == SCORES.keys()
    assert set(CRITERION_NAMES) == CRITERIA.keys()
