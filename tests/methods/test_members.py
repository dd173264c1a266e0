"""What holds for every network of several members, whatever it is made of."""

import copy
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.methods import MIMO, BatchEnsemble, MCDropout, Setting, TreeNet, get_recipe
from freetickets.methods import members as tools
from freetickets.models import create_model

from . import small


class Own(nn.Module):
    """A network as a user may write it: a skip, a functional ReLU."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = F.relu(self.norm(self.conv1(x)))
        return self.fc((x + self.conv2(x)).mean((2, 3)))


NETWORKS = small.NETWORKS | {"own": (Own, small.IMAGES)}
METHODS = {
    "mc-dropout": (MCDropout(passes=5), 5),
    "mimo": (MIMO(members=3, batch_repetition=2), 3),
    "tiled": (BatchEnsemble(members=3), 3),
    "split": (BatchEnsemble(members=3, examples="split"), 3),
    "treenet": (TreeNet(members=3), 3),
}


@pytest.fixture(
    params=[(method, network) for network in NETWORKS for method in METHODS], ids="-".join
)
def case(request):
    """A factory, its number of members, and a batch."""
    (method, members), (build, shape) = METHODS[request.param[0]], NETWORKS[request.param[1]]
    torch.manual_seed(0)
    return (lambda: method.transform(build())), members, torch.randn(7, *shape), torch.arange(7) % 4


def test_members_disagree_before_any_training_and_every_parameter_learns(case):
    build, members, x, labels = case
    model = build()
    logits, targets = model(x, labels)
    assert logits.shape == (*targets.shape, 4)
    F.cross_entropy(logits, targets).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        logits = model.eval()(x)
    assert logits.shape == (members, 7, 4)
    assert model.members == members
    for one, other in combinations(logits, 2):
        assert not torch.allclose(one, other, atol=1e-4)


def test_a_prediction_can_be_repeated_and_leaves_no_trace(case, same):
    build, _, x, _ = case
    model, other = build().eval(), build().eval()
    before = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with torch.no_grad():
        first, second = model(x), model(x)
        assert torch.equal(first, second)
        assert same([dict(model.state_dict()), torch.get_rng_state()], [dict(before[0]), before[1]])
        assert not any(module.training for module in model.modules())
        assert torch.backends.mha.get_fastpath_enabled()
        assert not torch.equal(first, other(x))
        other.load_state_dict(model.state_dict())
        assert torch.equal(first, other(x))


def test_a_copy_predicts_the_same_and_stands_alone(case):
    build, _, x, labels = case
    model = build()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        expected = model.eval()(x)
        for parameter in model.parameters():
            parameter.zero_()
        model(x[:2])
        assert torch.equal(twin.eval()(x), expected)
    F.cross_entropy(*twin(x, labels)).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_the_plan_is_that_of_one_dense_network(method):
    plan = METHODS[method][0].plan(Setting(get_recipe("cifar"), seed=5))
    (run,) = plan.runs
    assert (plan.method, plan.tickets, run.seed) == (METHODS[method][0].name, 1, 5)
    assert (run.epochs, run.phases[0].sparsity) == (250, 0)


# ---- the tools


@pytest.mark.parametrize("fixed", [False, True])
def test_redrawn_values_are_the_same_in_another_order_but_for_zeros_and_ones(fixed):
    values = torch.randn(20, 3)
    if fixed:
        values[::3, 0], values[1::3, 2] = 1, 0
    drawn = tools.redrawn(values)
    assert drawn.shape == values.shape
    assert torch.equal(drawn == 1, values == 1)
    assert torch.equal(drawn == 0, values == 0)
    assert not torch.equal(drawn, values)
    assert torch.equal(drawn.flatten().sort().values, values.flatten().sort().values)


def test_layers_in_two_places_are_one_and_modes_are_put_back():
    layer = nn.Linear(2, 2)
    network = nn.Sequential(layer, nn.Sequential(layer), nn.MultiheadAttention(2, 1))
    attention = network[2].out_proj
    tools.replace_layers(network, lambda each: nn.Sequential(each))
    assert network[0] is network[1][0]
    assert network[0][0] is layer
    assert network[2].out_proj is attention
    assert list(tools.weight_layers(network)) == ["0.0"]
    assert isinstance(tools.replace_layers(layer, lambda each: nn.ReLU()), nn.ReLU)
    network = create_model("fast-4-4-4", (3, 9, 9), 4)
    layers = list(tools.weight_layers(network))
    assert layers[0] == "group1.conv1"
    assert len(layers) == 7
    network.get_submodule("whitening.conv").requires_grad_()
    assert len(tools.weight_layers(network)) == 8, "one that is trained is a layer as any other"
    network = nn.Sequential(nn.ReLU(), nn.Dropout().eval())

    def fail():
        with tools.evaluating(network), tools.layer_by_layer():
            assert not network.training
            assert not torch.backends.mha.get_fastpath_enabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [module.training for module in network.modules()] == [True, True, False]
    assert torch.backends.mha.get_fastpath_enabled()
