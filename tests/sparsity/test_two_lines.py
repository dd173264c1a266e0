"""Two lines in anyone's loop change nothing that the loop can see."""

import copy
import functools
import pickle

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from freetickets.sparsity import Exploration, Sparsifier

from .training import Run, convnet, two_backends

pytestmark = two_backends


class Loop(Run):
    """A user's loop: all but the two lines was there before."""

    def __init__(self, backend, compiled_first=False):
        super().__init__(convnet, sparsity=None)
        self.before = dict(self.model.named_parameters())
        self.keys = list(self.model.state_dict())
        self.compiled = torch.compile(self.model, backend="eager")
        model = self.compiled if compiled_first else self.model
        schedule = Exploration(interval=3)
        self.sparsifier = Sparsifier(
            model, self.optimizer, 0.8, exploration=schedule, backend=backend
        )


def assert_same_weights(model, other):
    states = [dict(each.state_dict()) for each in (model, other)]
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-5)


# ---- what the loop holds stays alive


def test_parameters_names_shapes_and_keys_are_those_of_before_and_gradients_too(backend):
    loop = Loop(backend)
    for _ in range(2):  # before and after explorations
        now = dict(loop.model.named_parameters())
        assert list(now) == list(loop.before)
        assert all(now[name] is parameter for name, parameter in loop.before.items())
        assert list(loop.model.state_dict()) == loop.keys
        assert isinstance(loop.model[0], nn.Conv2d)
        loop.train(range(7))
    held = {id(p) for group in loop.optimizer.param_groups for p in group["params"]}
    assert held == {id(parameter) for parameter in loop.before.values()}
    assert set(loop.optimizer.state) == set(loop.before.values())
    loop.assert_zero_outside()
    for name, mask in loop.sparsifier.topology.items():
        gradient = loop.before[name].grad
        assert gradient.shape == mask.shape
        assert gradient[mask].any()
        assert not gradient[~mask].any()


def test_the_average_over_explorations_is_the_average_of_the_weights(backend):
    loop, seen = Loop(backend), []
    average = AveragedModel(loop.model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    assert list(average.module.state_dict()) == loop.keys
    for step in range(20):
        loop.train([step])
        average.update_parameters(loop.model)
        seen.append([p.detach().clone() for p in loop.before.values()])
    for parameter, values in zip(average.module.parameters(), zip(*seen, strict=True), strict=True):
        expected = functools.reduce(lambda mean, new: 0.9 * mean + 0.1 * new, values)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-6)
    fresh = convnet()  # which says what the average is to answer
    fresh.load_state_dict(average.module.state_dict())
    answers = [model.eval()(loop.batch(99)) for model in (average.module, fresh)]
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)


def test_gradient_hooks_fire_and_an_initialisation_afterwards_reaches_the_network(backend):
    loop = Loop(backend)
    seen = []
    loop.model[3].weight.register_hook(lambda gradient: seen.append(gradient.shape))
    loop.model[3].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.shape))
    loop.train(range(4))
    assert seen == [(8, 8, 3, 3)] * 8
    loop = Loop(backend)
    loop.train(range(4))
    nn.init.constant_(loop.model[3].weight, 0.5)
    assert (loop.before["3.weight"] == 0.5).all()
    loop.optimizer.param_groups[0]["lr"] = 0.0
    loop.train([4])
    mask = loop.sparsifier.topology["3.weight"]
    assert torch.equal(loop.model[3].weight.detach(), 0.5 * mask)


def test_a_loop_explores_by_default_and_goes_on_after_a_pickle(backend):
    loop = Loop(backend)
    loop.sparsifier.detach()
    loop.sparsifier = Sparsifier(loop.model, loop.optimizer, topology="given", backend=backend)
    explored = [loop.train([0]) and loop.sparsifier.itop_rate for _ in range(101)]
    assert len(set(explored[:99])) == 1
    assert explored[99] > explored[0]
    loop = Loop(backend)
    loop.train(range(4))
    twin, alone = pickle.loads(pickle.dumps((loop, copy.deepcopy(loop.model))))
    assert_same_weights(loop.model, alone)
    assert list(alone.state_dict()) == loop.keys
    for each in (loop, twin):
        each.train(range(4, 8))
    assert loop.digest == twin.digest
    assert_same_weights(loop.model, twin.model)


# ---- copies and wrappers


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # PyTorch's own, while it compiles
@pytest.mark.parametrize("first", ["compile", "sparsify"])
def test_a_compiled_network_trains_as_the_plain_one_and_is_saved(backend, first):
    plain, loop = Loop(backend), Loop(backend, compiled_first=first == "compile")
    plain.train(range(8))
    loop.train(range(8), loop.compiled)
    assert loop.digest == plain.digest  # of the names of weights too
    assert_same_weights(plain.model, loop.model)
    assert list(loop.compiled.state_dict()) == [f"_orig_mod.{key}" for key in loop.keys]
