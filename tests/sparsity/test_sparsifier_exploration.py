"""Explorations: against plain Python loops, and whatever the gradients are.

The tests set dense gradients themselves, so all weights are masked here; `test_backend.py` has
sparse layers explore like masked weights.
"""

import itertools
import math

import pytest
import torch
from torch import nn

from freetickets.sparsity import Exploration, LayerStatistics, Score

from . import reference as ref
from .training import Bag, Run, generator


def every(interval, rate):
    return lambda step: 0 if step % interval else rate


def follow(run, reference, steps):
    for step in range(1, steps + 1):
        source = ref.generator_of(run)
        reference.step(step, ref.arrays(run.set_gradients(step)), source)
        assert run.step() == (reference.rate(step) > 0)
        ref.assert_equal(run, reference.active, reference.weights, reference.moments)


def prepared(rate=0.3, interval=1, **options):
    return ref.start(**{"exploration": Exploration(rate, interval), **options})


@pytest.mark.parametrize("regrown_value", ["zero", "keep"])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.8, 1.0])
def test_exploration_equals_the_brute_force_one(scope, rate, regrown_value):
    run = prepared(rate, 2, prune_scope=scope, regrown_value=regrown_value)
    keep = regrown_value == "keep"
    reference = ref.Reference(run, every(2, rate), scope=scope, keep=keep)
    follow(run, reference, 8)
    assert rate < 0.3 or reference.regrown  # weights pruned a moment ago were eligible
    assert run.sparsifier.state_dict()["threshold"] == 1e-3  # which is another scope's


def mean_of(window):
    return {"growth": ref.of_gradients(lambda gradients: sum(gradients[-window:]))}


def mixed(share):
    rules = ref.last_gradient, ref.drawn
    return {"growth": lambda *seen: {share: rules[0](*seen), 1.0: rules[1](*seen)}}


SMALLEST = Score(lambda view: -view.weight, frozenset())


@pytest.mark.parametrize(
    ("options", "interval", "rules"),
    [
        ({"grow": "momentum"}, 4, {"growth": ref.of_gradients(ref.running_mean)}),
        ({"gradient_batches": 2}, 5, mean_of(2)),
        ({"gradient_batches": 3}, 5, mean_of(3)),
        ({"gradient_batches": 5}, 5, mean_of(5)),
        # A window longer than the interval starts at the exploration before.
        ({"gradient_batches": 5}, 2, mean_of(2)),
        ({"grow": {"gradient": 0.5, "random": 0.5}}, 1, mixed(0.5)),
        ({"grow": {"gradient": 1, "random": 3}}, 1, mixed(0.25)),
        # Anyone's functions.
        ({"prune": SMALLEST}, 1, {"importance": lambda seen, name: -seen.weights[name]}),
        (
            {"grow": lambda view: view.gradient},
            1,
            {"growth": lambda seen, name, _: seen.past[name][-1]},
        ),
    ],
)
def test_what_is_pruned_and_grown_follows_the_scores(options, interval, rules):
    run = prepared(0.5, interval, **options)
    follow(run, ref.Reference(run, every(interval, 0.5), **rules), 15)


@pytest.mark.parametrize("window", [3, 2])
def test_growth_sees_the_mean_of_its_window_and_a_step_without_gradient_counts_as_zero(window):
    """Of three steps; a window never has more than was asked for, so a third one begins anew."""
    seen, gradients = [], []

    def growth(view):
        seen.append(view.gradient)
        return view.gradient

    run = prepared(exploration=None, grow=growth, gradient_batches=window, include=["a"])
    for step in range(3):
        run.sparsifier.keep_gradients()
        gradients.append(run.set_gradients(step)["a.weight"])
        if step == 1:
            run.model.a.weight.grad = None
        run.step()
    run.sparsifier.explore(0.3)
    expected = (gradients[0] + gradients[2]) / 3 if window == 3 else gradients[2]
    torch.testing.assert_close(seen, [expected])


@pytest.mark.parametrize(
    ("rate", "pruned"), [(0.0, 0), (1e-6, 1), (0.07, 7), (0.071, 8), (0.55, 55), (1.0, 100)]
)
def test_exactly_the_ceiling_of_the_share_is_pruned(rate, pruned):
    run = Run(lambda: nn.Linear(20, 20, bias=False), sparsity=0.75, exploration=None)
    mask = run.sparsifier.topology["weight"]  # what was handed out stays as it is
    assert mask.sum() == 100
    run.model.weight.grad = (~mask).float()  # so that only weights not active yet are grown
    run.sparsifier.keep_gradients()
    run.optimizer.step()
    run.sparsifier.explore(rate)
    assert (mask & ~run.sparsifier.topology["weight"]).sum() == pruned


@pytest.mark.parametrize("place", ["active", "inactive"])
@pytest.mark.parametrize("grow", ["gradient", "momentum"])
def test_a_nan_gradient_is_refused_and_leaves_the_topology_alone(refused, place, grow):
    run = prepared(grow=grow)
    run.set_gradients()
    last = run.model.c.weight  # the last layer: the others must not change either
    mask = run.sparsifier.topology["c.weight"]
    last.grad[mask if place == "active" else ~mask] = math.nan
    before = run.digest
    run.optimizer.step()
    weights = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    run.assert_zero_outside()
    refused(r"'c\.weight' contain NaN.*diverged", run.sparsifier.step)
    assert run.digest == before
    for name, weight in run.model.named_parameters():
        assert torch.equal(weight.nan_to_num(7), weights[name].nan_to_num(7))


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_no_share_is_refused(refused, rate):
    refused("rate must lie between 0 and 1", prepared(grow="random").sparsifier.explore, rate)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_network_without_a_sparse_layer_explores_nothing(scope):
    run = Run(Bag, sparsity=0.0, backend="auto", prune_scope=scope, exploration=lambda _: 0.5)
    run.set_gradients()
    run.optimizer.step()
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    run.sparsifier.step()
    run.sparsifier.explore(0.8)
    assert run.sparsifier.topology == {}
    assert all(torch.equal(w, before[name]) for name, w in run.model.named_parameters())


# ---- whatever the gradients

KINDS = ("random", "zero", "tied", "dead units", "few", "none", "huge", "tiny")


def gradient(weight, kind, source):
    drawn = torch.randn(weight.shape, generator=source, dtype=weight.dtype)
    if kind == "none":
        return None
    if kind == "tied":
        return drawn.sign()
    if kind == "dead units":
        alive = torch.rand(weight.shape[0], generator=source) < 0.3
        return drawn * alive.view(-1, *[1] * (weight.ndim - 1))
    if kind == "few":  # fewer than are to be grown: what made others lose weights
        return drawn * (torch.rand(weight.shape, generator=source) < 0.02)
    return drawn * {"zero": 0.0, "huge": 1e30, "tiny": 1e-40}.get(kind, 1.0)


class Mixed(nn.Module):
    """Small layers that ERK leaves dense among larger ones, and all kinds of weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.wide = nn.Conv2d(16, 12, 3)
        self.linear = nn.Linear(40, 30)
        self.recurrent = nn.GRU(8, 9)
        self.attention = nn.MultiheadAttention(8, 2)
        self.last = nn.Linear(4, 3)


EXPLORATIONS = 120  # of each optimizer and scope: 960 in all


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_counts_dense_layers_and_zeros_hold_through_every_exploration(optimizer, scope):
    """Also by 0.8, between two of the schedule: an escape."""
    source, more = generator(1), {"lr": 1e-2}
    run = Run(
        Mixed, optimizer, 0.8, more=more, distribution="erk", prune_scope=scope,
        exploration=lambda step: 0.8 if step % 6 == 0 else (0.5 if step % 2 == 0 else 0.0),
        regrown_value="keep" if scope == "global" else "zero",
    )  # fmt: skip
    twin = Run(Mixed, optimizer, None, more=more)  # the same training without a sparsifier
    counts, rows = run.counts, run.sparsifier.statistics()
    dense = {row.name for row in rows if row.nonzeros == row.weights}
    assert {"first.weight", "last.weight"} <= dense
    assert rows[0] == LayerStatistics("first.weight", (3, 1, 3, 3), 27, 27, 27)
    assert run.sparsifier.topology.keys() == counts.keys() - dense
    kinds = itertools.cycle(torch.randint(len(KINDS), (2400,), generator=source).tolist())
    for step in range(EXPLORATIONS):
        for n, parameter in run.model.named_parameters():
            kind = KINDS[next(kinds)]
            parameter.grad = gradient(parameter, "random" if n in dense else kind, source)
            other = twin.model.get_parameter(n)
            other.grad = None if parameter.grad is None else parameter.grad.clone()
        if step % 2 == 0:
            run.sparsifier.keep_gradients()
        run.optimizer.step()
        twin.optimizer.step()
        run.assert_zero_outside()
        if not run.sparsifier.step():
            run.sparsifier.explore(0.8)
        run.assert_zero_outside()
        for n, mask in run.sparsifier.topology.items():
            assert mask.sum() == counts[n], n
        for n in dense:
            assert torch.equal(run.model.get_parameter(n), twin.model.get_parameter(n)), n
    assert run.counts == counts


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_counts_hold_in_every_precision(dtype):
    run = Run(lambda: Bag(dtype), backend="auto", exploration=Exploration(0.4, interval=1))
    counts = run.counts
    for step in range(20):
        run.set_gradients(step)
        run.step()
        assert run.counts == counts
        run.assert_zero_outside()


def test_topologies_do_not_depend_on_the_layout_of_weights_in_memory():
    digests = []
    for layout in (torch.contiguous_format, torch.channels_last):
        build = lambda layout=layout: Bag().to(memory_format=layout)  # noqa: E731
        run = Run(build, exploration=Exploration(0.4, interval=1))
        torch.manual_seed(1)
        for _ in range(5):
            for parameter in run.model.parameters():
                # Ties, so that their random order is compared as well.
                drawn = torch.randint(-2, 3, parameter.shape).float()
                parameter.grad = torch.empty_like(parameter).copy_(drawn)
            run.step()
        assert run.counts["b.weight"] == round(0.3 * 216)
        digests.append(run.digest)
    assert run.model.b.weight.is_contiguous(memory_format=torch.channels_last)
    assert digests[0] == digests[1]
