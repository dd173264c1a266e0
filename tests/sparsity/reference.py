"""A sparse training written down in plain NumPy and loops, to compare ours with."""

import copy
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


class Reference:
    """A sparse training in plain NumPy: SGD with momentum on masked weights.

    Subclasses say when it changes, what is kept, how many weights each layer grows, and by which
    score.
    """

    def __init__(self, run):
        self.shapes = run.shapes
        self.weights = {n: run.weight(n).detach().flatten().numpy().copy() for n in run.shapes}
        self.active = {n: places(mask) for n, mask in run.sparsifier.topology.items()}
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
        raise NotImplementedError

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


def assert_equal(run, active, weights, moments):
    for name, mask in run.sparsifier.topology.items():
        assert places(mask) == active[name], (name, run.sparsifier.steps)
        weight = run.weight(name)
        state = run.optimizer.state[weight]["momentum_buffer"]
        for found, expected in ((weight.detach(), weights), (state, moments)):
            np.testing.assert_allclose(found.flatten(), expected[name], rtol=1e-9, atol=1e-12)
