"""A sparse training written down in plain NumPy and loops, to compare ours with."""

import copy
import functools
import math

import numpy as np
import torch

from .training import Bag, Run


def start(sparsity=0.7, **options):
    """Layers in double precision, which plain SGD with momentum trains."""
    more = {"lr": 0.1, "nesterov": False, "weight_decay": 0.0}
    return Run(lambda: Bag(torch.float64), sparsity=sparsity, more=more, **options)


def top(scores, count, candidates):
    """The places of the `count` highest scores among the candidates."""
    return set(sorted(candidates, key=lambda i: scores[i], reverse=True)[:count])


def places(mask):
    return set(np.flatnonzero(mask.flatten().numpy()))


def arrays(gradients):
    return {name: gradient.flatten().numpy().copy() for name, gradient in gradients.items()}


# ---- rules: what a weight is scored by, and how many of all new weights a layer wishes for


def drawn(reference, name, source):
    return torch.rand(reference.shapes[name], generator=source).flatten().numpy()


def drawn_unfired_first(reference, name, source):
    numbers = drawn(reference, name, source)
    return [(i not in reference.fired[name], float(x)) for i, x in enumerate(numbers)]


def of_gradients(seen):
    """The size of what is seen in the past gradients."""
    return lambda reference, name, _: np.abs(seen(reference.past[name]))


def running_mean(gradients):
    return functools.reduce(lambda mean, new: 0.9 * mean + 0.1 * new, gradients, 0.0)


def size(reference, name):
    return np.abs(reference.weights[name])


def size_and_gradient(reference, name):
    return size(reference, name) + np.abs(reference.past[name][-1])


def momentum_wishes(reference, _):
    means = {name: np.abs(running_mean(past)) for name, past in reference.past.items()}
    return {name: means[name][list(on)].mean() for name, on in reference.active.items()}


def survivor_wishes(_, kept):
    return {name: len(stay) for name, stay in kept.items()}


def in_proportion(total, wishes):
    """Whole numbers by the largest remainder."""
    exact = {name: total * wish / sum(wishes.values()) for name, wish in wishes.items()}
    counts = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: exact[name] - counts[name], reverse=True)
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


last_gradient = of_gradients(lambda past: past[-1])


class Reference:
    """A sparse training in plain NumPy: SGD with momentum on masked weights.

    After a step it prunes to the counts of `pruning`, and explores at `rate`, if there are any.
    Active weights are kept by the rule `importance`, others grown by `growth`: as many in each
    layer as it lost, or `wishes`; with `fan_in`, of each output. `keep` is whether weights that
    grow again keep their values.
    """

    threshold = 1e-3
    regrown = 0

    def __init__(
        self, run, rate=lambda step: 0, *, pruning=lambda step: None, importance=size,
        growth=last_gradient, scope="layer", keep=False, wishes=None,
        fan_in=False,
    ):  # fmt: skip
        self.rate, self.pruning, self.importance, self.growth = rate, pruning, importance, growth
        self.scope, self.keep, self.wishes, self.fan_in = scope, keep, wishes, fan_in
        self.shapes = run.shapes
        self.weights = {n: run.weight(n).detach().flatten().numpy().copy() for n in run.shapes}
        self.active = {n: places(mask) for n, mask in run.sparsifier.topology.items()}
        self.fired = copy.deepcopy(self.active)
        self.moments = {n: np.zeros_like(w) for n, w in self.weights.items()}
        self.past = {n: [] for n in self.weights}

    def step(self, step, gradients, source=None):
        for name, weight in self.weights.items():
            on = np.isin(np.arange(weight.size), list(self.active[name]))
            self.moments[name] = np.where(on, 0.9 * self.moments[name] + gradients[name], 0)
            weight -= 0.1 * self.moments[name]
            self.past[name].append(gradients[name])
        if (counts := self.pruning(step)) is not None:
            for name, on in self.active.items():
                stay = top(self.importance(self, name), min(len(on), counts[name]), on)
                self.drop(name, stay, stay)
                self.active[name] = stay
        if self.rate(step):
            self.explore(self.rate(step), source)

    def explore(self, rate, source):
        kept = self.kept(rate)
        lost = {name: len(self.active[name]) - len(stay) for name, stay in kept.items()}
        if self.wishes is not None:
            lost = in_proportion(sum(lost.values()), self.wishes(self, kept))
        for name, stay in kept.items():
            new = self.grown(name, self.growth(self, name, source), lost[name], stay)
            again = new & self.active[name]
            self.regrown += len(again)
            self.drop(name, stay | again if self.keep else stay, stay)
            self.active[name] = stay | new
            self.fired[name] |= new

    def kept(self, rate):
        strengths = {name: self.importance(self, name) for name in self.weights}
        everywhere = {(n, i): strengths[n][i] for n, on in self.active.items() for i in on}
        count = len(everywhere)
        if self.scope == "layer":
            return {
                name: top(strengths[name], len(on) - math.ceil(rate * len(on) - 1e-9), on)
                for name, on in self.active.items()
            }
        if self.scope == "global":
            stay = top(everywhere, count - math.ceil(rate * count), everywhere)
        else:
            stay = {place for place in everywhere if everywhere[place] >= self.threshold}
            if count - len(stay) < 0.9 * rate * count:
                self.threshold *= 2
            elif count - len(stay) > 1.1 * rate * count:
                self.threshold /= 2
        return {name: {i for n, i in stay if n == name} for name in self.weights}

    def grown(self, name, scores, count, kept):
        if isinstance(scores, dict):  # of shares
            new, given = set(), 0
            for end, each in scores.items():
                given, before = round(count * end), given
                new |= top(each, given - before, set(range(len(each))) - kept - new)
            return new
        if not self.fan_in:
            return top(scores, count, set(range(len(scores))) - kept)
        outputs, new = self.shapes[name][0], set()
        fan_in, inputs = (n // outputs for n in (len(self.active[name]), len(scores)))
        for first in range(0, len(scores), inputs):
            row = set(range(first, first + inputs))
            new |= top(scores, fan_in - len(row & kept), row - kept)
        assert len(new) == count
        return new

    def drop(self, name, values, state):
        for place in range(self.weights[name].size):
            if place not in values:
                self.weights[name][place] = 0
            if place not in state:
                self.moments[name][place] = 0


def generator_of(run):
    """A generator that draws what the sparsifier will."""
    source = torch.Generator()
    source.set_state(run.sparsifier.state_dict()["generator"])
    return source


def assert_equal(run, active, weights, moments):
    for name, mask in run.sparsifier.topology.items():
        assert places(mask) == active[name], (name, run.sparsifier.steps)
        weight = run.weight(name)
        state = run.optimizer.state[weight]["momentum_buffer"]
        for found, expected in ((weight.detach(), weights), (state, moments)):
            np.testing.assert_allclose(found.flatten(), expected[name], rtol=1e-9, atol=1e-12)
