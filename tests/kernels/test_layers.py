"""Sparse layers, of both kinds, are the masked ones that they stand for, to everyone who looks.

Compressed ones take the place of a layer and hold only active weights; adopted ones are the
network's own.
"""

import copy
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels import layers, library
from freetickets.kernels.adopted import AdoptedConv2d, AdoptedLayer, AdoptedLinear, adopt_sparse
from freetickets.kernels.choices import Choices

pytestmark = pytest.mark.usefixtures("skipping_zeros")

LAYERS = {
    "linear": (lambda: nn.Linear(20, 12), (9, 20)),
    "linear of sequences": (lambda: nn.Linear(20, 12, bias=False), (3, 5, 20)),
    "conv": (lambda: nn.Conv2d(5, 7, (3, 2), stride=(2, 1), padding=(1, 0)), (6, 5, 6, 7)),
    "conv without bias": (lambda: nn.Conv2d(5, 7, 3, padding=1, bias=False), (9, 5, 6, 7)),
    "1x1": (lambda: nn.Conv2d(6, 8, 1), (17, 6, 4, 4)),
}


def compress(layer, mask):
    return layers.make_sparse(layer, mask, Choices())


def adopt(layer, mask):
    model = nn.Sequential(layer)
    adopt_sparse(model, {"0.weight": mask}, Choices())
    return model[0]


class Pair:
    """A masked layer, the sparse one that stands for it, and inputs."""

    def __init__(self, name, kind):
        torch.manual_seed(0)
        build, shape = LAYERS[name]
        self.dense, self.x = build(), torch.randn(shape)
        self.mask = torch.rand(self.dense.weight.shape) < 0.3
        self.dense.weight.data *= self.mask
        self.sparse = kind(copy.deepcopy(self.dense), self.mask)

    def __iter__(self):
        return iter((self.dense, self.sparse))

    def other_mask(self):
        """Another topology with as many weights."""
        order = torch.randperm(self.mask.numel(), generator=torch.Generator().manual_seed(5))
        return self.mask.flatten()[order].view(self.mask.shape)

    def check(self, work, error, tolerance=1e-5):
        """What a function makes of either layer, and the gradient that it leaves of the weight."""
        theirs, mine = (
            (*work(layer), layer.values.grad if isinstance(layer, layers.SparseLayer) else
             layer.weight.grad[self.mask])
            for layer in self
        )  # fmt: skip
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            assert error(one, other) <= tolerance


@pytest.fixture(params=[compress, adopt], ids=["compressed", "adopted"])
def kind(request):
    return request.param


@pytest.fixture(params=LAYERS)
def either(request, kind):
    return Pair(request.param, kind)


@pytest.fixture(params=LAYERS)
def compressed(request):
    return Pair(request.param, compress)


@pytest.fixture(params=LAYERS)
def own(request):
    return Pair(request.param, adopt)


# ---- what it computes


def test_it_computes_what_the_masked_one_does(either, error, noted):
    def work(layer):
        x = either.x.clone().requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        F.relu(layer(x), inplace=True).sum().backward()  # who reads it may work in place
        return y, x.grad, *(() if layer.bias is None else (layer.bias.grad,))

    either.check(work, error)
    if isinstance(either.sparse, AdoptedLayer):
        assert {"ft_take", "ft_put"} <= {function for function, _ in noted}
        assert isinstance(either.sparse, (AdoptedConv2d, AdoptedLinear))
        assert not either.sparse.weight.grad[~either.mask].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_precision_is_refused_as_by_a_dense_layer_until_converted(either, dtype, error):
    x = either.x.to(dtype)
    for layer in either:
        with pytest.raises(RuntimeError, match=r"same|expected scalar type"):
            layer(x)
    either.sparse.keep_gradient = True

    def work(layer):
        leaf = x.clone().requires_grad_()
        y = layer.to(dtype)(leaf)
        assert y.dtype == dtype
        y.square().sum().backward()
        return y, leaf.grad

    either.check(work, error, 0.0)
    if isinstance(either.sparse, layers.SparseLayer):
        assert torch.equal(either.sparse.gradient, either.dense.weight.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_gives_what_it_gives_a_dense_layer(either, dtype, error):
    def work(layer):
        x = either.x.to(dtype).requires_grad_()
        with torch.autocast("cpu"):
            y = layer(x)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        return y, x.grad

    either.check(work, error, 2e-2)


def test_gradients_have_gradients(either, error):
    """A gradient penalty; and once more."""

    def work(layer):
        x = either.x.clone().requires_grad_()
        (first,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
        second.pow(2).sum().backward()
        return first, second, x.grad

    either.check(work, error, 1e-4)


def test_transforms_of_functions_work(either, error):
    """Gradients for each sample, as differential privacy has them."""

    def loss(parameters, layer, x):
        return torch.func.functional_call(layer, parameters, (x[None],)).square().sum()

    for_each = torch.func.vmap(torch.func.grad(loss), (None, None, 0))
    theirs, mine = (
        for_each({name: p.detach() for name, p in layer.named_parameters()}, layer, either.x)
        for layer in either
    )
    values = mine["values"] if "values" in mine else mine["weight"][:, either.mask]
    assert error(values, theirs["weight"][:, either.mask]) < 1e-5
    assert error(*(torch.func.jacrev(layer)(either.x[:1]) for layer in either)) < 1e-5


# ---- inputs of all shapes


def test_maps_may_come_without_a_batch_and_others_are_refused_in_pytorchs_words(kind):
    """One of these once ended the process, another came back without samples."""
    torch.manual_seed(0)
    dense = nn.Conv2d(3, 4, 3)
    sparse = kind(copy.deepcopy(dense), torch.ones(4, 3, 3, 3).bool())
    for shape in [(3, 6, 7), (1, 3, 6, 7), (9, 3, 6, 7)]:
        x = torch.randn(shape)
        torch.testing.assert_close(sparse(x), dense(x))
    for dimensions in (0, 1, 2, 5, 6):
        x = torch.randn((8, 3, 6, 6, 8, 1)[:dimensions])
        with pytest.raises(RuntimeError) as theirs:
            dense(x)
        with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
            sparse(x)


@pytest.mark.parametrize("shape", [(20,), (1, 20), (7, 20), (2, 3, 20), (2, 1, 2, 20), (0, 20)])
def test_a_linear_layer_takes_any_dimensions(kind, shape, error):
    pair = Pair("linear", kind)
    x = torch.randn(shape)
    assert error(pair.sparse(x), pair.dense(x)) < 1e-5
    wrong = torch.randn(*shape[:-1], 10)
    with pytest.raises(RuntimeError) as theirs:
        pair.dense(wrong)
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
        pair.sparse(wrong)


# ---- what it looks like


def test_a_compressed_layer_has_active_weights_only_and_keeps_its_mode_and_settings(compressed):
    dense, sparse = compressed
    names = {"values"} if dense.bias is None else {"values", "bias"}
    assert dict(sparse.named_parameters()).keys() == names
    assert torch.equal(sparse.values, dense.weight[sparse.mask])
    assert torch.equal(sparse.weight, dense.weight)
    assert isinstance(sparse, type(dense))
    for training in (False, True):
        dense.train(training)
        again = compress(dense, sparse.mask)
        assert again.training == training
        assert layers.make_dense(again).training == training
    assert repr(sparse).split("(", 1)[1] == repr(dense).split("(", 1)[1]
    restored = layers.make_dense(sparse)
    assert type(restored) is type(dense)
    assert repr(restored) == repr(dense)
    assert torch.equal(restored.weight, dense.weight)
    assert restored.weight.requires_grad


def test_an_adopted_layer_looks_like_pytorchs_own_and_is_that_again_when_abandoned(own):
    plain, mine = own
    assert repr(mine) == repr(plain)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert list(mine.named_buffers()) == []
    assert isinstance(mine, type(plain))
    weight = mine.weight
    mine.abandon()
    assert type(mine) is type(plain)
    assert mine.weight is weight
    assert vars(mine).keys() == vars(plain).keys()


def test_a_state_dict_is_that_of_the_dense_layer_and_one_of_the_same_topology_is_loaded(either):
    dense, sparse = either
    expected, found = dense.state_dict(), sparse.state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not any(tensor.requires_grad for tensor in found.values())
    parameters = list(sparse.parameters())
    sparse.load_state_dict({name: 2 * tensor for name, tensor in expected.items()})
    # The optimizer knows these.
    assert all(a is b for a, b in zip(parameters, sparse.parameters(), strict=True))
    assert torch.equal(sparse.weight, 2 * dense.weight)
    sparse(either.x)


def test_a_state_dict_waits_for_its_topology_and_of_other_shapes_is_refused(
    compressed, refused, error
):
    state = compressed.sparse.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*values"):
        compressed.sparse.load_state_dict({"weight": torch.zeros(3, 3)}, strict=True)
    del state["weight"]
    with pytest.raises(RuntimeError, match=r"Missing key"):
        compressed.sparse.load_state_dict(state)
    dense, sparse = compressed
    mask = compressed.other_mask()
    state = {**dense.state_dict(), "weight": torch.randn(mask.shape) * mask}
    sparse.load_state_dict(state)
    refused("another topology: load the sparsifier's state too", sparse, compressed.x)
    sparse.rewire(mask)
    assert torch.equal(sparse.weight, state["weight"])
    dense.load_state_dict(state)
    assert error(sparse(compressed.x), dense(compressed.x)) < 1e-5


def test_a_new_topology_keeps_the_weights_that_stay(refused, compressed):
    dense, sparse = compressed
    memory = [tensor.data_ptr() for tensor in (sparse.values, sparse.indices, sparse.plan)]
    mask = compressed.other_mask()
    sparse.rewire(mask)
    assert torch.equal(sparse.mask, mask)
    assert torch.equal(sparse.weight, dense.weight * mask)
    assert memory == [tensor.data_ptr() for tensor in (sparse.values, sparse.indices, sparse.plan)]
    mask[mask.nonzero()[:1].unbind(1)] = False
    refused(r"of \d+ weights can't have \d+", sparse.rewire, mask)


def test_copies_and_files_hold_the_same_layer_and_go_their_own_ways(either):
    _, mine = either
    other, before = either.other_mask(), mine(either.x)
    for twin in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert torch.equal(twin(either.x), before)
        if isinstance(twin, layers.SparseLayer):
            twin.rewire(other)
            assert torch.equal(twin.mask, other)
        else:
            twin.take_topology(other)
            with torch.no_grad():
                twin.weight.mul_(other)
        assert not torch.equal(twin(either.x), before)
        assert torch.equal(mine(either.x), before)


# ---- the dense gradient of a compressed layer, for growth


def test_the_dense_gradient_is_that_of_autograd_and_adds_up_as_gradients_do(compressed, error):
    """Over several backward passes, and over several uses of the layer in one of them."""
    dense, sparse = compressed
    sparse(compressed.x).square().sum().backward()
    assert sparse.gradient is None  # nobody asked
    sparse.zero_grad()
    sparse.keep_gradient = True
    with torch.no_grad():
        sparse(compressed.x)
    assert sparse.gradient is None  # of an evaluation there is none
    for scale in (1, -2, 3):
        for layer in compressed:
            (layer(scale * compressed.x).square().sum() + layer(2 * compressed.x).sum()).backward()
        assert error(sparse.gradient, dense.weight.grad) < 1e-5
        assert error(sparse.values.grad, dense.weight.grad[sparse.mask]) < 1e-5


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_gradients_that_were_set_to_zero_do_not_count(compressed, error, to_none, early):
    """An overflow: there is no step, and the next one must not see its gradient."""
    dense, sparse = compressed
    sparse.keep_gradient = True
    for layer in compressed:
        (layer(compressed.x).sum() * float("inf")).backward()
        if early:
            layer.zero_grad(set_to_none=to_none)
        loss = layer(compressed.x).square().sum()
        if not early:
            layer.zero_grad(set_to_none=to_none)
        loss.backward()
    assert error(sparse.gradient, dense.weight.grad) < 1e-5


# ---- adopted layers hold numbers outside of the topology, too


@pytest.mark.parametrize("how", ["watched", "init", "data", "nan"])
def test_a_watched_layer_and_numbers_outside_the_topology_count_as_in_pytorch(own, how):
    place = tuple((~own.mask).nonzero()[3].tolist())
    for layer in own:
        torch.manual_seed(5)
        if how == "watched":
            layer.is_watched = True
        elif how == "init":
            nn.init.normal_(layer.weight)
        else:  # behind the back of PyTorch's version counter
            layer.weight.data[place] = 0.5 if how == "data" else torch.nan
    found = []
    for layer in own:
        x = own.x.clone().requires_grad_()
        y = layer(x)
        (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
        found.append((y, x.grad, *(p.grad for p in layer.parameters())))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert (own.sparse.weight.grad[~own.mask] != 0).any()


def test_channels_last_and_compiled_layers_compute_with_their_whole_weight():
    pair = Pair("conv", adopt)
    pair.sparse.to(memory_format=torch.channels_last)
    y = pair.sparse(pair.x)
    torch.testing.assert_close(y, pair.dense(pair.x), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert (pair.sparse.weight.grad[~pair.mask] == 0).all()
    plain, mine = pair = Pair("conv without bias", adopt)
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(pair.x), plain(pair.x), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        mine.weight[~pair.mask] = 0.1
    torch.testing.assert_close(compiled(pair.x), F.conv2d(pair.x, mine.weight, padding=1))


def take(weight, places):
    values, others = torch.empty(places.numel()), torch.zeros(1, dtype=torch.int64)
    arguments = (weight, weight.numel(), places, places.numel(), values, others, 2)
    library.call("ft_take", *arguments)
    return values, int(others)


@pytest.mark.parametrize("size", [1, 37, 100_000])
def test_what_is_taken_and_counted_is_what_pytorch_finds(size):
    torch.manual_seed(size)
    weight = torch.randn(size) * (torch.rand(size) < 0.4)
    weight[::7] *= -0.0  # zeros as well
    mask = torch.rand(size) < 0.3
    places = mask.nonzero().flatten().int()
    values, others = take(weight, places)
    assert torch.equal(values, weight[mask])
    assert others == int(weight[~mask].count_nonzero())
    back = torch.full((size,), torch.nan)
    library.call("ft_put", values, places, places.numel(), back, size, 2)
    assert torch.equal(back, weight * mask)


@pytest.mark.parametrize("place", [-1, 5, 2**31 - 1])
def test_places_outside_of_the_weight_are_refused(refused, place):
    places = torch.tensor([0, place], dtype=torch.int32)
    refused("outside of the weight", take, torch.ones(5), places)
    with pytest.raises(FreeTicketsError, match="outside of the weight"):
        library.call("ft_put", torch.ones(2), places, 2, torch.ones(5), 5, 1)
    refused("more places than numbers", take, torch.ones(1), places)


# ---- which layers


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.Conv2d(4, 4, 3, **settings)
          for settings in ({"groups": 2}, {"dilation": 2}, {"padding": "same"}, {"stride": 9},
                           {"padding": 1, "padding_mode": "circular"})),
        nn.Conv2d(4, 4, 3).double(), nn.Linear(4, 4, device="meta"), nn.Conv1d(4, 4, 3),
        nn.ConvTranspose2d(4, 4, 3), nn.Bilinear(4, 4, 4), type("Own", (nn.Linear,), {})(4, 4),
        layers.SparseLinear(nn.Linear(4, 4), torch.ones(4, 4).bool(), Choices()),
        layers.SparseConv2d(nn.Conv2d(4, 4, 3), torch.ones(4, 4, 3, 3).bool(), Choices()),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_kernels_do_not_do_stays_dense(layer):
    assert not layers.can_be_sparse(layer)


def test_a_layer_with_an_observer_stays_dense():
    layer = nn.Linear(4, 4)
    assert layers.can_be_sparse(layer)
    hook = layer.register_forward_hook(lambda *_: None)
    assert not layers.can_be_sparse(layer)
    hook.remove()
    assert layers.can_be_sparse(layer)
