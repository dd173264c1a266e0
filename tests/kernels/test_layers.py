"""Sparse layers in the place of dense ones: the same network for everyone who looks at it."""

import copy
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from freetickets.errors import FreeTicketsError
from freetickets.kernels.choices import Choices
from freetickets.kernels.layers import (
    SparseConv2d,
    SparseLayer,
    SparseLinear,
    can_be_sparse,
    make_dense,
    make_sparse,
)

pytestmark = pytest.mark.usefixtures("skipping_zeros")

Error = Callable[[Tensor, Tensor], float]
Pair = tuple[Any, Any]

KINDS: dict[str, Callable[[], nn.Linear | nn.Conv2d]] = {
    "linear": lambda: nn.Linear(20, 12),
    "linear without bias": lambda: nn.Linear(20, 12, bias=False),
    "conv": lambda: nn.Conv2d(5, 7, (3, 2), stride=(2, 1), padding=(1, 0)),
    "conv without bias": lambda: nn.Conv2d(5, 7, 3, padding=1, bias=False),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def pair(request):
    """A masked layer and the sparse one made of it."""
    torch.manual_seed(0)
    dense = request.param()
    mask = torch.rand(dense.weight.shape) < 0.3
    dense.weight.data *= mask
    return dense, make_sparse(copy.deepcopy(dense), mask, Choices())


def inputs(layer, batch=6):
    shape = (batch, 20) if isinstance(layer, nn.Linear) else (batch, 5, 6, 7)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def other_mask(layer, seed=5):
    """Another topology with as many weights."""
    order = torch.randperm(layer.mask.numel(), generator=torch.Generator().manual_seed(seed))
    mask = torch.zeros(layer.mask.numel(), dtype=torch.bool)
    mask[order[: layer.values.numel()]] = True
    return mask.view(layer.mask.shape)


def weight_gradient(layer, mask):
    """The gradient at the active places."""
    return layer.values.grad if isinstance(layer, SparseLayer) else layer.weight.grad[mask]


def assert_alike(pair, work, error, tolerance=1e-5):
    """What a function makes of either layer, and the gradient that it leaves of the weight."""
    theirs, mine = ((*work(layer), weight_gradient(layer, pair[1].mask)) for layer in pair)
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == other.dtype
        assert error(one, other) <= tolerance


def test_a_sparse_layer_computes_what_the_masked_one_does(pair, error):
    def work(layer):
        x = inputs(layer).requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        return y, x.grad, *(() if layer.bias is None else (layer.bias.grad,))

    assert_alike(pair, work, error)


def test_only_the_active_weights_are_a_parameter(pair):
    dense, sparse = pair
    names = dict(sparse.named_parameters())
    assert names.keys() == {"values", "bias"} - ({"bias"} if dense.bias is None else set())
    assert sparse.values.shape == (int(sparse.mask.sum()),)
    assert torch.equal(sparse.values, dense.weight[sparse.mask])
    assert torch.equal(sparse.weight, dense.weight)


def test_a_state_dict_is_that_of_the_dense_layer(pair):
    dense, sparse = pair
    expected, found = dense.state_dict(), sparse.state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not any(tensor.requires_grad for tensor in found.values())
    fresh = copy.deepcopy(dense)
    fresh.load_state_dict(found)
    assert torch.equal(fresh.weight, dense.weight)


def test_a_state_dict_of_the_same_topology_is_loaded(pair):
    dense, sparse = pair
    values = sparse.values
    state = {name: 2 * tensor for name, tensor in dense.state_dict().items()}
    sparse.load_state_dict(state)
    assert sparse.values is values  # the optimizer knows this one
    assert torch.equal(sparse.weight, 2 * dense.weight)
    sparse(inputs(dense))


def test_a_state_dict_of_another_topology_waits_for_that_topology(pair, error):
    dense, sparse = pair
    mask = other_mask(sparse)
    state = {**dense.state_dict(), "weight": torch.randn(mask.shape) * mask}
    sparse.load_state_dict(state)
    with pytest.raises(FreeTicketsError, match="another topology: load the sparsifier's state too"):
        sparse(inputs(dense))
    sparse.rewire(mask)
    assert torch.equal(sparse.weight, state["weight"])
    dense.load_state_dict(state)
    assert error(sparse(inputs(dense)), dense(inputs(dense))) < 1e-5


def test_a_state_dict_of_other_shapes_is_refused(pair):
    _, sparse = pair
    state = sparse.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*values"):
        sparse.load_state_dict({"weight": torch.zeros(3, 3)}, strict=True)
    del state["weight"]
    with pytest.raises(RuntimeError, match=r"Missing key"):
        sparse.load_state_dict(state)


def test_a_new_topology_keeps_the_weights_that_stay(pair):
    dense, sparse = pair
    memory = [tensor.data_ptr() for tensor in (sparse.values, sparse.indices, sparse.plan)]
    mask = other_mask(sparse)
    sparse.rewire(mask)
    assert torch.equal(sparse.mask, mask)
    assert torch.equal(sparse.weight, dense.weight * mask)
    assert memory == [tensor.data_ptr() for tensor in (sparse.values, sparse.indices, sparse.plan)]
    mask[mask.nonzero()[:1].unbind(1)] = False
    with pytest.raises(FreeTicketsError, match=r"of \d+ weights can't have \d+"):
        sparse.rewire(mask)


def test_copies_and_files_hold_the_same_layer(pair):
    _, sparse = pair
    file = io.BytesIO()
    torch.save(sparse, file)
    file.seek(0)
    x = inputs(sparse)
    for twin in (copy.deepcopy(sparse), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x), sparse(x))
        twin.rewire(other_mask(twin))
        assert not torch.equal(twin.mask, sparse.mask)
        assert not torch.equal(twin(x), sparse(x))


def test_a_layer_keeps_its_mode_and_its_settings(pair):
    dense, sparse = pair
    assert isinstance(sparse, nn.Linear if isinstance(dense, nn.Linear) else nn.Conv2d)
    for training in (False, True):
        dense.train(training)
        again = make_sparse(dense, sparse.mask, Choices())
        assert again.training == training
        assert make_dense(again).training == training
    assert repr(sparse).split("(", 1)[1] == repr(dense).split("(", 1)[1]
    restored = make_dense(sparse)
    assert type(restored) is type(dense)
    assert repr(restored) == repr(dense)
    assert torch.equal(restored.weight, dense.weight)
    assert restored.weight.requires_grad


# ---- inputs of all shapes


def test_maps_may_come_without_a_batch():
    torch.manual_seed(0)
    dense = nn.Conv2d(3, 4, 3)
    sparse = make_sparse(dense, torch.ones(4, 3, 3, 3, dtype=torch.bool), Choices())
    for shape in [(3, 6, 7), (1, 3, 6, 7), (9, 3, 6, 7)]:
        x = torch.randn(shape)
        torch.testing.assert_close(sparse(x), dense(x))


@pytest.mark.parametrize("shape", [(20,), (1, 20), (7, 20), (2, 3, 20), (2, 1, 2, 20), (0, 20)])
def test_a_linear_layer_takes_any_dimensions(shape, error):
    torch.manual_seed(0)
    dense = nn.Linear(20, 6)
    mask = torch.rand(6, 20) < 0.5
    dense.weight.data *= mask
    sparse = make_sparse(copy.deepcopy(dense), mask, Choices())
    x = torch.randn(shape)
    assert error(sparse(x), dense(x)) < 1e-5
    wrong = torch.randn(*shape[:-1], 10)
    with pytest.raises(RuntimeError) as theirs:
        dense(wrong)
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
        sparse(wrong)


@pytest.mark.parametrize("dimensions", [0, 1, 2, 5, 6])
def test_maps_of_other_dimensions_are_refused_in_pytorchs_words(dimensions):
    """One of these once ended the process, another came back without samples."""
    dense = nn.Conv2d(3, 4, 3)
    sparse = make_sparse(dense, torch.ones(4, 3, 3, 3).bool(), Choices())
    x = torch.randn((8, 3, 6, 6, 8, 1)[:dimensions])
    with pytest.raises(RuntimeError) as theirs:
        dense(x)
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
        sparse(x)


# ---- precision, transforms, second derivatives


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_input_of_another_precision_is_refused_as_by_a_dense_layer(pair, dtype):
    x = inputs(pair[0]).to(dtype)
    for layer in pair:
        with pytest.raises(RuntimeError, match=r"same|expected scalar type"):
            layer(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_network_that_was_converted_works_in_its_precision(pair, dtype, error):
    dense, sparse = pair
    sparse.keep_gradient = True

    def work(layer):
        x = inputs(layer).to(dtype).requires_grad_()
        y = layer.to(dtype)(x)
        assert y.dtype == dtype
        y.square().sum().backward()
        return y, x.grad

    assert_alike(pair, work, error, 0.0)
    assert torch.equal(sparse.gradient, dense.weight.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_gives_what_it_gives_a_dense_layer(pair, dtype, error):
    def work(layer):
        x = inputs(layer).to(dtype).requires_grad_()
        with torch.autocast("cpu"):
            y = layer(x)
        assert y.dtype == torch.bfloat16
        y.float().square().sum().backward()
        assert x.grad.dtype == dtype
        return y, x.grad

    assert_alike(pair, work, error, 2e-2)


def test_gradients_have_gradients(pair, error):
    """A gradient penalty; and once more."""

    def work(layer):
        x = inputs(layer).requires_grad_()
        (first,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
        second.pow(2).sum().backward()
        return first, second, x.grad

    assert_alike(pair, work, error, 1e-4)


def test_transforms_of_functions_work(pair, error):
    """Gradients for each sample, as differential privacy has them."""
    dense, sparse = pair

    def loss(parameters, layer, x):
        return torch.func.functional_call(layer, parameters, (x[None],)).square().sum()

    x = inputs(dense)
    mine, theirs = (
        torch.func.vmap(torch.func.grad(loss), (None, None, 0))(
            {name: p.detach() for name, p in layer.named_parameters()}, layer, x
        )
        for layer in (sparse, dense)
    )
    assert error(mine["values"], theirs["weight"][:, sparse.mask]) < 1e-5
    jacobian = torch.func.jacrev(sparse)(x[:1])
    assert error(jacobian, torch.func.jacrev(dense)(x[:1])) < 1e-5


def test_a_module_may_work_in_place_on_what_a_layer_returns(pair, error):
    def work(layer):
        nn.functional.relu(layer(inputs(layer, 8)), inplace=True).square().sum().backward()
        return ()

    assert_alike(pair, work, error)


# ---- the dense gradient, for growth


def test_the_dense_gradient_is_that_of_autograd(pair, error):
    dense, sparse = pair
    for layer in pair:
        layer(inputs(dense)).square().sum().backward()
    assert sparse.gradient is None  # nobody asked
    sparse.zero_grad()
    sparse.keep_gradient = True
    sparse(inputs(dense)).square().sum().backward()
    assert error(sparse.gradient, dense.weight.grad) < 1e-5
    assert error(sparse.values.grad, dense.weight.grad[sparse.mask]) < 1e-5


def test_dense_gradients_add_up_as_gradients_do(pair, error):
    """Over several backward passes, and over several uses of the layer in one of them."""
    dense, sparse = pair
    sparse.keep_gradient = True
    for layer in pair:
        for seed in range(3):
            x = torch.randn(inputs(dense).shape, generator=torch.Generator().manual_seed(seed))
            (layer(x).square().sum() + layer(2 * x).sum()).backward()
    assert error(sparse.gradient, dense.weight.grad) < 1e-5


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
def test_gradients_that_were_set_to_zero_do_not_count(pair, error, to_none, early):
    """An overflow: there is no step, and the next one must not see its gradient."""
    dense, sparse = pair
    sparse.keep_gradient = True
    for layer in pair:
        (layer(inputs(dense)).sum() * float("inf")).backward()
        if early:
            layer.zero_grad(set_to_none=to_none)
        loss = layer(inputs(dense)).square().sum()
        if not early:
            layer.zero_grad(set_to_none=to_none)
        loss.backward()
    assert error(sparse.gradient, dense.weight.grad) < 1e-5


def test_no_gradient_is_kept_of_an_evaluation(pair):
    _, sparse = pair
    sparse.keep_gradient = True
    with torch.no_grad():
        sparse(inputs(sparse))
    assert sparse.gradient is None


# ---- which layers


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, stride=9),
        nn.Conv2d(4, 4, 3).double(),
        nn.Linear(4, 4, device="meta"),
        nn.Conv1d(4, 4, 3),
        nn.ConvTranspose2d(4, 4, 3),
        nn.Bilinear(4, 4, 4),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_do_stays_dense(layer):
    assert not can_be_sparse(layer)


def test_a_layer_of_ones_own_or_with_an_observer_stays_dense():
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    assert not can_be_sparse(Scaled(4, 4))
    layer = nn.Linear(4, 4)
    assert can_be_sparse(layer)
    hook = layer.register_forward_hook(lambda *_: None)
    assert not can_be_sparse(layer)
    hook.remove()
    assert can_be_sparse(layer)
    assert not can_be_sparse(SparseLinear(layer, torch.ones(4, 4).bool(), Choices()))
    conv = nn.Conv2d(4, 4, 3)
    assert not can_be_sparse(SparseConv2d(conv, torch.ones(4, 4, 3, 3).bool(), Choices()))
