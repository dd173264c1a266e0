"""MIMO: what each head is given, and the plain network that it is for one member."""

import copy
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from freetickets.methods.shared import MIMO
from freetickets.models import create_model
from freetickets.models.prepare import Whitening, prepare


def inputs_of(model, *arguments):
    """What the network inside is given in a call, and what comes out."""
    model(*(argument[:1] for argument in arguments))  # the first call looks at the network
    seen = []
    model.network.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    output = model(*arguments)
    (given,) = seen
    return given, output


@pytest.mark.parametrize("name", ["mlp-16-8", "cnn-4", "wrn-10-1"])
def test_one_member_is_the_plain_network(name, same):
    plain, x = create_model(name, (3, 8, 8), 4).eval(), torch.randn(6, 3, 8, 8)
    before, expected = copy.deepcopy(dict(plain.state_dict())), plain(x)
    model = MIMO(members=1).transform(plain)
    assert same(dict(model.network.state_dict()), before)
    assert torch.equal(model.eval()(x), expected[None])


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 12),
    members=st.integers(1, 4),
    times=st.integers(1, 4),
    repeated=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    seed=st.integers(0, 100),
)
def test_each_head_sees_and_answers_the_whole_batch(size, members, times, repeated, seed):
    torch.manual_seed(seed)
    model = MIMO(members, repeated, times).transform(nn.Linear(1, size))
    x, labels = torch.arange(size, dtype=torch.float32)[:, None], torch.arange(size)
    given, (logits, targets) = inputs_of(model, x, labels)
    assert given.shape == (size * times, members)
    assert logits.shape == (size * times * members, size)
    # Head by head, the labels are those of the samples that it was given.
    assert torch.equal(targets, given.T.flatten().long())
    for column in given.T:
        assert column.sort().values.tolist() == [i for i in range(size) for _ in range(times)]
    assert (given == given[:, :1]).all(1).sum() >= int(repeated * size * times)


def test_the_heads_are_shuffled_independently():
    x, labels = torch.arange(500.0)[:, None], torch.zeros(500, dtype=torch.int64)
    given, _ = inputs_of(MIMO(members=3).transform(nn.Linear(1, 2)), x, labels)
    for one, other in combinations(given.T, 2):
        # Two random orders of n samples agree in one place on average.
        assert (one == other).sum() < 10
        assert torch.corrcoef(torch.stack([one, other]))[0, 1].abs() < 0.2
    model = MIMO(members=3, input_repetition=0.4).transform(nn.Linear(1, 2))
    given, _ = inputs_of(model, x, labels)
    assert 200 <= (given == given[:, :1]).all(1).sum() < 210


@pytest.mark.parametrize(("name", "axis"), [("cnn-4", 1), ("mlp-8", -1)])
def test_prediction_gives_the_same_input_to_all_heads(name, axis):
    model = MIMO(members=3).transform(create_model(name, (2, 8, 8), 4)).eval()
    x = torch.randn(5, 2, 8, 8)
    given, _ = inputs_of(model, x)
    assert all(torch.equal(part, x) for part in given.chunk(3, axis))


def test_heads_read_their_own_rows_of_layers_that_keep_their_size():
    model = MIMO(members=3).transform(create_model("mlp-8", (6,), 4)).eval()
    x, calls = torch.randn(5, 6), []
    model.network.fc.register_forward_hook(lambda *_: calls.append(1))
    before = model(x)
    assert len(calls) == 1  # the ledger counts the layers of a first prediction
    with torch.no_grad():
        model.network.fc.bias[4:8] += 1  # the second head's
    change = model(x) - before
    torch.testing.assert_close(change, torch.tensor([0.0, 1, 0])[:, None, None].expand(3, 5, 4))
    torch.manual_seed(0)
    layer = nn.Linear(300, 200)
    before = layer(torch.randn(100, 300)).std()
    network = MIMO(members=4).transform(nn.Sequential(layer, nn.Linear(200, 3))).network
    after = network[0](torch.randn(100, 1200)).std()
    assert after.item() == pytest.approx(before.item(), rel=0.05)


class Disordered(nn.Module):
    """Does not end with the layer that it defines last."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Whole(nn.Sequential):
    def prepare_on(self, inputs): ...


class Reshaping(nn.Sequential):
    """Knows how many numbers an input has."""

    def forward(self, x):
        return super().forward(x.view(-1, 4))


def test_a_network_that_does_not_suit_is_told_why(refused):
    for network, words in (
        (nn.Conv2d(3, 4, 1), "ends in a linear layer; Conv2d has none"),
        (nn.Sequential(nn.Conv2d(4, 4, 1, groups=2), nn.Linear(4, 2)), "grouped"),
        (Disordered(), "in the order in which they run"),
        (Reshaping(nn.Linear(4, 2)), "3 inputs side by side do not fit Reshaping"),
        (nn.Sequential(nn.Unflatten(1, (2, -1)), nn.Linear(2, 2)), r"\(N, classes\)"),
        (Whole(nn.Linear(4, 2)), "give prepare_on to a module of its own"),
    ):
        refused(words, lambda n=network: MIMO(members=3).transform(n)(torch.randn(2, 4)))


def test_each_image_is_whitened_by_itself_with_the_same_filters():
    torch.manual_seed(0)
    plain = create_model("fast-4-4-4", (3, 9, 9), 4)
    images = torch.randn(50, 3, 9, 9).cumsum(3)
    model = MIMO(members=3).transform(plain)
    prepare(model, images)
    whitening = Whitening(3)
    whitening.prepare_on(images)
    seen = []
    group = model.network.get_submodule("group1")
    group.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    different = [torch.randn(5, 3, 9, 9) for _ in range(3)]
    model.eval()(different[0])
    model.network(torch.cat(different, 1))
    expected = torch.cat([torch.relu(whitening(x)) for x in different], 1)
    torch.testing.assert_close(seen[-1], expected)
    weight = model.network.get_submodule("whitening.module.conv").get_parameter("weight")
    assert not weight.requires_grad
    assert model.network.get_submodule("group1.conv1").get_parameter("weight").shape[1] == 3 * 24
