"""Networks that do more than answer are not compiled: a graph of one call would not do it again."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from freetickets.kernels.inference import CompiledNetwork, compile_network
from freetickets.kernels.tracing import ModuleState

from .zoo.checks import compiled_for_good, make_sparse, sparse


@pytest.fixture(autouse=True)
def _choice():
    with compiled_for_good(sparse):
        yield


class Network(nn.Module):
    """Does something with the maps between two convolutions, and with what it returns."""

    def __init__(self, middle, end=None):
        super().__init__()
        self.first, self.second = (nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8))
        self.register_buffer("buffer", torch.zeros(8, 1, 1))
        self.calls, self.last = 0, torch.zeros(1, 8, 1, 1)
        self.cache, self.history = {}, []
        self.middle, self.end = middle, end

    def forward(self, x):
        y = self.second(self.middle(self, F.relu(self.first(x)))).mean((2, 3))
        return y if self.end is None else self.end(self, y)


def counts(network, x):
    network.calls += 1
    return x * network.calls


def writes_to_its_buffer(network, x):
    network.buffer += 1
    return x * network.buffer


def averages(network, x):
    network.buffer.copy_(0.9 * network.buffer + 0.1 * x.mean((0, 2, 3))[:, None, None])
    return x - network.buffer


def remembers(network, x):
    y = x + network.last
    network.last = x.mean((0, 2, 3), True)
    return y


def collects(network, x):
    network.history.append(x.amax((0, 2, 3), True))
    return x * len(network.history)


def fills(network, y):
    found = torch.zeros(y.shape[0], 10)
    found[:, :8] = y
    return found


def as_it_is(network, x):
    return x


IMPURE = {
    "counts": (counts,), "writes to its buffer": (writes_to_its_buffer,), "averages": (averages,),
    "remembers": (remembers,), "collects": (collects,), "fills": (as_it_is, fills),
    "returns a constant": (as_it_is, lambda network, y: (y, torch.arange(y.shape[0]))),
}  # fmt: skip


def twins(*parts):
    """A compiled network, and a plain one that knows nothing of it."""
    torch.manual_seed(0)
    network = Network(*parts).eval()
    topology = make_sparse(network)
    plain = copy.deepcopy(network)
    found = compile_network(network, topology)
    assert isinstance(found, CompiledNetwork)
    return found, plain


@pytest.mark.parametrize("parts", IMPURE.values(), ids=IMPURE)
@torch.no_grad()
def test_each_call_answers_as_if_nothing_were_compiled(parts):
    found, plain = twins(*parts)
    answers = []
    for samples in (2, 9, 2, 9, 9, 3, 2):
        x = torch.randn(samples, 3, 6, 6)
        for mine, theirs in zip(*(tree_leaves(one(x)) for one in (found, plain)), strict=True):
            assert torch.equal(mine, theirs)
            mine.add_(1)  # what was returned is the caller's
            theirs.add_(1)
            answers.append((mine, theirs))
    assert all(torch.equal(mine, theirs) for mine, theirs in answers)
    assert [reason.split(":")[0] for reason in found.fallbacks.values()] == ["ImpureError"]


def averages_many(network, x):
    """A few samples only read what many write: what one shape tells holds for all."""
    return averages(network, x) if x.shape[0] > 4 else x - network.buffer


def places(network, x):
    """A cache is no memory."""
    size = tuple(x.shape[2:])
    if size not in network.cache:
        network.cache[size] = torch.linspace(-1, 1, size[0] * size[1]).view(1, 1, *size)
    return x + network.cache[size]


@pytest.mark.parametrize(("middle", "fallbacks"), [(averages_many, 1), (places, 0)])
@torch.no_grad()
def test_some_shapes_or_a_cache_only(middle, fallbacks):
    found, plain = twins(middle)
    for samples in (2, 2, 9, 2, 3, 9, 2):
        x = torch.randn(samples, 3, 6, 6)
        torch.testing.assert_close(found(x), plain(x), rtol=1e-5, atol=1e-5)
    assert len(found.fallbacks) == fallbacks


@torch.no_grad()
def test_hooks_are_called_each_time_and_what_can_not_be_copied_is_left():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Flatten()).eval()
    seen = []
    network[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    found = compile_network(network, make_sparse(network))
    for _ in range(3):
        found(torch.randn(9, 3, 6, 6))
    assert [type(each) for each in seen] == [Tensor] * 3
    network = Network(as_it_is).eval()
    network.lock = threading.Lock()
    with pytest.warns(UserWarning, match=r"the network is not compiled: cannot pickle '_thread"):
        assert compile_network(network, make_sparse(network)) is network


def test_a_state_is_all_that_modules_hold():
    network = Network(as_it_is)
    changes = [
        lambda: setattr(network, "calls", 1),
        lambda: setattr(network, "calls", True),
        lambda: setattr(network, "last", network.last.clone()),
        lambda: network.history.append(network.last),
        lambda: network.cache.update(a=network.last),
        lambda: network.cache["a"].zero_(),
        lambda: network.first.train(False),
        lambda: network.add_module("third", nn.ReLU()),
    ]
    for change in changes:
        before = ModuleState(network)
        assert before == ModuleState(network)
        change()
        assert before != ModuleState(network)
