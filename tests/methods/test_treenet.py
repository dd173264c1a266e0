"""TreeNet: where networks are cut, what is shared, and the dense ensemble that it is without."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.methods import NeuroTrails, Setting, TreeNet, get_recipe
from freetickets.methods.networks.treenet import Stages
from freetickets.models import create_model


class Residual(nn.Module):
    """A layer, a block around which its input skips, a parameter on its own, a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6))
        self.scale = nn.Parameter(torch.rand(1, 6))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(6, 4)

    def forward(self, x, factor=None):
        x = torch.relu(self.first(x))
        x = x + self.inner(x)
        if factor is not None:
            x = factor * x
        return self.head(self.dropout(x * torch.exp(self.scale)))


def count(module):
    return sum(p.numel() for p in module.parameters())


# Each with its number of stages: a layer that stands alone, or a block with a skip.
NETWORKS = {
    "mlp-16-8": ((6,), 3), "cnn-4": ((3, 8, 8), 4), "wrn-16-1": ((3, 8, 8), 8),
    "cifar-resnet-8": ((3, 8, 8), 5), "resnet-50": ((3, 32, 32), 18),
    "fast-4-4-4": ((3, 9, 9), 8), "own": ((6,), 4),
}  # fmt: skip
CUTS = [(name, shared) for name in NETWORKS if name != "resnet-50" for shared in
        range(1, NETWORKS[name][1])]  # fmt: skip


def build(name):
    return Residual() if name == "own" else create_model(name, NETWORKS[name][0], 4)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_stages_of_a_network(name):
    assert len(Stages(build(name))) == NETWORKS[name][1]


@pytest.mark.parametrize(("name", "shared"), CUTS)
def test_the_first_member_is_the_network_as_it_was(name, shared):
    network, (shape, _) = build(name), NETWORKS[name]
    x, labels = torch.randn(6, *shape), torch.arange(6) % 4
    expected = copy.deepcopy(network).eval()(x)
    size = count(network)
    tree = TreeNet(members=2, shared=shared).transform(network)
    trunk, branch = count(tree.trunk), count(tree.branches[0])
    assert trunk + branch == size
    assert min(trunk, branch) > 0
    assert count(tree) == trunk + 2 * branch
    torch.testing.assert_close(tree.eval()(x)[0], expected)
    F.cross_entropy(*tree.train()(x, labels)).backward()
    assert all(p.grad is not None for p in tree.parameters() if p.requires_grad)


def test_the_default_leaves_a_third_to_the_branches_and_separate_ones_are_runs():
    for name, shared in {"mlp-16-8": 1, "cnn-4": 2, "wrn-16-1": 6, "own": 2}.items():
        default = TreeNet(members=2).transform(build(name))
        explicit = TreeNet(members=2, shared=shared).transform(build(name))
        assert list(default.state_dict()) == list(explicit.state_dict())
    one = TreeNet(members=2).transform(create_model("mlp-8", (6,), 4))
    assert len(list(one.trunk.parameters())) == len(list(one.branches[0].parameters())) == 2
    plans = [TreeNet(shared=shared).plan(Setting(get_recipe("cifar"))) for shared in (0, None)]
    assert [plan.trainings for plan in plans] == [3, 1.5]  # the second is the paper's


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        x = self.a(x)
        return self.b(x.mul_(3)) + self.c(x)


def test_branches_may_work_in_place_and_cuts_separate_nothing_that_belongs_together():
    network, x = InPlace(), torch.randn(2, 4)
    expected = network(x)
    tree = TreeNet(members=2, shared=1).transform(network)
    tree.branches[1].load_state_dict(tree.branches[0].state_dict())
    torch.testing.assert_close(tree(x), expected.expand(2, 2, 4))
    layer = nn.Linear(4, 4)
    assert len(Stages(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(4, 2)))) == 2
    assert len(Stages(nn.Sequential(nn.Linear(4, 4), layer, nn.ReLU(), layer))) == 2
    assert len(Stages(nn.Sequential(layer, nn.Linear(4, 4), layer))) == 1
    assert len(Stages(Recurrent())) == 2
    assert TreeNet(members=2).transform(Recurrent())(torch.randn(3, 5, 4)).shape == (2, 3, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True)
        self.head, self.skip = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x):
        y, (h, _) = self.lstm(self.embed(x))
        return self.head(y[:, -1]) + self.skip(h[0])


class Asking(nn.Sequential):
    def forward(self, x):
        return F.dropout(super().forward(x), training=self.training)


class Deciding(nn.Sequential):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


LAYERS = (nn.Linear(4, 4), nn.Linear(4, 4))


def test_a_network_that_does_not_suit_is_told_why(refused):
    for network, shared, words in (
        (nn.Linear(4, 2), None, "Linear can't be cut in stages"),
        (Deciding(*LAYERS), None, "can't find the stages of Deciding"),
        (Asking(*LAYERS), 1, "Asking, whose forward depends on self.training"),
        (nn.Sequential(*LAYERS), 2, "Sequential has 2 stages, of which 0 to 1 can be shared"),
    ):
        refused(words, TreeNet(shared=shared).transform, network)
        # Separate networks need no stages.
        assert TreeNet(members=2, shared=0).transform(network)(torch.rand(3, 4)).shape[:2] == (2, 3)


def linear_layers(number):
    hidden = [layer for _ in range(number) for layer in (nn.Linear(4, 4), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("method", "layers", "share"),
    [
        (TreeNet(members=3, shared=0), [0, 6, 6, 6], 1),
        (TreeNet(members=3, shared=1), [1, 5, 5, 5], 1),
        (NeuroTrails(members=3), [2, 4, 4, 4], 1 / 3),  # it shares a third, and means the losses
    ],
)
def test_branches_learn_as_if_alone_or_a_share_and_the_trunk_from_the_mean(method, layers, share):
    torch.manual_seed(0)
    tree = method.transform(linear_layers(5))
    parts = (tree.trunk, *tree.branches)
    assert [sum(p.dim() == 2 for p in part.parameters()) for part in parts] == layers
    x, labels = torch.randn(7, 4), torch.arange(7) % 3
    F.cross_entropy(*tree.train()(x, labels)).backward()
    alone = []
    for branch in tree.branches:
        trunk, end = copy.deepcopy(tree.trunk), copy.deepcopy(branch)
        for module in (trunk, end):
            module.zero_grad()
        F.cross_entropy(end(trunk(x)), labels).backward()
        alone.append([p.grad for p in trunk.parameters()])
        for ours, own in zip(branch.parameters(), end.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, own.grad * share)
    for parameter, *gradients in zip(tree.trunk.parameters(), *alone, strict=True):
        torch.testing.assert_close(parameter.grad, torch.stack(gradients).mean(0))


def test_trunk_and_heads_are_explored_as_one_topology(features):
    method = NeuroTrails(members=2, sparsity=0.6, interval=2)
    settings = {"epochs": 4, "batch_size": 12, "quiet": True, "backend": "masked"}
    fitted = method.fit("mlp-16-16-16", features, **settings)
    (ticket,) = fitted.tickets
    assert len(fitted) == 2
    masks = ticket.topology
    assert any(name.startswith("trunk") for name in masks)
    assert {name.split(".")[1] for name in masks if name.startswith("branches")} == {"0", "1"}
    zeros = sum(int((~mask).sum()) for mask in masks.values())
    size = sum(weight.numel() for weight in ticket.state.values() if weight.dim() == 2)
    assert zeros / size == pytest.approx(0.6, abs=0.01)
