"""Maps in groups pass for PyTorch's own, whatever a network does with them."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from freetickets.errors import FreeTicketsError
from freetickets.kernels import maps
from freetickets.kernels.library import lanes
from freetickets.kernels.maps import Maps

from .zoo.checks import sparsified as made
from .zoo.entry import conv

pytestmark = pytest.mark.usefixtures("skipping_zeros")


def plain_and_maps(samples=5, channels=8):
    """Ordinary maps, `Maps` of the same numbers, and the leaf of each."""
    source = torch.Generator().manual_seed(samples)
    mine, theirs = (torch.randn(samples, channels, 6, 6, generator=source) for _ in range(2))
    theirs.copy_(mine)
    mine.requires_grad_()
    theirs.requires_grad_()
    return theirs * 1, theirs, Maps(maps.enter(mine), samples), mine


# ---- any operation gives what it gives ordinary maps

OPERATIONS = {
    "relu": F.relu,
    "relu method": lambda x: x.relu(),
    "in place": lambda x: F.relu(x, inplace=True) + x,
    "in place method": lambda x: x.relu_() * x,
    "sum in place": lambda x: x.add_(2 * x) + x,
    "sum of an older name": lambda x: (x.mul_(2), x)[1],
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "others": lambda x: F.silu(x) + F.elu(x) - F.hardswish(x) * torch.tanh(x) + F.relu6(x),
    "leaky": lambda x: F.leaky_relu(x, 0.3),
    "sigmoid": torch.sigmoid,
    "negative": lambda x: -x,
    "numbers": lambda x: 2 * x + 1 - 3,
    "number first": lambda x: 1 - x,
    "with alpha": lambda x: torch.add(x, x, alpha=3),
    "channels": lambda x: x * torch.arange(8.0).view(1, 8, 1, 1),
    "channels without samples": lambda x: x + torch.arange(8.0).view(8, 1, 1),
    "positions": lambda x: x + torch.arange(6.0 * 6 * 8).view(1, 8, 6, 6),
    "a row": lambda x: x + torch.arange(6.0),
    "samples": lambda x: x * torch.arange(float(len(x))).view(-1, 1, 1, 1),
    "doubles": lambda x: x * torch.ones(8, 1, 1, dtype=torch.float64),
    "a number as a tensor": lambda x: x * torch.tensor(2.0),
    "mean": lambda x: x - x.mean((2, 3), keepdim=True),
    "gate": lambda x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1)),
    "one channel": lambda x: x + x[:, :1],
    "concatenation": lambda x: torch.cat([x, F.relu(x)], 1),
    "concatenation of rows": lambda x: torch.cat([x, x], dim=2),
    "concatenation of samples": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max pool with places": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "average pool": lambda x: F.avg_pool2d(x, (3, 2), stride=1, padding=1),
    "adaptive pools": lambda x: F.adaptive_max_pool2d(x, 3) + F.adaptive_avg_pool2d(x, (3, 1)),
    "max pool by name": lambda x: F.max_pool2d(input=x, kernel_size=2),
    "flatten": lambda x: x.flatten(1),
    "view": lambda x: x.view(len(x), -1).sum(1),
    "size": lambda x: x.reshape(x.size(0), x.shape[1] * x.size()[2], -1),
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "norms": lambda x: F.layer_norm(x, x.shape[1:]) + F.group_norm(x, 2),
    "index": lambda x: x[1:, ::2, 0],
    "chunks": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "unbound": lambda x: sum(x.unbind(1)),
    "a view that is written to": lambda x: (x[:, :2].mul_(3), x * 2)[1],
    "a slice that is written to": lambda x: (x.__setitem__((slice(None), 0), 7.0), F.relu(x))[1],
    "a view from before": lambda x: ((v := x.flatten(2)), x.relu_(), v)[2],
    "written to twice": lambda x: ((v := x[:, :1]), x.mul_(3), v.add_(1), x * 2)[3],
    "written through detached": lambda x: (x.detach().zero_(), x + 1)[1],
    "out": lambda x: (torch.mul(x.detach(), 2, out=torch.empty(0)), x)[1],
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "conv": lambda x: F.conv2d(x, torch.ones(4, 8, 1, 1)),
    "batch norm": lambda x: F.batch_norm(x, None, None, None, None, True),
    "batch norm of others": lambda x: F.batch_norm(x, torch.ones(8), torch.ones(8) * 2),
    "dropout that drops nothing": lambda x: F.dropout(x, 0.0) + F.dropout(x, 0.5, False),
    "to": lambda x: x.to(torch.float64) + x.double(),
    "einsum": lambda x: torch.einsum("nchw,dc->ndhw", x, torch.ones(3, 8)),
    "matmul": lambda x: x @ x.transpose(-1, -2),
    "compared": lambda x: (x > 0).float() * x,
    "linear": lambda x: F.linear(x, torch.ones(2, 6)),
    "list": lambda x: x.sum().item() * x,
    "no samples": lambda x: x[:0],
}  # fmt: skip


@pytest.mark.parametrize("samples", [1, 5, 16])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_and_gradients_are_those_of_ordinary_maps(operation, samples, error):
    plain, leaf, grouped, grouped_leaf = plain_and_maps(samples)
    expected, found = check(operation, plain, grouped, error)
    assert [t.requires_grad for t in found] == [t.requires_grad for t in expected]
    # What was read is what it was, or was written to in the same way.
    assert error(maps.leave(grouped), plain) < 1e-6
    total, mine_total = (
        sum(t.square().sum() for t in some if t.requires_grad) for some in (expected, found)
    )
    if isinstance(total, Tensor):
        total.backward()
        mine_total.backward()
        assert error(grouped_leaf.grad, leaf.grad) < 1e-5


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_without_gradients_are_those_of_ordinary_maps(operation, error):
    """Of maps made there, or made elsewhere and only read there: nothing may be written to them."""
    for mode in (torch.no_grad, torch.inference_mode):
        plain, _, grouped, leaf = plain_and_maps()
        with mode():
            made = Maps(maps.enter(leaf.detach().clone()), 5)
            check(operation, plain.detach().clone(), made, error)
            if mode is torch.no_grad:
                check(operation, plain.clone(), grouped, error)


def check(operation, plain, grouped, error):
    """What an operation makes of either kind of maps."""
    results = [operation(each) for each in (plain, grouped)]
    expected, found = (
        [maps.leave(x) for x in (each if isinstance(each, tuple) else (each,))] for each in results
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert type(mine) is Tensor
        assert mine.dtype == theirs.dtype
        assert error(mine, theirs) < 1e-6
    return expected, found


def test_what_it_says_of_itself_is_what_ordinary_maps_say():
    plain, _, grouped, _ = plain_and_maps()
    for ask in (
        lambda x: x.shape, lambda x: x.size(), lambda x: x.size(1), lambda x: x.dim(), len,
        lambda x: x.ndim, lambda x: x.numel(), lambda x: x.stride(), lambda x: x.dtype,
        lambda x: x.device, lambda x: x.is_contiguous(), lambda x: x.requires_grad,
        lambda x: x.is_leaf, lambda x: x.is_floating_point(), torch.is_tensor, repr,
        lambda x: isinstance(x, Tensor), lambda x: x.type(), lambda x: x.tolist(),
        lambda x: x.detach().numpy().tobytes(), lambda x: np.asarray(x.detach()).tobytes(),
        lambda x: bool(x.sum() > 0), lambda x: x.storage_offset(),
    ):  # fmt: skip
        mine, theirs = ask(grouped), ask(plain)
        assert mine == theirs or (ask is repr and mine[:200] == theirs[:200])
    assert grouped.grad_fn is not None
    for twin in (pickle.loads(pickle.dumps(grouped.detach())), copy.deepcopy(grouped.detach())):
        assert type(twin) is Tensor
        assert torch.equal(twin, plain)
    file = io.BytesIO()
    torch.save(grouped.detach(), file)


def test_gradients_of_maps_are_those_of_ordinary_ones(error):
    found = []
    for which in (0, 2):
        x = plain_and_maps()[which]
        seen = []
        y = F.relu(x)  # read before the hook was there, too
        x.register_hook(seen.append)
        x.register_hook(lambda g: 2 * g)
        x.retain_grad()
        loss = (y * 3 + x.mean((2, 3), keepdim=True)).square().sum()
        (asked,) = torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
        found.append((seen[0], x.grad, asked))
    for theirs, mine in zip(*found, strict=True):
        assert error(mine, theirs) < 1e-5


# ---- in networks


class Drop(nn.Module):
    """A residual block that is left out for some samples, at a rate that may change."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.rate = conv(8, 8), nn.BatchNorm2d(8), 0.0

    def forward(self, x):
        y = F.relu(self.bn(self.conv(x)))
        if self.training and self.rate > 0:
            kept = (torch.rand(x.shape[0], 1, 1, 1) >= self.rate).float()
            y = y * kept / (1 - self.rate)
        return x + y


class Same(torch.autograd.Function):
    """Does nothing, as the function that PyTorch puts in for a backward hook."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[override]
        return gradient


class Straight(Same):
    """A sign whose gradient is let through."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()


class Hiding(nn.Module):
    """Reaches custom functions in a way that nobody sees beforehand."""

    def __init__(self, apply):
        super().__init__()
        self.conv, self.apply_it = conv(3, 8), apply

    # Code whose globals hold no custom function.
    exec_globals = {}  # noqa: RUF012
    exec("def forward(self, x):\n    return self.apply_it(self.conv(x)).mean((2, 3))", exec_globals)
    forward = exec_globals["forward"]


def images(samples):
    return torch.randn(samples, 3, 6, 6, generator=torch.Generator().manual_seed(samples))


def assert_alike(build, work, error, tolerance=1e-5):
    """What a function makes of a masked network, and of a sparse one."""
    theirs, mine = (work(made(build, backend)[0]) for backend in ("masked", "sparse"))
    for one, other in zip(mine, theirs, strict=True):
        assert error(one, other) < tolerance


class Layers(nn.Module):
    """BatchNorm and ReLU are one pass in a row, and two where somebody looks between them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 8))
        self.between = False

    def forward(self, x):
        if not self.between:
            return self.layers(x).mean((2, 3))
        seen = []
        for layer in self.layers:
            x = layer(x)
            seen.append(x.mean((2, 3)))
        return torch.cat(seen, 1)


def blocks():
    return nn.Sequential(conv(3, 8), Drop(), Drop(), nn.Flatten(), nn.Linear(288, 10))


@pytest.mark.parametrize(
    ("build", "path", "attribute", "value"),
    [
        # Once a wrong loss, without a word: drop-path that was 0 when the sparsifier was made.
        (blocks, "2", "rate", 0.3),
        (blocks, "1", "forward", lambda x: x.roll(1, 0).flip(2)),
        (Layers, "", "between", True),
    ],
)
def test_code_may_take_another_path_later(error, build, path, attribute, value):
    def work(network):
        network(images(5)).sum().backward()
        setattr(network.get_submodule(path), attribute, value)
        torch.manual_seed(1)
        loss = network(images(12)).square().mean()
        loss.backward()
        return [loss]

    assert_alike(build, work, error)


def test_hooks_may_come_later(error):
    """On what goes forward and on what comes back; the last one changes what it sees."""

    def work(network):
        found = []
        network(images(5)).sum().backward()
        network[0].register_forward_hook(lambda _, __, y: found.append(y.clone()))
        network[2].bn.register_full_backward_hook(
            lambda _, before, after: found.extend([*before, *after])
        )
        network[1].register_full_backward_hook(lambda _, before, __: (2 * before[0],))
        network(images(12)).square().mean().backward()
        assert len(found) == 3
        return [*found, network[0].bias.grad]

    assert_alike(blocks, work, error, 1e-4)


@pytest.mark.parametrize("function", [Straight, Same])
def test_custom_functions_of_the_network_work(function, error):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = conv(3, 8), conv(8, 8)

        def forward(self, x):
            return self.second(function.apply(self.first(x))).mean((2, 3))

    def work(network):
        y = network(images(5))
        y.square().sum().backward()
        return y, network.first.bias.grad

    assert_alike(Own, work, error)


@pytest.mark.parametrize(
    "apply",
    [Straight.apply, Same.apply, lambda x: checkpoint(torch.tanh, x, use_reentrant=True)],
    ids=["straight", "same", "checkpoint"],
)
def test_custom_functions_that_nobody_saw_coming_are_refused(refused, apply):
    network, _ = made(lambda: Hiding(apply), "sparse")
    refused(r"custom autograd\.Function .* backend='masked'", network, images(5))


def test_what_a_network_returns_is_ordinary_and_groups_are_no_maps():
    network, _ = made(lambda: nn.Sequential(conv(3, 8), nn.ReLU()), "sparse")
    assert type(network(images(3))) is Tensor
    assert type(network[0](images(3))) is Maps  # a part of it may keep its groups
    _, _, grouped, _ = plain_and_maps(3)
    assert grouped.shape == (3, 8, 6, 6)
    assert grouped._groups is not None
    assert grouped._groups.shape == (-(-3 // lanes()), 8, 6, 6, lanes())
    without_graph = Maps(grouped._groups.detach(), 3)
    with torch._C.DisableTorchFunctionSubclass():  # as code does that is not Python's
        assert type(without_graph * 1) is Tensor
        assert (without_graph * 1).shape == (3, 8, 6, 6)
        with pytest.raises(FreeTicketsError, match=r"extension .* backend='masked'"):
            grouped * 1


def second_derivatives(network):
    x = images(5).requires_grad_()
    (gradient,) = torch.autograd.grad(network(x).pow(3).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    return gradient, x.grad, network[0].bias.grad, network[1].bn.weight.grad


def half_precision(network):
    with torch.autocast("cpu"):
        y = network(images(5))
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    return y, network[1].bn.weight.grad


@pytest.mark.parametrize(
    ("work", "tolerance"), [(second_derivatives, 1e-3), (half_precision, 5e-2)]
)
def test_second_derivatives_and_half_precision_are_those_of_ordinary_maps(error, work, tolerance):
    assert_alike(blocks, work, error, tolerance)
