"""Maps that stay in groups between layers: the network computes the same, with few conversions."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from freetickets.kernels import adopted, choices, layers, layout, linear, maps, ops, winograd
from freetickets.kernels.library import lanes
from freetickets.kernels.maps import Maps
from freetickets.models import create_model

from .zoo.checks import compare_trained, gradients
from .zoo.checks import sparsified as prepared
from .zoo.entry import conv
from .zoo.networks import ZOO, lived_in

pytestmark = pytest.mark.usefixtures("skipping_zeros")


class Odd(nn.Module):
    """Between two convolutions, something else."""

    def __init__(self, between, channels=8):
        super().__init__()
        self.before = nn.Sequential(conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), conv(8, 8))
        self.after = nn.Sequential(conv(channels, 8), nn.BatchNorm2d(8), nn.ReLU())
        self.fc = nn.Linear(8, 10)
        self.between = between

    def forward(self, x):
        return self.fc(self.after(self.between(self.before(x))).mean((2, 3)))


class Modal(nn.Module):
    """Does in evaluation what it does not in training."""

    def forward(self, x):
        return x if self.training else 2 * x


def shared_ends():
    """One module begins and ends chains, and stands where there is none."""
    act = nn.Tanh()
    return nn.Sequential(
        act, conv(3, 8), act, nn.Dropout2d(0.0), act, conv(8, 8), act, nn.Flatten(), act,
        nn.Linear(2048, 10),
    )  # fmt: skip


def shared_conv():
    """What follows BatchNorm is not what comes next among the different children."""
    twice = conv(3, 3)
    return nn.Sequential(
        twice, nn.BatchNorm2d(3), twice, nn.ReLU(), conv(3, 4), nn.Flatten(), nn.Linear(1024, 10)
    )


def norms():
    """BatchNorm in all its settings."""
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8, momentum=None), nn.ReLU(), conv(8, 8),
        nn.BatchNorm2d(8, momentum=0.3, eps=0.1), conv(8, 8), nn.BatchNorm2d(8, affine=False),
        conv(8, 8), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), conv(8, 8),
        nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(2048, 10),
    )  # fmt: skip


NETWORKS = {
    # How often maps become grouped in one forward pass.
    "wrn": (lambda: create_model("wrn-10-1", (3, 16, 16), 10), 1),
    "cnn": (lambda: create_model("cnn-4", (3, 16, 16), 10), 1),
    "cifar-resnet": (lambda: create_model("cifar-resnet-8", (3, 16, 16), 10), 1),
    "torchvision": (ZOO["residual: torchvision"].build, 1),
    "methods": (ZOO["residual: methods"].build, 1),
    "pools": (ZOO["pools: modules"].build, 1),
    "gate": (lambda: Odd(lambda x: x * torch.sigmoid(F.adaptive_avg_pool2d(x, 1))), 1),
    "mean": (lambda: Odd(lambda x: x - x.mean(1, keepdim=True)), 2),
    "product": (lambda: Odd(lambda x: x * 2), 1),
    "concatenation": (lambda: Odd(lambda x: torch.cat([x, x], 1), 16), 1),
    "channel dropout": (lambda: Odd(nn.Dropout2d(0.0)), 2),
    "modal": (lambda: Odd(Modal()), 1),
    "shared ends": (shared_ends, 2),
    "shared conv": (shared_conv, 1),
    "norms": (norms, 2),
}
EVERY = pytest.mark.parametrize(("build", "expected"), NETWORKS.values(), ids=NETWORKS)


@pytest.fixture
def conversions(monkeypatch):
    """Counts the ways into groups and out of them."""
    counts = {"to_groups": 0, "from_groups": 0}
    for name, real in [(name, getattr(maps, name)) for name in counts]:

        def counted(*arguments, name=name, real=real):
            counts[name] += 1
            return real(*arguments)

        monkeypatch.setattr(maps, name, counted)
    return counts


def hooks_of(module):
    return [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]


def images(batch=11):
    return torch.randn(batch, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["shared ends", "shared conv", "modal", "norms"])
def test_a_network_computes_the_same_in_groups(name):
    """Others are in the zoo."""

    def build():
        torch.manual_seed(0)
        return lived_in(NETWORKS[name][0](), lambda samples: (images(samples),))

    faults = compare_trained(build, lambda samples, seed: (images(samples),), batches=(11,))
    assert faults == []


@EVERY
def test_maps_are_converted_only_where_they_must_be(conversions, build, expected):
    network, _ = prepared(build, "sparse")
    for training in (True, False):
        network.train(training)
        conversions.update(to_groups=0, from_groups=0)
        with torch.no_grad():
            network(images())
        assert conversions == {"to_groups": expected, "from_groups": expected}


@EVERY
def test_a_detached_network_is_the_one_it_was(conversions, error, build, expected):
    torch.manual_seed(0)
    plain = build()
    network, sparsifier = prepared(build, "sparse")
    network(images())
    network.eval()
    with torch.no_grad():
        before = network(images())
    topology = sparsifier.topology
    sparsifier.detach()
    conversions.update(to_groups=0)
    assert [(n, type(m)) for n, m in network.named_modules()] == [
        (n, type(m)) for n, m in plain.named_modules()
    ]
    assert not any(module.training for module in network.modules())
    assert [hooks_of(m) for m in network.modules()] == [hooks_of(m) for m in plain.modules()]
    with torch.no_grad():
        assert error(network(images()), before) < 1e-4
    assert conversions["to_groups"] == 0
    for name, mask in topology.items():
        assert not network.get_parameter(name)[~mask].any()


def test_dropout_drops_as_much_in_groups_and_batches_may_wait(error):
    network, _ = prepared(
        lambda: nn.Sequential(conv(3, 8), nn.Dropout(0.3), conv(8, 8), nn.Flatten()), "sparse"
    )
    seen = []
    network[1].register_forward_hook(lambda _, __, y: seen.append(y))
    network(images(64))
    (dropped,) = seen
    assert isinstance(dropped, Maps)
    assert (dropped == 0).float().mean() == pytest.approx(0.3, abs=0.01)
    found = {}
    for backend in ("masked", "sparse"):
        network, sparsifier = prepared(NETWORKS["cnn"][0], backend)
        for loss in [network(images(size)).square().sum() for size in (5, 9)]:
            loss.backward()
        found[backend] = gradients(network, sparsifier)
    for name, gradient in found["masked"].items():
        assert error(found["sparse"][name], gradient) < 1e-4, name


@pytest.mark.parametrize("path", ["", "4", "4.bn1", "4.relu"])
def test_who_watches_a_module_sees_maps_as_pytorch_has_them(path, error):
    """A hook that was there before, as those of feature extraction."""
    seen = []

    def build():
        network = NETWORKS["torchvision"][0]()
        watched = network.get_submodule(path)
        watched.register_forward_hook(lambda _, __, y: seen.append(y.detach().clone()))
        return network

    for backend in ("masked", "sparse"):
        prepared(build, backend)[0](images(5))
    half = len(seen) // 2
    for theirs, mine in zip(seen[:half], seen[half:], strict=True):
        assert error(mine, theirs) < 1e-4


def test_looking_at_a_networks_code_leaves_no_trace():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv(3, 4)
            self.calls, self.last = 0, None

        def forward(self, x):
            self.calls += 1
            self.last = self.conv(x) + torch.rand(1)
            return self.last

    network = Counting()
    torch.manual_seed(4)
    expected = torch.rand(1)
    prepared(lambda: network, "sparse", torch_seed=4, seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert (network.calls, network.last) == (0, None)
    assert network.training


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))])
def test_a_copy_works_by_itself(copied):
    network, _ = prepared(NETWORKS["wrn"][0], "sparse")
    twin = copied(network)
    network(images(8))  # a batch of another size is on its way in the original
    network.eval()
    twin.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert torch.equal(twin.eval()(images(5)), network(images(5)))
    network.train()
    before = twin.bn.running_mean.clone()
    network(images())
    assert torch.equal(twin.bn.running_mean, before)


@torch.no_grad()
def test_a_part_of_the_network_can_be_called_by_itself(error):
    """Its own modules take either layout."""
    masked, sparse = (
        prepared(NETWORKS["torchvision"][0], b)[0].eval() for b in ("masked", "sparse")
    )
    x = torch.randn(3, 8, 8, 8)
    for name in ("4", "4.conv1", "4.bn1", "3"):
        parts = [network.get_submodule(name)(x) for network in (masked, sparse)]
        assert error(parts[1], parts[0]) < 1e-4, name
    assert sparse(images(0)).shape == (0, 5)


@pytest.mark.parametrize("name", ["wrn", "torchvision", "gate", "norms"])
def test_a_dense_network_computes_the_same_in_groups(error, monkeypatch, name):
    """In Winograd's way where that exists, forced."""

    def ways(work, costs):
        return ops.ALL << ops.WINOGRAD if winograd.suits(work.geometry) else 0

    for module in (layout, choices):
        monkeypatch.setattr(module, "convolution_ways", ways)
    found = []
    for grouped in (False, True):
        torch.manual_seed(0)
        network = NETWORKS[name][0]()
        inside = layout.GroupedLayout(network) if grouped else None
        y = network(images())
        assert type(y) is Tensor
        F.cross_entropy(y, torch.arange(11) % 5).backward()
        found.append((y.detach(), {n: p.grad for n, p in network.named_parameters()}))
        if inside is not None:
            inside.remove()
            assert not any(type(m).__name__.startswith("_") for m in network.modules())
    assert error(found[1][0], found[0][0]) < 1e-4
    scale = max(float(g.abs().max()) for g in found[0][1].values())
    for parameter, gradient in found[0][1].items():
        limit = 1e-4 * max(float(gradient.abs().max()), 0.1 * scale)
        assert (found[1][1][parameter] - gradient).abs().max() < limit, parameter


def test_a_dense_network_that_gains_nothing_is_left_alone():
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Flatten(), nn.Linear(2048, 10))
    layout.GroupedLayout(network)
    assert [type(m) for m in network] == [nn.Conv2d, nn.Flatten, nn.Linear]
    assert hooks_of(network) == []


@pytest.mark.parametrize("backend", ["sparse", "auto"])
def test_relu_behind_a_linear_layer_is_part_of_it_unless_watched(monkeypatch, error, backend):
    """Growth watches too: it looks at the gradient in front of ReLU."""
    fused = []
    real = linear.linear_layer
    for module in (layers, adopted):
        monkeypatch.setattr(
            module, "linear_layer", lambda *given: fused.append(given[5]) or real(*given)
        )

    def build():
        return nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Linear(24, 32), nn.ReLU(inplace=True))

    x = torch.randn(16, 20, generator=torch.Generator().manual_seed(1))
    found = {}
    for side in ("masked", backend):
        network, sparsifier = prepared(build, side)
        network(x).square().mean().backward()
        plain = gradients(network, sparsifier)
        network.zero_grad()
        sparsifier.keep_gradients()
        network(x).square().mean().backward()
        sparsifier.optimizer.step()
        sparsifier.explore(0.5)
        found[side] = plain | {
            f"{name} grown": m.float() for name, m in sparsifier.topology.items()
        }
        assert type(network) is nn.Sequential or repr(network).startswith("Sequential(")
    growing = [False, False] if backend == "sparse" else []
    assert fused == [True, True, *growing]
    for name, theirs in found["masked"].items():
        assert error(found[backend][name], theirs) < 1e-4
    seen = []
    network[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].min()))
    network(x)
    assert seen[0] < 0
    sparsifier.detach()
    assert type(network) is nn.Sequential


@pytest.mark.parametrize("bias", [True, False])
def test_a_dense_layer_takes_samples_as_a_sparse_one_leaves_them(monkeypatch, error, bias):
    taken = []
    real = layout._dense_columns
    monkeypatch.setattr(layout, "_dense_columns", lambda *given: taken.append(1) or real(*given))

    def build():
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3, bias=bias))

    for batch in (lanes(), lanes() + 1, 1):
        x, found = torch.randn(batch, 64), {}
        for side in ("masked", "sparse"):
            network, sparsifier = prepared(build, side, exclude=["2"])
            y = network(x)
            y.square().mean().backward()
            found[side] = gradients(network, sparsifier) | {"y": y.detach()}
        for name, theirs in found["masked"].items():
            assert error(found["sparse"][name], theirs) < 1e-4
    assert len(taken) == 1  # where all lanes hold samples
    network[2].register_forward_hook(lambda *_: None)
    network(torch.randn(lanes(), 64))
    assert len(taken) == 1
