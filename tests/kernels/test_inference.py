"""Compiled networks predict what the networks themselves do, or are not used."""

import copy
import os
import pickle
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.kernels import compiler, fused, inference, ops
from freetickets.kernels.inference import CompiledNetwork, LazilyCompiled, agree, compile_network
from freetickets.models import create_model

from .zoo.checks import compiled_for_good, make_sparse
from .zoo.entry import conv, lived_in
from .zoo.networks import ZOO

# From 8 threads; 100,000 take a minute and a half.
PREDICTIONS = int(os.environ.get("FREETICKETS_PREDICTIONS", "800"))

CIFAR, DIGITS, SMALL = (3, 32, 32), (1, 28, 28), (3, 8, 8)


@pytest.fixture(params=["sparse", "dense", "winograd"])
def way(request):
    """In which way all layers run that can."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _choice(request):
    """Compiled networks are used, faster or not; their layers are sparse, unless `way` is used."""
    way = request.getfixturevalue("way") if "way" in request.fixturenames else "sparse"
    with compiled_for_good(lambda key: way):
        warnings.simplefilter("error")
        yield


def sparse(network, shape):
    """A network whose BatchNorms have seen something, and its topology."""
    torch.manual_seed(0)
    lived_in(network, lambda samples: (3 * torch.randn(samples, *shape) + 1,))
    return network.eval(), make_sparse(network, 0.2)


def compiled(network, shape, is_dense=False):
    """Such a network, and what is compiled of it."""
    network, topology = sparse(network, shape)
    found = compile_network(network, {} if is_dense else topology)
    assert isinstance(found, CompiledNetwork)
    return network, found


def assert_same(found, wanted, tolerance=1e-5):
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() <= tolerance * wanted.abs().max()


@pytest.mark.parametrize("batch", [1, 3, 5, 16, 19])
@pytest.mark.parametrize(
    ("name", "shape", "is_dense"),
    [
        *((name, CIFAR, False) for name in ("wrn-10-1", "resnet-18", "cifar-resnet-8")),
        ("wrn-10-1", CIFAR, True), ("fast-4-8-8", CIFAR, False), ("cnn", DIGITS, False),
        ("mlp-64-64", DIGITS, False),
    ],
)  # fmt: skip
@torch.no_grad()
def test_every_network_predicts_the_same(name, shape, is_dense, batch, way):
    network, found = compiled(create_model(name, shape, 10), shape, is_dense)
    before = copy.deepcopy(network.state_dict())
    x = torch.randn(batch, *shape)
    for samples in (batch, batch, batch // 2 + 1):  # any other number will do
        assert_same(found(x[:samples]), network(x[:samples]))
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert found.fallbacks == {}


class Block(nn.Module):
    """BatchNorms with one reader, with two, and one that is added to something."""

    def __init__(self, **settings):
        super().__init__()
        self.first, self.second, self.third = (nn.BatchNorm2d(8, **settings) for _ in range(3))
        self.stem, self.left, self.right, self.last = (conv(inputs, 8) for inputs in (3, 8, 8, 8))

    def forward(self, x):
        x = self.stem(x)
        y = F.relu(self.first(x))
        x = x + self.left(y) + self.right(y)
        z = self.second(x)
        x = self.last(z) + z
        return F.relu(self.third(x)).mean((2, 3))


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize("batch", [2, 9])
@torch.no_grad()
def test_a_batch_norm_with_weights_and_statistics_is_scaled_by_those_that_read_it(
    monkeypatch, batch, settings
):
    network, found = compiled(Block(**settings), (3, 6, 7))
    scalings, real = [], ops.fused_conv2d
    monkeypatch.setattr(
        ops, "fused_conv2d", lambda *given: (scalings.append(given[8]), real(*given))[1]
    )
    x, scaled = torch.randn(batch, 3, 6, 7), [None] * 4 if settings else [None, True, True, None]
    assert_same(found(x), network(x))
    assert found.fallbacks == {}
    assert [scaling and scaling.relu for scaling in scalings] == scaled


# ---- inputs and outputs of all kinds: what is done between is in the zoo


@torch.no_grad()
def test_inputs_may_be_left_out_and_have_names():
    entry = ZOO["inputs and outputs: masked"]
    network = entry.build().eval()
    found = compile_network(network, make_sparse(network))
    for samples in (3, 9):
        x, mask = entry.draw(samples)
        for rest in [(), (mask,), (None, 2), (mask, 0), (mask,)]:
            for _ in range(2):
                assert agree(found(x, *rest), network(x, *rest))
    assert agree(found(x, mask=mask), network(x, mask=mask))
    assert found.fallbacks == {}


# ---- when the plain network is used


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        y = self.conv(x)
        return y.mean((2, 3)) if y.sum() > 0 else y.amax((2, 3))


class Signs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()


class Custom(Branching):
    def forward(self, x):
        return Signs.apply(self.conv(x)).mean((2, 3))


@pytest.mark.parametrize("kind", [Branching, Custom])
@torch.no_grad()
def test_branches_and_custom_functions_answer_as_they_are(kind):
    network, found = compiled(kind(), SMALL)
    for _ in range(3):
        x = torch.randn(8, *SMALL)
        assert torch.equal(found(x), network(x))
    assert kind is Custom or "control flow" in "".join(found.fallbacks.values())


def test_a_network_in_training_mode_is_left_alone():
    network, topology = sparse(Block(), SMALL)
    network.second.train()
    assert compile_network(network, topology) is network


def test_the_original_runs_where_it_is_faster(monkeypatch):
    network, topology = sparse(create_model("mlp-64-64", DIGITS, 10), DIGITS)
    monkeypatch.setattr(compiler, "pays", lambda ours, plain: False)
    found = compile_network(network, topology)
    x = torch.randn(8, *DIGITS)
    with torch.no_grad():
        assert torch.equal(found(x), network(x))
        called = []
        network.register_forward_hook(lambda *_: called.append(True))
        found(x)
    assert called == [True]


def answer_something_else(*arguments, real=ops.fused_conv2d):
    return 1.001 * real(*arguments)


def fail(*_):
    raise RuntimeError("no such\nthing")


@pytest.mark.parametrize(
    ("wrong", "words", "worked_before"),
    [
        (answer_something_else, "it answers something else", False),
        *((fail, "no such", worked) for worked in (False, True)),
    ],
)
@torch.no_grad()
def test_a_compiled_network_that_fails_or_is_wrong_is_not_used(
    monkeypatch, wrong, words, worked_before
):
    network, found = compiled(Block(), SMALL)
    x = torch.randn(8, *SMALL)
    if worked_before:
        found(x)
    monkeypatch.setattr(ops, "fused_conv2d", wrong)
    message = rf"inputs of \[8, 3, 8, 8\]: {words}; the plain one does"
    with pytest.warns(UserWarning, match=message) as seen:
        assert torch.equal(found(x), network(x))
    assert len(seen) == 1
    assert "\n" not in str(seen[0].message)
    assert torch.equal(found(x), network(x))  # and once warned is enough
    assert len(found.fallbacks) == 1


class Asked(Block):
    """Notes how many samples it is asked about; a subclass may have samples depend on others."""

    asked: ClassVar[list[int]] = []

    def forward(self, x):
        if not isinstance(x, torch.fx.Proxy):
            self.asked.append(len(x))
        return super().forward(self.prepared(x))

    def prepared(self, x):
        return x


class Mixing(Asked):
    def prepared(self, x):
        return x - x.mean(0)


class Writing(Asked):
    def prepared(self, x):
        return x.add_(1)


class Counting(Asked):
    def prepared(self, x):
        return x * (1 if x.shape[0] < 20 else 2)


@pytest.mark.parametrize("samples", [32, 45])
@pytest.mark.parametrize("kind", [Asked, Mixing, Writing, Counting])
@torch.no_grad()
def test_of_many_samples_some_are_compared_if_that_tells_of_all(kind, samples):
    network, found = compiled(kind(), SMALL)
    for call in (1, 2):
        kind.asked.clear()
        x = torch.randn(samples, *SMALL) + call
        mine = x.clone()
        answer = found(mine)
        largest = max(kind.asked, default=0)
        assert largest == (0 if call == 2 else 8 if kind is Asked else samples)
        assert_same(answer, network(theirs := x.clone()))
        assert torch.equal(mine, theirs)
    assert found.fallbacks == {}


@torch.no_grad()
def test_many_samples_that_are_answered_wrongly_are_all_answered_by_the_plain_network(monkeypatch):
    network, found = compiled(Block(), SMALL)
    monkeypatch.setattr(ops, "fused_conv2d", answer_something_else)
    x = torch.randn(50, *SMALL)
    with pytest.warns(UserWarning, match=r"inputs of \[50, 3, 8, 8\]: it answers something else"):
        assert torch.equal(found(x), network(x))


@torch.no_grad()
def test_few_samples_wait_for_their_second_time_and_a_change_of_the_network_is_seen():
    network, _ = sparse(Block(), SMALL)
    lazy = LazilyCompiled(network)
    few, many = torch.randn(5, *SMALL), torch.randn(40, *SMALL)
    assert torch.equal(lazy(few), network(few))
    assert lazy._made is None
    for x in (few, many):
        assert_same(lazy(x), network(x))
    before, at_once = lazy._made, LazilyCompiled(network, at_once=True)
    lazy(many)
    at_once(few)
    assert lazy._made is before
    assert at_once._made is not None

    def shift():
        network.stem.weight.mul_(2)

    def replace():
        network.last.weight = nn.Parameter(torch.randn_like(network.last.weight))

    for change in (shift, replace, network.third.train, network.eval):
        change()
        network.third.running_mean.zero_()
        for x in (few, many):
            assert_same(lazy(x), network(x))
    called = []
    network.register_forward_hook(lambda *_: called.append(True))
    lazy(few)
    assert called == [True]


@torch.no_grad()
def test_a_network_that_changes_at_each_call_is_not_compiled_each_time(monkeypatch):
    network, _ = sparse(Block(), SMALL)
    network.register_buffer("calls", torch.zeros(()))
    network.register_forward_hook(lambda *_: (network.calls.add_(1), None)[1])
    compilations, real = [], inference.compile_network
    monkeypatch.setattr(
        inference, "compile_network", lambda *given: (compilations.append(1), real(*given))[1]
    )
    lazy, x = LazilyCompiled(network), torch.randn(40, *SMALL)
    for call in range(1, 20):
        assert lazy(x).shape == (40, 8)
        assert network.calls == call
    assert len(compilations) == inference._MOST_CHANGES


class Choosing(nn.Module):
    """How many samples there are within depends on the numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = conv(3, 8), conv(8, 8)

    def forward(self, x):
        y = self.first(x)
        chosen = y[x.mean((1, 2, 3)) > 0]
        return F.relu(self.second(chosen)).sum((0, 2, 3))


@torch.no_grad()
def test_shapes_that_depend_on_numbers_are_noticed():
    network, found = compiled(Choosing(), SMALL)
    for _ in range(8):
        x = torch.randn(9, *SMALL)
        assert_same(found(x), network(x))
    assert len(found.fallbacks) == 1


def test_maps_of_another_shape_do_not_enter():
    enter = fused.Enter((9, 3, 8, 8), 8)
    assert enter(torch.zeros(9, 3, 8, 8)).shape == (2, 3, 8, 8, 8)
    for wrong in (torch.zeros(8, 3, 8, 8), torch.zeros(9, 3, 8, 8).double()):
        with pytest.raises(fused.ShapeError):
            enter(wrong)


@torch.no_grad()
def test_what_the_network_refuses_is_refused_in_its_own_words():
    network, found = compiled(Block(), SMALL)
    found(torch.randn(2, *SMALL))
    for wrong in (torch.randn(2, 4, 8, 8), torch.randn(8, 8), torch.randn(2, *SMALL).double()):
        with pytest.raises(RuntimeError) as theirs:
            network(wrong)
        with pytest.raises(RuntimeError) as mine:
            found(wrong)
        assert str(mine.value) == str(theirs.value)
    with pytest.raises(TypeError):
        found()


def test_gradients_autocast_and_transforms_are_those_of_the_plain_network():
    network, found = compiled(Block(), SMALL)
    x = torch.randn(5, *SMALL)
    found(x)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    for one, leaf in zip((found, network), leaves, strict=True):
        one(leaf).square().sum().backward()
    assert torch.equal(*(leaf.grad for leaf in leaves))
    with torch.autocast("cpu"), torch.no_grad():
        assert found(x).dtype == torch.bfloat16
        assert torch.equal(found(x), network(x))
    torch.testing.assert_close(
        torch.func.vmap(found)(x[:, None]), torch.func.vmap(network)(x[:, None])
    )
    with torch.inference_mode():
        assert_same(
            found(torch.randn(6, *SMALL).copy_(x[:1])), network(x[:1].expand(6, -1, -1, -1))
        )
    assert found.fallbacks == {}


@torch.no_grad()
def test_nan_and_infinity_stay_where_they_are():
    _, found = compiled(Block(), SMALL)
    for first in (True, False):
        x = torch.randn(9, *SMALL)
        x[3, 1, 2, 2], x[5, 0, 0, 0] = float("nan"), float("inf")
        with warnings.catch_warnings():
            if first:
                warnings.simplefilter("ignore")  # a zero skipped hides no infinity, but moves NaN
            mine = found(x)
        clean = [n for n in range(9) if n not in (3, 5)]
        assert not mine[clean].isnan().any()
        assert mine[3].isnan().any()
        assert mine[5].isfinite().logical_not().any()


def test_agreement_is_judged_number_by_number():
    one, nan, inf = torch.tensor([1.0, -2.0]), float("nan"), float("inf")
    odd = torch.tensor([nan, inf, 1.0])
    for mine, theirs in (((one, [3]), (one + 1e-5, [3])), (odd, odd.clone()), (one[:0], one[:0])):
        assert agree(mine, theirs)
    for mine, theirs in (
        (one, one + 1e-3), (one, one.double()), (one, one[None]), ([one], (one,)),
        ((one, 3), (one, 4)), (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.full((2,), 1e-9), torch.zeros(2)),
        *((torch.tensor(other), odd) for other in
          ([nan, -inf, 1.0], [nan, nan, 1.0], [inf, inf, 1.0], [nan, inf, nan])),
    ):  # fmt: skip
        assert not agree(mine, theirs)


@torch.no_grad()
def test_ever_new_shapes_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(inference, "_MOST_KINDS", 3)
    network, found = compiled(Block(), SMALL)
    for samples in (1, 2, 3, 4, 5, 1):
        x = torch.randn(samples, *SMALL)
        assert_same(found(x), network(x))
    assert len(found._ways) == 3


@torch.no_grad()
def test_copies_work_by_themselves():
    _, found = compiled(Block(), SMALL)
    x = torch.randn(9, *SMALL)
    wanted = found(x)
    for twin in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert torch.equal(twin(x), wanted)


# ---- threads


@torch.no_grad()
def test_threads_do_not_disturb_each_other(threads):
    network, found = compiled(create_model("wrn-10-1", SMALL, 10), SMALL)
    inputs = {
        n: torch.randn(n, *SMALL, generator=torch.Generator().manual_seed(n)) for n in range(1, 34)
    }
    wanted = {n: network(x) for n, x in inputs.items()}
    start = threading.Barrier(8)

    def predict(seed):
        numbers = random.Random(seed)
        torch.set_num_threads(1)
        start.wait()
        with torch.no_grad():
            for _ in range(PREDICTIONS // 8):
                n = numbers.randint(1, 33)
                assert_same(found(inputs[n]), wanted[n])

    threads(1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(predict, range(8)))
    assert found.fallbacks == {}


@torch.no_grad()
def test_other_networks_run_while_one_is_traced():
    """While fx traces, it sits in every module's call."""
    other, _ = sparse(Block(), SMALL)
    network, topology = sparse(create_model("wrn-16-1", SMALL, 10), SMALL)
    x = torch.randn(2, *SMALL)
    wanted = other(x)
    done = threading.Event()

    def run():
        calls = 0
        with torch.no_grad():
            while not done.is_set():
                assert torch.equal(other(x), wanted)
                calls += 1
        return calls

    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(run)
        try:
            for _ in range(20):
                compile_network(network, topology)(x)
        finally:
            done.set()
        assert calls.result() > 0
