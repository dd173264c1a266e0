"""BatchNorm in groups against PyTorch's in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library
from freetickets.kernels.groups import from_groups, to_groups
from freetickets.kernels.layout import BatchNormReLU
from freetickets.kernels.norm import batch_norm, scale

from .reference import directions

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


def step(bn, x, relu=True):
    """All that a BatchNorm computes in groups."""

    def ours(x, weight, bias):
        groups, batch = to_groups(x, library.lanes()), len(x)
        if bn.training:
            y = batch_norm(groups, weight, bias, batch, EPS, relu)[0]
        else:
            statistics = bn.running_mean.float(), bn.running_var.float()
            y = scale(groups, weight, bias, *statistics, batch, EPS, relu)
        if batch % library.lanes():
            assert not y[-1, ..., batch % library.lanes() :].any()  # empty lanes stay empty
        return from_groups(y, batch)

    return directions(ours, x, bn.weight.float(), bn.bias.float())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@given(
    # Of few values in a channel next to no gradient would be left to compare.
    st.integers(1, 20), st.integers(1, 9), st.integers(3, 9), st.integers(3, 9), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_batch_norm_and_its_gradients_are_pytorchs(
    instructions, memory_of_nan, training, batch, channels, height, width, relu, seed
):
    x = maps(batch, channels, height, width, seed)
    bn = reference(channels, seed).train(training)
    found = step(bn, x, relu)

    def theirs(x, weight, bias):
        y = torch.func.functional_call(bn, {"weight": weight, "bias": bias}, x)
        # Which values count as positive is our own affair: next to zero, rounding decides.
        return y * (found[0] > 0) if relu else y

    leaves = x, bn.weight.float(), bn.bias.float()
    wanted = directions(theirs, *(leaf.double() for leaf in leaves))
    count = x[:, 0].numel()
    for place, (mine, other) in enumerate(zip(found, wanted, strict=True)):
        # The gradients of weight and bias are sums over all positions, which may cancel by chance.
        least = 1e-3 * count if place > 1 else 0.0
        assert (mine - other).abs().max() < 1e-4 * max(float(other.abs().max()), least)


def test_statistics_are_those_of_the_samples_and_a_far_mean_does_not_swallow_the_variance(error):
    """There the sum of squares minus the square of the sum would have no digit left."""
    for x, bound in ((maps(11, 5, 4, 3), 1e-5), (maps(16, 5, 8, 8) * 0.01 + 1000, 1e-2)):
        groups, ones = to_groups(x, library.lanes()), torch.ones(5)
        y, mean, variance = batch_norm(groups, ones, 0 * ones, len(x), EPS, False)
        wanted_variance, wanted_mean = torch.var_mean(x.double(), (0, 2, 3), correction=0)
        assert error(mean, wanted_mean) < 1e-6
        assert error(variance, wanted_variance) < bound
        assert y.isfinite().all()


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


def test_the_module_is_batch_norm_and_relu_and_refuses_maps_of_other_channels():
    torch.manual_seed(0)
    both, apart = BatchNormReLU(4), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())
    for training in (True, False):
        x = torch.randn(3, 4, 5, 5)
        assert torch.equal(both.train(training)(x), apart.train(training)(x))
    assert both.state_dict().keys() == apart[0].state_dict().keys()
    x, ones = torch.zeros(1, 4, 2, 2, 8), torch.ones(3)
    for norm, vectors in ((batch_norm, 2), (scale, 4)):
        with pytest.raises(FreeTicketsError, match="BatchNorm of 3 channels can't take maps of 4"):
            norm(x, *[ones] * vectors, 8, EPS, False)
