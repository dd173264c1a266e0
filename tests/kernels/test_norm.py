"""BatchNorm in groups against PyTorch's in double precision."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library
from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.layout import BatchNormReLU
from freetickets.kernels.norm import batch_norm, scale

Error = Callable[[Tensor, Tensor], float]

EPS = 1e-5


def maps(batch, channels, height, width, seed=0):
    """Maps whose channels differ in their means and scales."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, height, width, generator=source)
    spread, shift = torch.rand(2, 1, channels, 1, 1, generator=source)
    return x * (3 * spread + 0.1) + 2 * shift - 1


def reference(channels, seed=0):
    source = torch.Generator().manual_seed(seed)
    found = nn.BatchNorm2d(channels, eps=EPS).double()
    for tensor in (found.weight, found.bias, found.running_mean, found.running_var):
        tensor.data.copy_(torch.rand(channels, generator=source) + 0.3)
    return found


def grouped_norm(x, weight, bias, bn, relu):
    groups, batch = to_groups(x, library.lanes()), len(x)
    if bn.training:
        y = batch_norm(groups, weight, bias, batch, EPS, relu)[0]
    else:
        mean, variance = bn.running_mean.float(), bn.running_var.float()
        y = scale(groups, weight, bias, mean, variance, batch, EPS, relu)
    if batch % library.lanes():
        assert not y[-1, ..., batch % library.lanes() :].any()  # empty lanes stay empty
    return from_groups(y, batch)


def directions(function, *leaves):
    leaves = tuple(leaf.detach().clone().requires_grad_() for leaf in leaves)
    y = function(*leaves)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(-7)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, gradient)]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@given(
    # Of few values in a channel next to no gradient would be left to compare.
    st.integers(1, 20), st.integers(1, 9), st.integers(3, 9), st.integers(3, 9), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_batch_norm_and_its_gradients_are_pytorchs(
    instructions, memory_of_nan, error, training, batch, channels, height, width, relu, seed
):
    x = maps(batch, channels, height, width, seed)
    bn = reference(channels, seed).train(training)

    def theirs(x, weight, bias):
        leaves = {"weight": weight, "bias": bias}
        y = torch.func.functional_call(bn, leaves, x)
        # Which values count as positive is our own affair: next to zero, rounding decides.
        return y * positive if relu else y

    leaves = x, bn.weight.float(), bn.bias.float()
    found = directions(lambda *each: grouped_norm(*each, bn, relu), *leaves)
    positive = found[0] > 0
    wanted = directions(theirs, *(leaf.double() for leaf in leaves))
    for mine, other in zip(found, wanted, strict=True):
        assert error(mine, other) < 1e-4


def test_statistics_are_those_of_the_samples_alone(error):
    x = maps(11, 5, 4, 3)
    weight, bias = torch.ones(5), torch.zeros(5)
    _, mean, variance = batch_norm(to_groups(x, library.lanes()), weight, bias, 11, EPS, False)
    expected_variance, expected_mean = torch.var_mean(x.double(), (0, 2, 3), correction=0)
    assert error(mean, expected_mean) < 1e-6
    assert error(variance, expected_variance) < 1e-5


def test_a_far_mean_does_not_swallow_the_variance(error):
    """The sum of squares minus the square of the sum would have no digit left."""
    x = maps(16, 3, 8, 8) * 0.01 + 1000
    ones, zeros = torch.ones(3), torch.zeros(3)
    y, _, variance = batch_norm(to_groups(x, library.lanes()), ones, zeros, 16, EPS, False)
    expected = torch.var(x.double(), (0, 2, 3), correction=0)
    assert error(variance, expected) < 1e-2
    assert y.isfinite().all()


def step(bn, x):
    """All that a BatchNorm with ReLU computes."""
    leaves = x, bn.weight.float(), bn.bias.float()
    return directions(lambda *each: grouped_norm(*each, bn, True), *leaves)


def test_every_bit_is_the_same_for_any_number_of_threads(same_bits):
    same_bits(lambda: step(reference(7), maps(13, 7, 9, 5)))


def test_the_kernels_run_on_as_many_threads_as_pytorch_has(threads, noted):
    for training in (True, False):
        threads(1 + training)
        step(reference(2).train(training), maps(3, 2, 4, 4))
    asked = [(function, given[-1]) for function, given in noted if "groups" not in function]
    names = ["ft_normalize", "ft_normalize_backward", "ft_scale", "ft_normalize_backward"]
    assert asked == list(zip(names, [2, 2, 1, 1], strict=True))


def test_a_nan_is_not_lost_in_relu(instructions):
    """Whoever watches the loss must see that something is wrong."""
    x, ones, zeros = maps(5, 3, 4, 4), torch.ones(3), torch.zeros(3)
    x[0, 1, 2, 3] = torch.nan
    groups = to_groups(x, library.lanes())
    y = scale(groups, ones, zeros, zeros, ones, 5, EPS, True)
    assert from_groups(y, 5).isnan().nonzero().tolist() == [[0, 1, 2, 3]]
    y, _, _ = batch_norm(groups, ones, zeros, 5, EPS, True)
    assert from_groups(y, 5)[:, 1].isnan().all()


def test_maps_of_other_channels_are_refused():
    x, ones = torch.zeros(1, 4, 2, 2, 8), torch.ones(3)
    with pytest.raises(FreeTicketsError, match="BatchNorm of 3 channels can't take maps of 4"):
        batch_norm(x, ones, ones, 8, EPS, False)
    with pytest.raises(FreeTicketsError, match="BatchNorm of 3 channels can't take maps of 4"):
        scale(x, ones, ones, ones, ones, 8, EPS, False)


def test_the_module_is_batch_norm_and_relu():
    torch.manual_seed(0)
    both = BatchNormReLU(4)
    apart = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
    for training in (True, False):
        both.train(training)
        apart.train(training)
        x = torch.randn(3, 4, 5, 5)
        assert torch.equal(both(x), apart(x))
    assert both.state_dict().keys() == apart[0].state_dict().keys()
